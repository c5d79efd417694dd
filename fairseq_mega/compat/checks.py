"""Refuse options with which a user would believe a wrong result, or lose a training.

A row earns its place by the rule in CONTRIBUTING.md, "What a guard must earn". Whatever fairseq refuses by itself, and
options that no document of this package names, have no row.
"""

import glob
import os
import sys
import typing
from pathlib import Path

from . import hooks
from .errors import UserError

Options = typing.Mapping[str, typing.Any]  # by the names of fairseq's parser
OF_LOSSES = ("loss", "nll_loss", "ppl")  # metrics of which the lowest is the best
OF_MATCHES = ("accuracy", "bleu")  # metrics of which the highest is the best
OF_LABEL_SMOOTHING = "label_smoothed_cross_entropy"
COMPUTED = {  # criterion -> metrics of a validation beside those of the task
    "cross_entropy": OF_LOSSES,
    OF_LABEL_SMOOTHING: OF_LOSSES,
    "adaptive_loss": OF_LOSSES,
    "lra_cross_entropy": ("loss", "accuracy"),
}
IN_GROUPS = ("common", "dataset", "distributed_training", "optimization", "checkpoint", "ema", "model")
NAMED_GROUPS = ("task", "criterion", "optimizer", "lr_scheduler")  # of hydra; their _name is an option


class Check(typing.NamedTuple):
    """A check of one option.

    Attributes:
        option: name in fairseq's parser.
        test: returns whether the option is right among all options; not called where the option is absent or None.
        remedy: advice for the user, after the option and its value.
    """

    option: str
    test: typing.Callable[[Options], bool]
    remedy: str


def command_of(given: Options) -> typing.Optional[str]:
    """Return the evaluating command with these options, without "fairseq-"; None for a training and other commands."""
    if "max_update" in given or "results_path" not in given:
        return None
    marks = {"buffer_size": "interactive", "beam": "generate", "context_window": "eval-lm"}
    return next((command for mark, command in marks.items() if mark in given), "validate")


def _has_the_tasks_criterion(given: Options) -> bool:
    from fairseq.tasks import TASK_REGISTRY

    task = given.get("task")
    own = ("masked_lm",) if task == "masked_lm" else getattr(TASK_REGISTRY.get(task), "criterions", None)
    return own is None or "max_update" not in given or given["criterion"] in own


def _is_computed(given: Options) -> bool:
    metric, criterion = given["best_checkpoint_metric"], given.get("criterion")
    if metric == "bleu":
        return bool(given.get("eval_bleu"))
    if metric == "accuracy" and criterion == OF_LABEL_SMOOTHING:
        return bool(given.get("report_accuracy"))
    return criterion not in COMPUTED or metric in (*COMPUTED[criterion], "num_updates")


def _is_the_right_end(given: Options) -> bool:
    metric, highest = given.get("best_checkpoint_metric"), given["maximize_best_checkpoint_metric"]
    return metric not in (OF_LOSSES if highest else OF_MATCHES)


def _has_updates_for_its_period(given: Options) -> bool:
    period = given.get("lr_period_updates")
    if given.get("lr_scheduler") != "cosine" or (period is not None and period > 0):
        return True
    return not given.get("max_update") or given["warmup_updates"] < given["max_update"]


def _is_saved(given: Options) -> bool:
    """Return whether a file exists, whole or in parts of several processes; True for addresses and by default."""
    file = given["restore_file"]
    if "max_update" not in given or file == "checkpoint_last.pt" or "://" in file or os.path.isfile(file):
        return True
    stem, ending = os.path.splitext(file)
    return bool(glob.glob(f"{glob.escape(stem)}-*{glob.escape(ending)}"))


CHECKS = (
    Check(
        "criterion",
        _has_the_tasks_criterion,
        "others divide the loss of this task by another number: give lra_cross_entropy for tasks of classes, masked_lm "
        "for masked_lm",
    ),
    Check(
        "best_checkpoint_metric",
        _is_computed,
        "the validation does not compute it, and the training would end at its first validation: give another metric, "
        "such as loss; bleu requires --eval-bleu, accuracy of label_smoothed_cross_entropy --report-accuracy",
    ),
    Check(
        "maximize_best_checkpoint_metric",
        _is_the_right_end,
        "checkpoint_best.pt would be the worst: give it for accuracy and bleu, and omit it for losses",
    ),
    Check(
        "warmup_updates",
        _has_updates_for_its_period,
        "the learning rate of --lr-scheduler cosine would never decay: give fewer than --max-update",
    ),
    Check("restore_file", _is_saved, "does not exist, and the training would start from scratch: give a checkpoint"),
    Check(
        "share_all_embeddings",
        lambda given: not (given["share_all_embeddings"] and given.get("adaptive_softmax_cutoff")),
        "an adaptive softmax has tables of its own: omit one of the two options",
    ),
    Check(
        "source_lang",
        lambda given: given.get("target_lang") is not None,
        "fairseq ignores it without --target-lang: give both, or neither",
    ),
    Check(
        "target_lang",
        lambda given: "source_lang" not in given or given["source_lang"] is not None,
        "fairseq ignores it without --source-lang: give both, or neither",
    ),
    Check(
        "gen_subset",
        lambda given: command_of(given) != "validate" or given["gen_subset"] == "test",
        "fairseq-validate scores --valid-subset: give that",
    ),
    Check(
        "valid_subset",
        lambda given: command_of(given) not in ("generate", "eval-lm") or given["valid_subset"] == "valid",
        "fairseq-generate and fairseq-eval-lm score --gen-subset: give that",
    ),
    Check(
        "context",
        lambda given: command_of(given) in ("generate", "interactive"),
        "only fairseq-generate and fairseq-interactive continue from it: omit it",
    ),
    Check(
        "skip_invalid_size_inputs_valid_test",
        lambda given: command_of(given) != "interactive" or not given["skip_invalid_size_inputs_valid_test"],
        "every line of input must have a line of output: omit it, and shorten the line that the error names",
    ),
)


def problem(given: Options) -> typing.Optional[UserError]:
    """Return the error for the first option that is wrong, or None."""
    for option, test, remedy in CHECKS:
        value = given.get(option)
        if value is not None and not test(given):
            flag = f"--{option.replace('_', '-')}"
            return UserError(flag if isinstance(value, bool) else f"{flag} {value}", remedy)
    return None


def options_of(cfg: typing.Any) -> typing.Dict[str, typing.Any]:
    """Return the settings of a training of fairseq-hydra-train by the names of fairseq-train's options."""
    found: typing.Dict[str, typing.Any] = {}
    for group in (*NAMED_GROUPS, *IN_GROUPS):
        found.update(cfg[group] or {})
    found["arch"] = found.pop("_name")
    found.update({group: cfg[group]["_name"] for group in NAMED_GROUPS if cfg[group]})
    return found


def check_parsed(call: hooks.Call) -> typing.Iterator[None]:
    """Refuse options of a command line (event "parse")."""
    yield
    found = problem(vars(hooks.parsed(call)))
    if found is not None:
        call.arguments["parser"].error(str(found))


def check_settings(call: hooks.Call) -> typing.Iterator[None]:
    """Refuse settings of fairseq-hydra-train, which has no parser of options (event "build")."""
    if Path(sys.argv[0]).stem.replace("_", "-") in ("fairseq-hydra-train", "hydra-train"):
        found = problem(options_of(call.arguments["cfg"]))
        if found is not None:
            raise found
    yield
