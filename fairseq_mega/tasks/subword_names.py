"""Names that a sentencepiece model gives to numbers, as checkpoints remember them."""

import hashlib
from pathlib import Path
from typing import Dict

from fairseq_mega.compat.names import SUBWORDS, Names


def names_of_subwords(model: Path) -> Dict[str, Names]:
    """The model by its digest; nothing where there is no such file."""
    if not model.is_file():
        return {}
    remedy = "give the one it was trained with: another one cuts the same text into other pieces"
    return {SUBWORDS: Names(hashlib.sha256(model.read_bytes()).hexdigest(), str(model), remedy)}
