"""Check training options on which fairseq fails late, or which it ignores: schedules, metrics, BLEU."""

import glob
import json
import logging
import math
import os
import re
import typing

from fairseq_mega.compat.patching import globals_of_training, wrap, wrapped

from . import ranges
from .expressions import is_pair_of_shares, literal

logger = logging.getLogger("fairseq_mega.compat.patches.training_options")
NUMBERS = re.compile(r"\d+(,\d+)*|\d+-\d+")  # of epochs or updates, in a key of --epoch2lr and --update2lr
HIGHER_IS_BETTER = ("accuracy", "bleu")
LOWER_IS_BETTER = ("loss", "nll_loss", "ppl")
OF_EVERY_TRAINING = ("loss", "num_updates")  # beside speeds and sizes of batches, by which nothing is best
OF_TOKENS_AND_CLASSES = {  # criterions of fairseq that the models of this package can be trained with
    *("cross_entropy", "label_smoothed_cross_entropy", "label_smoothed_cross_entropy_with_rdrop"),
    *("adaptive_loss", "vocab_parallel_cross_entropy"),
}
ADAPTIVE = ("adaptive_softmax_dropout", "adaptive_softmax_factor", "tie_adaptive_weights", "tie_adaptive_proj")
SLOW_MO = ("slowmo_momentum", "slowmo_base_algorithm", "localsgd_frequency")
OF_OPTIMIZERS = ("weight_decay", "betas", "momentum", "eps")  # options in its state, beside the rate
FILES = (  # options that name a file which a training reads
    "restore_file",
    "sentencepiece_model",
    "bpe_codes",
    "quantization_config_path",
    "encoder_embed_path",
    "decoder_embed_path",
    "ema_seed_model",
)
METRICS = {  # that a validation computes beside those; those of other criterions are known once they have validated
    "cross_entropy": ("nll_loss", "ppl"),
    "label_smoothed_cross_entropy": ("nll_loss", "ppl", "accuracy", "total", "n_correct"),
    "adaptive_loss": ("nll_loss", "ppl"),
    "lra_cross_entropy": ("accuracy",),
}


def name_impossible_schedules() -> None:
    """Name the schedule and its options if fairseq divides by zero or fails an assertion."""
    from fairseq.optim import lr_scheduler

    wrap(lr_scheduler, "build_lr_scheduler", _build_named)


def begin_other_schedules() -> None:
    """Make a training continue with another --lr-scheduler: fairseq reads a best loss from a fixed rate's state."""
    from fairseq.optim.lr_scheduler import FairseqLRScheduler, reduce_lr_on_plateau

    for schedule in (FairseqLRScheduler, reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule):
        wrap(schedule, "load_state_dict", _load_if_its_own)


def _load_if_its_own(original: typing.Callable, self: typing.Any, state: typing.Dict[str, typing.Any]) -> None:
    if state.get("best") is not None:
        original(self, state)


