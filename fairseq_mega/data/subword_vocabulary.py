"""Vocabulary of a sentencepiece model: fairseq's dictionary of its subwords, and texts as token ids."""

import hashlib
from pathlib import Path
from typing import List, Sequence

import numpy as np
from fairseq.data import Dictionary

from .text_cleaning import clean
from .text_units import SubwordUnit, spelled

MULTIPLE = 8  # the number of tokens is a multiple, for fast matrix products


class SubwordVocabulary:
    """Subwords of a sentencepiece model after fairseq's four special tokens.

    A text becomes its subwords and ``</s>``. Control tokens of the model, such as ``<s>``, occur in no text and are
    omitted; the model's unknown subword becomes fairseq's ``<unk>``.

    Args:
        model: file of the model.

    Raises:
        ValueError: if the file does not exist, or is not a sentencepiece model.
    """

    def __init__(self, model: Path) -> None:
        unit = SubwordUnit(model)
        self.processor, self.cleaning = unit.processor, unit.cleaning
        self.dictionary = Dictionary()
        self.index_of = np.full(self.processor.get_piece_size(), self.dictionary.unk(), dtype=np.int32)  # (pieces,)
        for subword in range(len(self.index_of)):
            if not (self.processor.is_unknown(subword) or self.processor.is_control(subword)):
                self.index_of[subword] = self.dictionary.add_symbol(spelled(self.processor.id_to_piece(subword)))
        self.dictionary.pad_to_multiple_(MULTIPLE)
        self.digest = hashlib.sha256(self.processor.serialized_model_proto()).hexdigest()  # of the model

    def encode(self, texts: Sequence[str], threads: int = 1) -> List[np.ndarray]:
        """Return the token ids of each text, (L,) int32, with ``</s>`` at the end."""
        end = np.array([self.dictionary.eos()], dtype=np.int32)
        cleaned = [clean(text, self.cleaning) for text in texts]
        subwords = self.processor.encode(cleaned, out_type=int, num_threads=threads)
        return [np.concatenate([self.index_of[np.array(found, dtype=np.int64)], end]) for found in subwords]
