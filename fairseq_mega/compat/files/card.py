"""Compare the data card of a checkpoint with the card of the data, wherever the two meet.

A card has a text for each entry that decides what token ids, classes and inputs mean: the SHA-256 of dictionaries and
subword models, labels one a line, and settings such as the scale of samples. A training writes the card of its data
into its checkpoints. Data with another text for the same entry are refused: the tensors would fit, but the answers
would be wrong. :mod:`fairseq_mega.data.card` makes the cards of data, which the method ``data_card`` of tasks returns.
"""

import dataclasses
import hashlib
import logging
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

from .settings import other_settings, output_settings, settings_of

logger = logging.getLogger(__name__)
Card = Dict[str, str]
KEY = "card"  # in a checkpoint
EARLIER = "names"  # in an earlier checkpoint, with all tokens of dictionaries, one a line
SOURCE, TARGET, LABELS, LANGUAGES = "source", "target", "labels", "languages"
SUBWORDS, TOKENIZER, UNIT, CLEANING = "subwords", "tokenizer", "unit", "cleaning"
LENGTH, SAMPLES, SCALE, RATE, PIXELS = "length", "samples", "scale", "rate", "pixels"
NORMALIZATION, FRAMING = "normalization", "framing"
OPTIONS = {SUBWORDS: "bpe", TOKENIZER: "tokenizer"}  # that name encoders of text
INPUTS = frozenset((LENGTH, SAMPLES, SCALE, PIXELS, NORMALIZATION, FRAMING, CLEANING, RATE))
FREE = INPUTS | {LANGUAGES}  # which a new training that begins with the weights may change
FOLLOWED = frozenset((FRAMING,))  # of which a model's replaces the data's
PLAIN = INPUTS | {LABELS, LANGUAGES, SUBWORDS, TOKENIZER, UNIT}  # other entries are dictionaries, by their digests
REMEDY = "Give the data folder and the options of its training, or for a new training another --save-dir"
MOST_LABELS = 12  # that a line shows
_DIGEST = re.compile(r"[0-9a-f]{64}")


class OtherCard(ValueError):
    """A checkpoint and data, or two checkpoints, have other cards; the message names the entries."""


