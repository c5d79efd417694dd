"""Compare the encoders of ``--bpe`` and ``--tokenizer`` with those that split the training text."""

import argparse
import logging
import os
from typing import Any, Callable, List

from omegaconf import OmegaConf

from fairseq_mega.compat.files.card import OPTIONS, SUBWORDS, TOKENIZER, OtherCard, described, options_of
from fairseq_mega.compat.files.settings import settings_of
from fairseq_mega.compat.patching import around

logger = logging.getLogger(__name__)
SUBWORDS_FILE = "subwords.model"  # in a data folder, the sentencepiece model that split its text
MARK = "\u2581"  # of blanks, in subwords of sentencepiece


def folders_of(task: Any) -> List[str]:
    """Return the folders of a task's text."""
    from fairseq import utils

    text = getattr(task, "text_folder", None)
    data = getattr(settings_of(task), "data", None)
    return [text] if text else utils.split_paths(data) if isinstance(data, str) else [""]


@around("fairseq.tasks.fairseq_task", "FairseqTask.build_bpe")
def build_compared_bpe(original: Callable, self: Any, args: Any) -> Any:
    """Refuse subwords other than the training's, which the model does not have."""
    bpe = original(self, args)
    compare(SUBWORDS, described("bpe", args), self, reads_lines(self))
    return encoder_of_data(self, reads_lines(self)) if bpe is None else bpe


@around("fairseq.tasks.fairseq_task", "FairseqTask.build_tokenizer")
def build_compared_tokenizer(original: Callable, self: Any, args: Any) -> Any:
    """Refuse a tokenizer other than the training's."""
    compare(TOKENIZER, described("tokenizer", args), self, reads_lines(self))
    return original(self, args)


@around("fairseq.hub_utils", "GeneratorHubInterface.__init__")
def compare_encoders_of_the_hub(original: Callable, self: Any, cfg: Any, task: Any, models: Any) -> None:
    """Compare the encoders of ``from_pretrained``, and split text by the data's where no option names one."""
    for entry, option in OPTIONS.items():
        compare(entry, described(option, getattr(cfg, option, None)), task, True)
    original(self, cfg, task, models)
    if self.bpe is None:
        self.bpe = encoder_of_data(task, True)


def reads_lines(task: Any) -> bool:
    """Return whether the command of a task is fairseq-interactive, which sets a size of its buffer of lines."""
    settings = settings_of(task)
    return bool(OmegaConf.is_config(settings) and settings._get_parent().interactive.buffer_size > 0)


class TextOrSubwords:
    """An encoder of sentencepiece that returns text with the mark of sentencepiece (U+2581) unchanged."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    def encode(self, text: str) -> str:
        """Return the subwords of a text or of subwords."""
        return text if MARK in text else self.encoder.encode(text)

    def decode(self, text: str) -> str:
        """Return the text of subwords."""
        return self.encoder.decode(text)


def encoder_of_data(task: Any, reads_text: bool) -> Any:
    """Return the encoder of a task's data where no option names one; None for words.

    The encoder is the task's ``unit()``, which language models have, or else the sentencepiece model of the data
    folder.

    Args:
        task: its checkpoint is loaded, and the two cards were compared.
        reads_text: whether text that is not split is read; otherwise a sentencepiece model is not used.
    """
    from fairseq.data import encoders

    unit = getattr(task, "unit", None)
    if callable(unit):
        return unit()
    model = os.path.join(folders_of(task)[0], SUBWORDS_FILE)
    if not reads_text or not os.path.isfile(model):
        return None
    logger.info(f"text is split by {model}, like the training text; lines of subwords are read unchanged")
    return TextOrSubwords(encoders.build_bpe(argparse.Namespace(bpe="sentencepiece", sentencepiece_model=model)))


def compare(entry: str, given: str, task: Any, reads_text: bool) -> None:
    """Compare an encoder with the one in the card of the checkpoint or the data.

    A warning is logged where text is read, the card has an encoder, and neither options nor the data folder have one.

    Args:
        entry: SUBWORDS or TOKENIZER.
        given: of the options, see :func:`described`; "" for none.
        task: with its checkpoint loaded.
        reads_text: whether text is read; otherwise encoders decode alone, and none need be passed.

    Raises:
        OtherCard: if the encoder is another one.
    """
    own = task.data_card()
    known = {**own, **getattr(task, "trained_card", {})}.get(entry, "")
    if given and known not in ("", given):
        raise OtherCard(f"{entry}: {options_of(given)} did not split the training text: give {options_of(known)}")
    if reads_text and known and not given and (known.startswith("--") or entry not in own):
        logger.warning(
            f"{entry}: the training text was split with {options_of(known)}, and this text is not: give these options, "
            "or text that is split already"
        )
