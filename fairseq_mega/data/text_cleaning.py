"""Cleaning of texts: every text for a model is cleaned like the text of its training.

The steps are recorded in the file of the sentencepiece model, in a field that sentencepiece ignores, so they are copied
with the model. A folder of text, or of data without a sentencepiece model, records the steps in its ``card.json``. Text
without either record is not cleaned.
"""

import re
import unicodedata
from pathlib import Path
from typing import Callable, Dict, Sequence, Tuple

from .card import CLEANING, settings_of_data, write_settings

BYTE_ORDER_MARK = "\ufeff"
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_END, _JOINT = re.compile("\r\n?"), re.compile(f"^{BYTE_ORDER_MARK}+", re.MULTILINE)

STEPS: Dict[str, Callable[[str], str]] = {  # in their order
    "lines": lambda text: _JOINT.sub("", _LINE_END.sub("\n", text)),  # ends of other systems, marks of joined files
    "invisible": lambda text: _INVISIBLE.sub("", text),  # soft hyphens, zero-width spaces, joiners, byte-order marks
    "compose": lambda text: unicodedata.normalize("NFC", text),
    "controls": lambda text: _CONTROL.sub(" ", text),
    "blanks": lambda text: " ".join(text.split()),  # white space becomes single blanks, without blanks at the ends
}
SENTENCES = ("invisible", "compose", "controls", "blanks")  # of parallel text
LINES = ("lines",)  # of whole documents
WORDS = ("blanks",)  # of texts that are cut into words first

# Field 4711 of a sentencepiece model, whose format reserves fields from 200 on for extensions.
_FIELD = b"\xba\xa6\x02"
_MARK = re.compile(rb"fairseq_mega cleaning:([a-z -]*);")


def clean(text: str, steps: Sequence[str]) -> str:
    """Return a text cleaned by these steps, names of STEPS."""
    for name, step in STEPS.items():
        if name in steps:
            text = step(text)
    return text


def _checked(steps: Sequence[str], path: Path) -> Tuple[str, ...]:
    unknown = [step for step in steps if step not in STEPS]
    if unknown:
        raise ValueError(f"{path} names the cleaning step {unknown[0]!r}, which is unknown: update fairseq_mega")
    return tuple(steps)


def mark_model(model: Path, steps: Sequence[str]) -> None:
    """Record the steps in the file of a sentencepiece model; they replace earlier steps."""
    text = f"fairseq_mega cleaning:{' '.join(steps)};".encode("ascii")
    assert len(text) < 128  # the length is one byte
    with model.open("ab") as file:
        file.write(_FIELD + bytes([len(text)]) + text)


def steps_of_model(model: Path) -> Tuple[str, ...]:
    """Return the steps recorded in the file of a sentencepiece model; empty without a record.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if a step is unknown.
    """
    found = _MARK.findall(model.read_bytes())
    return _checked(found[-1].decode("ascii").split(), model) if found else ()


def write_steps(folder: Path, steps: Sequence[str]) -> None:
    """Write the steps to ``card.json`` of a folder."""
    write_settings(folder, {CLEANING: " ".join(steps)})


def steps_of_folder(folder: Path) -> Tuple[str, ...]:
    """Return the steps that a folder records; empty without a record.

    Raises:
        ValueError: if a file is broken, or a step is unknown.
    """
    return _checked(settings_of_data(folder).get(CLEANING, "").split(), folder)
