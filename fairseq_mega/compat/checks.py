"""Refuse options with which a user would believe a wrong result, or lose a training.

A row earns its place by the rule in CONTRIBUTING.md, "What a guard must earn". Whatever fairseq refuses by itself, and
options that no document of this package names, have no row.
"""

import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, NamedTuple, Optional

from . import hooks

Options = Mapping[str, Any]  # by the names of fairseq's parser
OF_LOSSES = ("loss", "nll_loss", "ppl")  # metrics of which the lowest is the best
OF_MATCHES = ("accuracy", "bleu")  # metrics of which the highest is the best
IN_GROUPS = ("common", "dataset", "distributed_training", "optimization", "checkpoint", "ema", "model")
NAMED_GROUPS = ("task", "criterion", "optimizer", "lr_scheduler")  # of hydra; their _name is an option


class Check(NamedTuple):
    """A check of one option.

    Attributes:
        option: name in fairseq's parser.
        test: returns whether the option is right among all options; not called where the option is absent or None.
        remedy: advice for the user, after the option and its value.
    """

    option: str
    test: Callable[[Options], bool]
    remedy: str


def command_of(given: Options) -> Optional[str]:
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


def _is_the_right_end(given: Options) -> bool:
    metric, highest = given.get("best_checkpoint_metric"), given["maximize_best_checkpoint_metric"]
    return metric not in (OF_LOSSES if highest else OF_MATCHES)


def _can_be_sharded(given: Options) -> bool:
    unmarked = given.get("optimizer") == "adam_selective_decay"  # no mark of a parameter stays with its shard
    return given["ddp_backend"] != "fully_sharded" or not (unmarked or given.get("store_ema"))


def _is_saved(given: Options) -> bool:
    file = given["restore_file"]
    return "max_update" not in given or file == "checkpoint_last.pt" or "://" in file or os.path.isfile(file)


CHECKS = (
    Check(
        "criterion",
        _has_the_tasks_criterion,
        "others divide the loss of this task by another number: give lra_cross_entropy for tasks of classes, masked_lm "
        "for masked_lm",
    ),
    Check(
        "maximize_best_checkpoint_metric",
        _is_the_right_end,
        "checkpoint_best.pt would be the worst: give it for accuracy and bleu, and omit it for losses",
    ),
    Check("restore_file", _is_saved, "does not exist, and the training would start from scratch: give a checkpoint"),
    Check(
        "ddp_backend",
        _can_be_sharded,
        "it cannot be combined with --store-ema or --optimizer adam_selective_decay: omit one of them",
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


def problem(given: Options) -> Optional[str]:
    """Return what is wrong with the first option that is wrong, or None."""
    for option, test, remedy in CHECKS:
        value = given.get(option)
        if value is not None and not test(given):
            flag = f"--{option.replace('_', '-')}"
            return f"{flag}: {remedy}" if isinstance(value, bool) else f"{flag} {value}: {remedy}"
    return None


def require_models(models: Iterable[Any], *kinds: type) -> None:
    """Raise a ValueError unless all models are of these classes."""
    for model in models:
        if not isinstance(model, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"the checkpoint has a {type(model).__name__}, but {names} is required")


def options_of(cfg: Any) -> Dict[str, Any]:
    """Return the settings of a training of fairseq-hydra-train by the names of fairseq-train's options."""
    found: Dict[str, Any] = {}
    for group in (*NAMED_GROUPS, *IN_GROUPS):
        found.update(cfg[group] or {})
    found["arch"] = found.pop("_name")
    found.update({group: cfg[group]["_name"] for group in NAMED_GROUPS if cfg[group]})
    return found


def check_parsed(call: hooks.Call) -> Iterator[None]:
    """Refuse options of a command line (event "parse")."""
    yield
    found = problem(vars(hooks.parsed(call)))
    if found is not None:
        call.arguments["parser"].error(found)


def check_settings(call: hooks.Call) -> Iterator[None]:
    """Refuse settings of fairseq-hydra-train, which has no parser of options (event "build")."""
    if Path(sys.argv[0]).stem.replace("_", "-") in ("fairseq-hydra-train", "hydra-train"):
        found = problem(options_of(call.arguments["cfg"]))
        if found is not None:
            raise ValueError(found)
    yield