def _build_named(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    try:
        return original(cfg, *args, **kwargs)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        if str(error).startswith("--"):
            raise
        of_fairseq = hasattr(cfg, "items")  # a configuration of its own; else a namespace with all options
        names = [name for name in cfg if name != "_name"] if of_fairseq else ["epoch2lr", "update2lr"]
        given = " ".join(f"--{name.replace('_', '-')} {getattr(cfg, name, None)}" for name in names)
        kind, cause = cfg._name if of_fairseq else cfg.lr_scheduler, str(error) or type(error).__name__
        raise ValueError(f"--lr-scheduler {kind} is impossible with {given} ({cause}): change these") from error


def end_with_the_error_of_a_gradient() -> None:
    """Report a gradient that is not finite, even if fairseq's search for its origin raises another error."""
    from fairseq.nan_detector import NanDetector

    wrap(NanDetector, "__exit__", _exit_and_go_on)


def _exit_and_go_on(original: typing.Callable, self: typing.Any, kind: typing.Any, *args: typing.Any) -> bool:
    original(self, kind, *args)
    return kind is not None and issubclass(kind, Exception)


def name_unknown_metrics() -> None:
    """Raise a ValueError for an unknown --best-checkpoint-metric, where fairseq raises a KeyError."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "load_checkpoint", _load_and_watch)


def tell_options_of_a_checkpoints_optimizer() -> None:
    """Log which optimizer options a training reads from its checkpoint; reject overrides that the optimizer lacks.

    fairseq replaces the options by those of the checkpoint without a message.
    """
    from fairseq.optim import FairseqOptimizer

    wrap(FairseqOptimizer, "load_state_dict", _load_and_tell)


def _load_and_tell(
    original: typing.Callable,
    self: typing.Any,
    state_dict: typing.Any,
    optimizer_overrides: typing.Optional[typing.Dict[str, typing.Any]] = None,
) -> None:
    overrides = optimizer_overrides or {}
    groups = [dict(group) for group in self.param_groups]
    known = sorted({name for group in groups for name in group if name != "params"})
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise ValueError(
            f"--optimizer-overrides {overrides}: {unknown[0]} is not an option of this optimizer: give some of "
            f"{', '.join(known)}"
        )
    original(self, state_dict, optimizer_overrides)
    asked, kept = groups[0], self.param_groups[0]
    for name in OF_OPTIMIZERS:
        now, before = (_plain(group.get(name)) for group in (asked, kept))
        if name not in overrides and now != before:
            logger.warning(
                f"the optimizer continues with the checkpoint's {name}, {before}, not with {now}: "
                f"--optimizer-overrides \"{{'{name}': {now}}}\" changes it"
            )


def _plain(value: typing.Any) -> typing.Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _load_and_watch(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    namespace = globals_of_training()
    if namespace:
        namespace["validate"] = wrapped(namespace["validate"], _validate_named)
    loaded = original(cfg, trainer, *args, **kwargs)
    given, rate = trainer.cfg.optimization.lr[0], trainer.get_lr()
    if trainer.get_num_updates() > 0 and given != rate and trainer.cfg.lr_scheduler._name == "reduce_lr_on_plateau":
        logger.info(
            f"the rate of the checkpoint, {rate:g}, continues to fall with --lr-scheduler reduce_lr_on_plateau, not "
            f"--lr {given:g}, which --optimizer-overrides '{{\"lr\": {given:g}}}' sets"
        )
    return loaded


def _validate_named(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    metric = cfg.checkpoint.best_checkpoint_metric
    try:
        losses = original(cfg, *args, **kwargs)
        if any(isinstance(loss, str) for loss in losses):
            raise ValueError(f"--best-checkpoint-metric {metric} is {losses[0]}, not a number: give another metric")
        return losses
    except KeyError as error:
        if error.args != (metric,):
            raise
        raise ValueError(
            f"--best-checkpoint-metric {metric}: the validation does not compute this metric; give a metric of the "
            f"validation's last line above"
        ) from None


def obstacle(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return why options of a training cannot be combined, or None; None for most other commands.

    Args:
        given: all options by the parser's names.
    """
    from omegaconf import MISSING  # slow, and not needed to import the package

    masking = _obstacle_of_masking(given)
    if masking is not None or "best_checkpoint_metric" not in given or "max_update" not in given:
        return masking
    betas = given.get("adam_betas")
    if isinstance(betas, str) and not is_pair_of_shares(betas):
        return f"--adam-betas {betas}: give two numbers in brackets, at least 0 and below 1, such as '(0.9, 0.98)'"
    last = os.path.join(given.get("save_dir") or "", "checkpoint_last.pt")
    for name in ("finetune_from_model", "continue_once"):
        file = given.get(name)
        lost = name == "continue_once" and not os.path.exists(last) and not os.path.exists(str(file))
        if file is not None and "://" not in file and (lost or os.path.isdir(file)):
            problem = "does not exist" if lost else "is a folder"
            return f"--{name.replace('_', '-')} {file} {problem}: give the file of a checkpoint, or leave it out"
    for option in FILES:
        file = given.get(option)
        if isinstance(file, str) and not _is_saved(file):
            if file == MISSING:
                return f"--{option.replace('_', '-')} is missing: give a file"
            problem = "is a folder" if os.path.isdir(file) else "does not exist"
            return f"--{option.replace('_', '-')} {file} {problem}: give a file, or leave the option out"
    kinds = (_obstacle_of_criterion, _obstacle_of_schedule, _obstacle_of_bleu, _obstacle_of_validation)
    problems = (obstacle_of(given) for obstacle_of in (*kinds, _obstacle_of_metric, _alone))
    return next(filter(None, problems), None)


def _is_saved(file: str) -> bool:
    """Return whether a file exists, whole or in parts of several processes; True for addresses."""
    if file == "checkpoint_last.pt" or "://" in file or os.path.isfile(file):
        return True
    stem, ending = os.path.splitext(file)
    return bool(glob.glob(f"{glob.escape(stem)}-*{glob.escape(ending)}"))


def _alone(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return the message for an option that has no effect without another option that was not given, or None."""
    from fairseq.dataclass.configs import CheckpointConfig, CommonConfig, DistributedTrainingConfig, EMAConfig
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig
    from fairseq.optim.lr_scheduler.fixed_schedule import FixedLRScheduleConfig
    from fairseq.tasks.language_modeling import LanguageModelingConfig
    from fairseq.tasks.translation import TranslationConfig

    scaling = ("fp16_scale_window", "fp16_scale_tolerance", "threshold_loss_scale")
    for needed, group, names in (
        ("--store-ema", EMAConfig, _beginning(EMAConfig, "ema_")),
        ("--eval-bleu", TranslationConfig, _beginning(TranslationConfig, "eval_")),
        ("--fp16, --precision fp16 or --amp", CommonConfig, ("fp16_init_scale", "min_loss_scale")),
        ("--fp16 or --precision fp16", CommonConfig, scaling),
        ("--amp", CommonConfig, _beginning(CommonConfig, "amp_")),
        ("--aim-repo", CommonConfig, ("aim_run_hash",)),
        ("--ddp-backend slow_mo", DistributedTrainingConfig, SLOW_MO),
        ("--pipeline-model-parallel", DistributedTrainingConfig, _beginning(DistributedTrainingConfig, "pipeline_")),
        ("--keep-interval-updates", CheckpointConfig, ("keep_interval_updates_pattern",)),
        ("--shorten-method", LanguageModelingConfig, ("shorten_data_split_list",)),
        ("--adaptive-input", TransformerLanguageModelConfig, ("adaptive_input_factor", "adaptive_input_cutoff")),
        ("--adaptive-softmax-cutoff", TransformerLanguageModelConfig, ADAPTIVE),
        ("--criterion label_smoothed_cross_entropy_with_alignment", TranslationConfig, ("load_alignments",)),
    ):
        if any(_is_there(given, option) for option in re.split(", | or ", needed)):
            continue
        for name in names:
            default = group.__dataclass_fields__[name].default
            value = given.get(name, default)
            if value is not None and value is not False and value != default:
                return _add(name, value, needed)
    for name, harmless in (("keep_interval_updates", 1), ("keep_interval_updates_pattern", 0)):  # 1 is the recipes'
        if (given.get(name) or 0) > harmless and not given.get("save_interval_updates"):
            return _add(name, given[name], "--save-interval-updates")
    if given.get("lr_scheduler") == "fixed" and given.get("force_anneal") is None:
        usual, shrink = FixedLRScheduleConfig.__dataclass_fields__["lr_shrink"].default, given.get("lr_shrink")
        if shrink not in (usual, None):
            return _add("lr_shrink", shrink, "--force-anneal")
    return None


def _beginning(group: typing.Any, letters: str) -> typing.List[str]:
    return [name for name in group.__dataclass_fields__ if name.startswith(letters)]


def _is_there(given: typing.Mapping[str, typing.Any], option: str) -> bool:
    """Return whether a switch "--option" is on, or "--option value" has this value."""
    name, _, value = option[2:].partition(" ")
    found = given.get(name.replace("-", "_"))
    return str(found) == value if value else found not in (None, False, -1, "none")


def _add(name: str, value: typing.Any, needed: str) -> str:
    option = f"--{name.replace('_', '-')}"
    return f"{option if value is True else f'{option} {value}'}: add {needed}, without which it has no effect"


def complete(namespace: typing.Any) -> None:
    """Set --total-num-update to --max-update by default; fairseq's polynomial_decay has no usable default."""
    if getattr(namespace, "lr_scheduler", "") == "polynomial_decay" and namespace.total_num_update is None:
        namespace.total_num_update = namespace.max_update


def _obstacle_of_criterion(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    masked = ("masked_lm",) if given.get("task") == "masked_lm" else None  # others divide by what is not masked, too
    own = getattr(TASK_REGISTRY.get(given.get("task")), "criterions", masked)
    if own is not None and given.get("criterion") not in own:
        return f"--criterion {given.get('criterion')}: --task {given['task']} has its own: give --criterion {own[0]}"
    name, model = given.get("criterion"), ARCH_MODEL_REGISTRY.get(given.get("arch"))
    origins = [getattr(part, "__module__", "").split(".")[0] for part in (CRITERION_REGISTRY.get(name), model)]
    if given.get("load_alignments") and origins[1] == __name__.split(".")[0]:
        return "--load-alignments: models of this package cannot learn attention from alignments; leave it out"
    if origins != ["fairseq", __name__.split(".")[0]] or name in OF_TOKENS_AND_CLASSES or masked:
        return None
    return (
        f"--criterion {name} is for other models than --arch {given['arch']}: give cross_entropy, "
        "label_smoothed_cross_entropy or lra_cross_entropy (of classifiers)"
    )


def _obstacle_of_masking(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return :func:`obstacle` for masked_lm; ``given`` may lack options, as overrides of a checkpoint's do."""
    if given.get("task") != "masked_lm":
        return None
    for name, reason in (
        ("mask_whole_words", "fairseq's masked_lm cannot build the model that knows words"),
        ("d2v2_multi", "it is for data2vec's models"),
    ):
        if given.get(name):
            return f"--{name.replace('_', '-')}: {reason}; leave it out"
    longest = given.get("tokens_per_sample", math.inf)
    between = ranges.Range("a number above 0 and below 1", lambda number: 0 < number < 1)
    for name, allowed in (
        ("mask_prob", between),
        ("leave_unmasked_prob", ranges.SHARE),
        ("random_token_prob", ranges.SHARE),
        ("mask_multiple_length", ranges.Range("1 to --tokens-per-sample", lambda number: 1 <= number <= longest)),
        ("mask_stdev", ranges.Range("0 to --tokens-per-sample", lambda number: 0 <= number <= longest)),
    ):
        if name in given and not allowed.holds(given[name]):
            return f"--{name.replace('_', '-')} {given[name]}: give {allowed.words}"
    unmasked, drawn = given.get("leave_unmasked_prob", 0), given.get("random_token_prob", 0)
    if unmasked + drawn > 1:
        return f"--leave-unmasked-prob {unmasked} and --random-token-prob {drawn}: give a sum of at most 1"
    return None


def _obstacle_of_schedule(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    kind = given.get("lr_scheduler")
    if kind == "manual":
        return _obstacle_of_manual(given)
    if kind not in ("polynomial_decay", "cosine"):
        return None
    option, name = ("--lr-period-updates", "lr_period_updates")
    if kind == "polynomial_decay":
        option, name = ("--total-num-update", "total_num_update")
    total, warmup = given.get(name), given.get("warmup_updates") or 0
    if kind == "cosine" and total is not None and total > 0:
        return None  # a period begins after the rise
    if kind == "cosine" or total is None:
        option, total = f"{option} (by default --max-update)", given["max_update"]
    if not total > 0:
        return f"{option} {total:g}: --lr-scheduler {kind} requires the number of updates over which the rate falls"
    if warmup >= total:
        return f"--warmup-updates {warmup}: give fewer than {option}, {total:g}"
    return None


def _obstacle_of_manual(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    form = """a dictionary of rates, for instance '{"1": 0.01, "2-3": 0.001, "4,6": 0.1}'"""
    rates = {option: given.get(option[2:]) or "{}" for option in ("--epoch2lr", "--update2lr")}
    for option, text in rates.items():
        if not _are_rates(literal(text.replace(" ", ""))):
            return f"{option} {text}: give {form}"
    if all(literal(text) == {} for text in rates.values()):
        return f"--lr-scheduler manual: give --epoch2lr or --update2lr {form}; --lr-scheduler fixed keeps --lr"
    return None


def _are_rates(found: typing.Any) -> bool:
    """Return whether a value is a dictionary of rates by epochs or updates: keys such as "1", "2-3" and "4,6"."""
    if not isinstance(found, dict) or not all(isinstance(key, str) and NUMBERS.fullmatch(key) for key in found):
        return False
    try:
        return all(math.isfinite(float(rate)) for rate in found.values())
    except (TypeError, ValueError):
        return False


def _obstacle_of_bleu(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    from fairseq.data import encoders
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizerConfig
    from fairseq.dataclass.configs import GenerationConfig

    if not given.get("eval_bleu"):
        return None
    detokenizers = encoders.TOKENIZER_REGISTRY
    if given.get("eval_bleu_detok") not in detokenizers:
        return f"--eval-bleu-detok {given.get('eval_bleu_detok')} is unknown: give one of {', '.join(detokenizers)}"
    for name in ("eval_bleu_args", "eval_bleu_detok_args"):
        option, text = f"--{name.replace('_', '-')}", given.get(name)
        try:
            values = json.loads(text or "{}")
        except ValueError:
            values = None
        if not isinstance(values, dict):
            return f"{option} {text}: give a dictionary of JSON, for instance '{{\"beam\": 4}}'"
        known, reader = GenerationConfig.__dataclass_fields__, "fairseq-generate"
        if name == "eval_bleu_detok_args":
            detokenizer = str(given["eval_bleu_detok"])
            known = MosesTokenizerConfig.__dataclass_fields__ if detokenizer == "moses" else {}
            reader = f"--eval-bleu-detok {detokenizer}"
        unknown = [key for key in values if key not in known]
        if unknown:
            return f"{option} {text}: {unknown[0]} is not an option of {reader}: leave it out"
        problem = ranges.out_of_range(values) if name == "eval_bleu_args" else None
        if problem is not None:
            return f"{option} {text}: {problem}"
    return None


def _obstacle_of_validation(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    if given.get("disable_validation"):
        names = [name for name in ("patience", "keep_best_checkpoints") if (given.get(name) or 0) > 0]
        told = [f"--{name.replace('_', '-')} {given[name]} acts after validations" for name in names]
        return f"{told[0]}: leave --disable-validation out" if told else None
    subsets, first, last = given.get("valid_subset"), given.get("validate_after_updates") or 0, given["max_update"]
    if given.get("combine_valid_subsets") and subsets != "valid":
        return (
            f"--valid-subset {subsets}: --combine-valid-subsets joins valid, valid1 and so on to one set, valid; give "
            "one of the two options"
        )
    if 0 < last < first:
        return (
            f"--validate-after-updates {first} is beyond --max-update {last}: no validation would run; give at most "
            f"{last}, or --disable-validation"
        )
    return None


def _obstacle_of_metric(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    metric, maximize = given["best_checkpoint_metric"], given.get("maximize_best_checkpoint_metric")
    there, known = f"--best-checkpoint-metric {metric}", METRICS.get(str(given.get("criterion")))
    if metric == "bleu" and not given.get("eval_bleu"):
        return f"{there}: add --eval-bleu, which computes it"
    if known is not None and metric not in (*OF_EVERY_TRAINING, *known, "bleu"):
        names = [name for name in ("loss", *known) if name in HIGHER_IS_BETTER + LOWER_IS_BETTER]
        names += ["bleu"] if "eval_bleu" in given else []
        return f"{there} is unknown: give {', '.join(names[:-1])} or {names[-1]}"
    if metric in ("accuracy", "total", "n_correct") and given.get("report_accuracy") is False:
        return f"{there}: add --report-accuracy, which computes it"
    if metric in HIGHER_IS_BETTER and not maximize:
        return f"{there}: the highest is the best; add --maximize-best-checkpoint-metric"
    if metric in LOWER_IS_BETTER and maximize:
        return f"{there}: the lowest is the best; leave --maximize-best-checkpoint-metric out"
    return None
