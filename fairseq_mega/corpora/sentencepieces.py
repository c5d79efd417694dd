"""Training of a sentencepiece model."""

import os
from pathlib import Path
from typing import List

import sentencepiece

LONGEST_LINE = 1 << 24  # bytes; sentencepiece leaves lines above 4,192 out unless told


def train_model(lines: List[str], prefix: Path, vocabulary_size: int, byte_fallback: bool = False) -> int:
    """Train a model on all the lines and write it to `prefix.model` and `prefix.vocab`; return its size.

    Text is not normalised, so that decoding gives back the text, white space aside. A text too
    small for the wanted size gets a smaller vocabulary. With ``byte_fallback`` there is a piece for every byte, and no
    text is unknown: the ends of its lines and every blank come back as well.

    Raises:
        ValueError: the text is too small to learn from.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    partial = prefix.with_name(prefix.name + ".partial")
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(partial),
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="identity",
            model_type="unigram",
            byte_fallback=byte_fallback,
            remove_extra_whitespaces=not byte_fallback,
            max_sentence_length=LONGEST_LINE,
            num_threads=max(1, os.cpu_count() or 1),
            minloglevel=1,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"sentencepiece could not learn {vocabulary_size} pieces from {len(lines)} lines: {error}"
        ) from None
    for ending in (".vocab", ".model"):
        os.replace(f"{partial}{ending}", f"{prefix}{ending}")
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model").get_piece_size()
