"""Repair fairseq's command line."""

import argparse
import contextlib
import contextvars
import functools
import importlib.util
import typing

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import wrap

from . import translating
from .expressions import literal


def separate_bf16_from_tpu() -> None:
    """Make --bf16 and --memory-efficient-bf16 run on CPU and GPU: fairseq's parser turns them into --tpu."""
    hooks.at("parse", _parse_bf16)


def _parse_bf16(call: hooks.Call) -> typing.Iterator[None]:
    yield
    if getattr(hooks.parsed(call), "bf16", False):
        hooks.parsed(call).tpu = "--tpu" in hooks.words(call)


def read_numbers_as_numbers() -> None:
    """Parse options whose default is another option's value by their type: fairseq keeps unchecked texts."""
    from fairseq.dataclass import utils

    wrap(utils, "gen_parser_from_dataclass", _generate_typed)


def _generate_typed(original, parser, dataclass_instance, *args, **kwargs):
    from fairseq.dataclass.utils import interpret_dc_type

    known, fields = set(parser._actions), dataclass_instance.__dataclass_fields__
    original(parser, dataclass_instance, *args, **kwargs)
    for action in parser._actions:
        if action in known or action.choices or action.nargs == 0:
            continue
        if action.type is None and action.dest in fields:
            kind = interpret_dc_type(dataclass_instance._get_type(action.dest))
            action.type = {int: int, float: float, bool: _truth}.get(kind)
        elif action.type not in (None, int, float, str):
            action.type = _reading_lists(action.type)


def _reading_lists(read):
    @functools.wraps(read)
    def convert(text):
        try:
            return read(text)
        except SyntaxError as error:  # raised for Python literals; argparse expects ValueError
            raise ValueError(text) from error

    return convert


def _truth(text):
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"{text!r}: give True or False")
    return text == "True"


def name_missing_arguments() -> None:
    """Report a missing --arch or --task, for which fairseq raises an empty RuntimeError or KeyError(None)."""
    hooks.at("parse", _parse_named)


def _parse_named(call: hooks.Call) -> typing.Iterator[None]:
    parser = call.arguments["parser"]
    try:
        yield
    except RuntimeError as error:
        if str(error):
            raise
        parser.error(f"--arch is missing: give one of {', '.join(architectures())} (--help lists their options)")
    except KeyError as error:
        if error.args != (None,):
            raise
        parser.error("--task is missing: give the --task of the training, such as translation")


def refuse_what_cannot_be() -> None:
    """Report values for which fairseq ends with a traceback."""
    hooks.at("parse", _parse_checked)


def _parse_checked(call: hooks.Call) -> typing.Iterator[None]:
    yield
    parser, given = call.arguments["parser"], vars(hooks.parsed(call))
    problem = impossible(given)
    if problem is not None:
        parser.error(problem)
    translating.note_command(given)


_elsewhere: "contextvars.ContextVar[bool]" = contextvars.ContextVar("elsewhere", default=False)


@contextlib.contextmanager
def for_another_machine() -> typing.Iterator[None]:
    """Check options within the block for a command that may run on another machine with a GPU."""
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def impossible(given):
    """Return why options of any command are impossible, alone or together, or None.

    Args:
        given: all options by the parser's names.
    """
    for name, package in PACKAGES.items():
        if given.get(name) and importlib.util.find_spec(package.replace("-", "_")) is None:
            option = f"--{name.replace('_', '-')}"
            return f"{option} requires {package}: pip install {package}, or leave the option out"
    has_gpu = torch.cuda.is_available() or _elsewhere.get()
    if given.get("profile") and not has_gpu:
        return "--profile requires a GPU, and torch finds none: leave the option out"
    half = "--memory-efficient-fp16" if given.get("memory_efficient_fp16") else "--fp16"
    if given.get("fp16") and (given.get("cpu") or not has_gpu):
        return f"{half} requires a GPU: give --precision bf16, or leave it out"
    problem = contradiction(given)
    if problem is not None:
        return problem
    for option, example in (("--model-overrides", "dropout"), ("--optimizer-overrides", "weight_decay")):
        overrides = given.get(option[2:].replace("-", "_"))
        if isinstance(overrides, str) and not isinstance(literal(overrides), dict):
            return f"{option} {overrides}: give a dictionary, for example \"{{'{example}': 0.1}}\""
    overrides, scheduler = given.get("optimizer_overrides"), given.get("lr_scheduler")
    if isinstance(overrides, str) and "lr" in literal(overrides) and scheduler not in KEEP_THE_RATE:
        return f"--optimizer-overrides {overrides}: --lr-scheduler {scheduler} sets the learning rate: give --lr"
    criterion = given.get("criterion")
    if given.get("adaptive_softmax_cutoff") and criterion in ("cross_entropy", "label_smoothed_cross_entropy"):
        return f"--criterion {criterion} does not support --adaptive-softmax-cutoff: give --criterion adaptive_loss"
    if given.get("adaptive_softmax_cutoff") and given.get("share_all_embeddings"):
        return "--share-all-embeddings: an adaptive softmax has tables of its own: leave one of the two options out"
    return None


KEEP_THE_RATE = ("pass_through", "reduce_lr_on_plateau")  # schedulers under which a checkpoint's rate can stay
PACKAGES = {"write_checkpoints_asynchronously": "iopath", "use_plasma_view": "pyarrow", "tpu": "torch-xla"}
WAYS_TO_JOIN = ("sentencepiece", "wordpiece", "letter", "silence", "_EOW", "subword_nmt", "@@ ", "@@", "none")


def contradiction(given):
    """Return which options of any command contradict each other or are ignored, or None."""
    source, target = given.get("source_lang"), given.get("target_lang")
    if (source is None) != (target is None):
        there, missing = f"--source-lang {source}", "--target-lang"
        if source is None:
            there, missing = f"--target-lang {target}", "--source-lang"
        return f"{there} without {missing} has no effect: give both options, or neither"
    if given.get("tokenizer") == "moses" and given.get("source_lang", "") is None:
        return "--tokenizer moses requires both languages: give --source-lang and --target-lang"
    for name, option in (("post_process", "--post-process (--remove-bpe)"), ("eval_bleu_remove_bpe", "")):
        way = given.get(name)
        if way is not None and way not in WAYS_TO_JOIN:
            known = ", ".join(way for way in WAYS_TO_JOIN if way != "@@ ")
            return f"{option or '--eval-bleu-remove-bpe'} {way} is unknown: give one of {known}"
    if given.get("num_shards", 1) > 1 and "context_window" not in given:
        return f"--num-shards {given['num_shards']}: this command always uses all data; leave it out"
    return None


def architectures() -> typing.List[str]:
    """Return the names of this package's architectures, MEGA and MEGALODON before the baselines."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    package = __name__.split(".")[0]
    names = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == package]
    return sorted(names, key=lambda name: (not name.startswith("mega"), name))