def digest(text: str) -> str:
    """Return the SHA-256 of a text as hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def digest_of_file(path: Union[str, "os.PathLike[str]"]) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def card_of(checkpoint: Dict[str, Any], where: Any) -> Card:
    """Return the card in a checkpoint; of an earlier one the card that its names of tokens make. Empty if it has none.

    Raises:
        ValueError: if the entry contains no card.
    """
    earlier = KEY not in checkpoint
    found = checkpoint.get(EARLIER if earlier else KEY)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for item in found.items() for text in item):
        raise ValueError(f"{where}: its entry {EARLIER if earlier else KEY!r} contains no data card")
    return {entry: _of_earlier(entry, text) for entry, text in found.items()} if earlier else dict(found)


def _of_earlier(entry: str, text: str) -> str:
    if entry == LANGUAGES:
        return text.replace("\n", "-")
    return ordered(text) if entry in PLAIN else digest(text)


def ordered(options: str) -> str:
    """Return the options of an encoder in alphabetical order, after its name; another text is returned unchanged."""
    if not options.startswith("--"):
        return options
    first, *further = options.split(" --")
    return " --".join([first, *sorted(further)])


def shown(text: str) -> str:
    """Return an entry in a line: a digest by its first digits, and of many labels the first."""
    lines = text.split("\n")
    more = f", ... ({len(lines):,})" if len(lines) > MOST_LABELS else ""
    return f"SHA-256 {text[:12]}..." if _DIGEST.fullmatch(text) else ", ".join(lines[:MOST_LABELS]) + more


def differences(first: Card, second: Card, places: Tuple[str, str] = ("the checkpoint", "the data")) -> List[str]:
    """Describe the entries that two cards have and that differ, in alphabetical order; ``places`` names the cards."""
    pairs = ((entry, first[entry], second[entry]) for entry in sorted(first.keys() & second.keys()))
    return [_difference(entry, one, other, places) for entry, one, other in pairs if one != other]


def _difference(entry: str, one: str, other: str, places: Tuple[str, str]) -> str:
    texts = [text.split("\n") for text in (one, other)]
    sizes = sorted(map(len, texts))
    unlike = (number for number, (a, b) in enumerate(zip(*texts)) if a != b)
    number = next(unlike, sizes[0])
    values = (shown(lines[number]) if number < len(lines) else "nothing" for lines in texts)
    values = (f"{value} in {place}" for value, place in zip(values, places))
    return f"{entry}{f' {number}' if sizes[1] > 1 else ''}: {', '.join(values)}"


def check(file: Any, theirs: Card, task: Any, own: Card, anew: bool = False) -> None:
    """Refuse a checkpoint whose card differs from the card of data, or of the models that the task loaded before it.

    A warning is logged where the checkpoint has no card, or where only one side has names of classes.

    Args:
        file: the checkpoint's.
        theirs: its card.
        task: keeps the entries of the models as ``trained_card``.
        own: card of the data.
        anew: a training begins with the weights alone.

    Raises:
        OtherCard: names all entries that differ.
    """
    if anew:
        theirs = {entry: text for entry, text in theirs.items() if entry not in FREE}
    else:
        _warn_of_what_is_not_compared(file, theirs, own, task)
    before = getattr(task, "trained_card", {})  # of the models before it in an ensemble
    others = {entry: text for entry, text in before.items() if entry not in own}
    found = differences(theirs, own) + differences(theirs, others, ("this one", "the models before it"))
    if found:
        raise OtherCard(f"{file} was trained on other data than {_data_of(task)}: {'; '.join(found)}. {REMEDY}")
    task.trained_card = {**before, **theirs}


def _data_of(task: Any) -> str:
    return str(getattr(settings_of(task), "data", None) or "these")


def _warn_of_what_is_not_compared(file: Any, theirs: Card, own: Card, task: Any) -> None:
    if own and not theirs:
        logger.warning(f"{file} has no data card: nothing records whether it was trained on data like {_data_of(task)}")
    elif (LABELS in theirs) != (LABELS in own) and theirs:
        numbered, labels = (file, own[LABELS]) if LABELS in own else (_data_of(task), theirs[LABELS])
        logger.warning(f"{numbered} has no labels to compare: its classes 0, 1, ... must be {shown(labels)}")


def described(option: str, cfg: Any) -> str:
    """Return an encoder as its options, with the SHA-256 of each file; of sentencepiece the SHA-256 alone; "" for none.

    Args:
        option: bpe or tokenizer.
        cfg: name or options of the encoder, or None.
    """
    from fairseq.registry import REGISTRIES
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else getattr(cfg, "__dict__", {})
    assert isinstance(values, dict)
    name = cfg if isinstance(cfg, str) else values.get("_name") or values.get(option) or ""
    kind = REGISTRIES[option]["dataclass_registry"].get(name)
    words = [f"--{option} {name}"]
    for field in () if kind is None else dataclasses.fields(kind):
        value = values.get(field.name)
        if value and value != field.default and field.name != "_name" and not field.name.endswith("_lang"):
            text = digest_of_file(value) if os.path.isfile(str(value)) else value
            words.append(f"--{field.name.replace('_', '-')}" + ("" if value is True else f" {text}"))
    if name == "sentencepiece" and len(words) > 1:
        return words[1].split()[-1]  # as of the file in a data folder
    return ordered(" ".join(words)) if name else ""


def options_of(text: str) -> str:
    """Return the options of an encoder in a card."""
    file = f"FILE (SHA-256 {text[:12]}..., subwords.model of its data if they have one)"
    return text if text.startswith("--") else f"--bpe sentencepiece --sentencepiece-model {file}"


def card_of_training(trainer: Any) -> Card:
    """Return the card of a training's data, with its ``--bpe`` and ``--tokenizer``.

    Raises:
        OtherCard: if another subword model than that of ``--bpe`` split the data.
    """
    own: Card = trainer.task.data_card()
    texts = {entry: described(option, getattr(trainer.cfg, option, None)) for entry, option in OPTIONS.items()}
    given = {entry: text for entry, text in texts.items() if text}
    found = differences(given, own, ("the options", "the data"))
    if found:
        raise OtherCard(f"--bpe and --tokenizer did not split {_data_of(trainer.task)}: {'; '.join(found)}")
    return {**given, **own}


def add_card(call: hooks.Call) -> Iterator[None]:
    """Write the card of a training's data into its checkpoint, and entries that the data lack (event "state")."""
    yield
    trainer = call.arguments["self"]
    own = trainer.card if hasattr(trainer, "card") else trainer.task.data_card()
    call.result[KEY] = {**getattr(trainer.task, "trained_card", {}), **own}


def read_card(call: hooks.Call) -> Iterator[None]:
    """Put a checkpoint's file, card and settings into the states that a task and a training read (event "read")."""
    yield
    checkpoint, path = call.result, call.arguments["path"]
    about = (str(path), card_of(checkpoint, path), output_settings(checkpoint))
    for state in ("task_state", "extra_state"):
        checkpoint[state] = {**(checkpoint.get(state) or {}), KEY: about}


@around("fairseq.tasks.fairseq_task", "FairseqTask.load_state_dict")
def compare_for_use(original: Callable, self: Any, state: Dict[str, Any]) -> None:
    """Load a task's state from a checkpoint after a comparison of the checkpoint's card with that of the data."""
    if KEY in state:
        file, theirs, _ = state[KEY]
        check(file, theirs, self, {entry: text for entry, text in self.data_card().items() if entry not in FOLLOWED})
    original(self, {name: value for name, value in state.items() if name != KEY})


def compare_for_training(call: hooks.Call) -> Iterator[None]:
    """Compare the card of a beginning training with those of its checkpoint and of --ema-seed-model (event "load")."""
    from fairseq import checkpoint_utils

    trainer, resets = call.arguments["self"], ("reset_optimizer", "reset_lr_scheduler", "reset_meters")
    trainer.card, average = card_of_training(trainer), trainer.cfg.ema
    if average.store_ema and average.ema_seed_model:
        theirs = card_of(checkpoint_utils.load_checkpoint_to_cpu(average.ema_seed_model), average.ema_seed_model)
        check(average.ema_seed_model, theirs, trainer.task, trainer.card, anew=True)
    yield
    file, theirs, settings = (call.result or {}).pop(KEY, (None, {}, {}))
    if file is not None:
        check(file, theirs, trainer.task, trainer.card, all(call.arguments[name] for name in resets))
        others = other_settings(settings, trainer.cfg.model)
        if others:
            logger.warning(
                f"{file} was trained with {'; '.join(others)}: the same weights compute something else now. Give the "
                "settings of the checkpoint unless the change is intended"
            )
