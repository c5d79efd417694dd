"""Find options that a command of fairseq lists but neither the command nor its task reads."""

import argparse
import typing

IN_TRAINING = {  # options that fairseq-train lists and does not read, unlike other commands and fairseq-hydra-train
    *("gen_subset", "shard_id", "scoring", "checkpoint_shard_count", "suppress_crashes", "reset_logging"),
    "fast_stat_sync",
}
OF_PROMPTS = {"context"}  # options of tasks for commands that generate
EVERYWHERE = {
    *("no_progress_bar", "log_format", "log_interval", "seed", "cpu", "tpu", "fp16", "bf16", "amp", "user_dir"),
    *("path", "model_overrides", "checkpoint_suffix", "max_tokens", "batch_size", "required_seq_len_multiple"),
    *("distributed_world_size", "device_id"),
}
LOADING = {"num_workers", "data_buffer_size", "dataset_impl", "use_plasma_view", "plasma_path"}
READ: typing.Dict[str, typing.Set[str]] = {  # options that fairseq 0.12's main functions and their tasks read
    "generate": {
        *("gen_subset", "skip_invalid_size_inputs_valid_test", "required_batch_size_multiple", "post_process", "quiet"),
        *("results_path", "checkpoint_shard_count", "pipeline_model_parallel", "bpe", "tokenizer", "scoring"),
        *LOADING,
    },
    "interactive": {
        *("skip_invalid_size_inputs_valid_test", "post_process", "checkpoint_shard_count", "pipeline_model_parallel"),
        *("bpe", "tokenizer", "scoring"),
    },
    "eval-lm": {
        *("gen_subset", "num_shards", "shard_id", "post_process", "checkpoint_shard_count", "pipeline_model_parallel"),
        *LOADING,
    },
    "validate": {
        *("valid_subset", "skip_invalid_size_inputs_valid_test", "required_batch_size_multiple", "criterion"),
        *("all_gather_list_size", "distributed_rank", "distributed_port", "distributed_backend", "nprocs_per_node"),
        *("distributed_init_method", "distributed_no_spawn", "distributed_num_procs", "heartbeat_timeout"),
        *LOADING,
    },
}
FILLED = {  # options whose default is the value of another option
    "max_tokens_valid": "max_tokens",
    "batch_size_valid": "batch_size",
    "update_epoch_batch_itr": "grouped_shuffling",
}
BY_TASKS = ("dataset_impl", "required_seq_len_multiple", "use_plasma_view", "plasma_path")  # only some tasks read them
OF_FAIRSEQ = ("language_modeling", "masked_lm")  # tasks of fairseq that list the options that they read
IN_PLACE = {  # options that were probably intended
    ("train", "gen_subset"): "--valid-subset",
    ("validate", "gen_subset"): "--valid-subset",
    ("generate", "valid_subset"): "--gen-subset",
    ("eval-lm", "valid_subset"): "--gen-subset",
    ("generate", "sacrebleu"): "--scoring sacrebleu",
    ("validate", "batch_size_valid"): "--batch-size",
    ("validate", "max_tokens_valid"): "--max-tokens",
}


def command_of(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return the evaluating command with these options, without "fairseq-"; None for a training and other commands."""
    if "max_update" in given or "results_path" not in given:
        return None
    marks = {"buffer_size": "interactive", "beam": "generate", "context_window": "eval-lm"}
    return next((command for mark, command in marks.items() if mark in given), "validate")


def obstacle(
    parser: argparse.ArgumentParser, given: typing.Mapping[str, typing.Any], words: typing.Sequence[str]
) -> typing.Optional[str]:
    """Return a message for an option that the command does not read, or None.

    Args:
        parser: parser of the command, with all options added.
        given: all options by the parser's names.
        words: words of the command line, from which the message takes the option's name.
    """
    command = command_of(given) or ("train" if "max_update" in given else None)
    if command is None:
        return None
    of_all = IN_TRAINING if command == "train" else _options_of_training(command) - EVERYWHERE - READ[command]
    of_all = of_all if command in ("generate", "interactive") else of_all | OF_PROMPTS
    of_all = of_all if command == "train" else of_all | _of_training_alone(str(given.get("task")))
    of_task = _read_past_by_task(str(given.get("task")))
    for action in parser._actions:
        name, value = action.dest, given.get(action.dest, action.default)
        default = given[FILLED[name]] if name in FILLED else action.default
        if value in (default, action.default) or not action.option_strings:
            continue
        named = {str(word).partition("=")[0] for word in words}.intersection(action.option_strings)
        option = min(named, default=action.option_strings[-1])
        there = option if action.nargs == 0 else f"{option} {value}"
        instead = IN_PLACE.get((command, name))
        advice = f"give {instead}" if instead else "leave it out"
        if name in of_all or _is_of_bleu(action):
            return f"{there}: fairseq-{command} does not read it; {advice}"
        if name in of_task:
            return f"{there}: --task {given['task']} does not read it; {advice}"
    if command != "train" and given.get("bf16") and not given.get("amp"):
        return f"--bf16: fairseq-{command} reads it only with --amp; give --precision bf16"
    return None


def _is_of_bleu(action: argparse.Action) -> bool:
    """Return whether an option belongs to fairseq's own BLEU, whose special symbols come from the dictionary."""
    from fairseq.scoring.bleu import BleuConfig

    field = BleuConfig.__dataclass_fields__.get(action.dest)
    return field is not None and field.metadata.get("help") == action.help


def _read_past_by_task(task: str) -> typing.Set[str]:
    """Return options of every command that only some tasks read, and this task does not."""
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    package = __name__.split(".")[0]
    known = task in OF_FAIRSEQ or getattr(TASK_REGISTRY.get(task), "__module__", "").split(".")[0] == package
    read = getattr(TASK_DATACLASS_REGISTRY.get(task), "__dataclass_fields__", BY_TASKS)
    return set(BY_TASKS) - set(read) if known else set()


def _of_training_alone(task: str) -> typing.Set[str]:
    """Return options of a task of this package that only a training reads."""
    from fairseq.tasks import TASK_REGISTRY

    return set(getattr(TASK_REGISTRY.get(task), "training_options", ()))


def _options_of_training(command: str) -> typing.Set[str]:
    """Return options of trainings that fairseq lists for every command."""
    from fairseq.dataclass import configs
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY
    from fairseq.tasks.translation import TranslationConfig

    groups: typing.List[typing.Any] = [configs.CommonConfig, configs.CommonEvalConfig, configs.DatasetConfig]
    groups += [configs.DistributedTrainingConfig, configs.CheckpointConfig, LR_SCHEDULER_DATACLASS_REGISTRY["fixed"]]
    names = {name for group in groups for name in group.__dataclass_fields__}
    if command in ("generate", "interactive"):
        names |= {name for name in TranslationConfig.__dataclass_fields__ if name.startswith("eval_")}
        names |= {"upsample_primary", "no_beamable_mm", "no_early_stop", "sacrebleu", "load_alignments"}
    if command == "interactive":
        names |= {"score_reference"}
    return names | {"criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring"}
