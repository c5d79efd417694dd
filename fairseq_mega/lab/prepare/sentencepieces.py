"""Training of a sentencepiece model."""

import io
import os
from collections import Counter
from pathlib import Path
from typing import Any, List, Mapping, Sequence

import sentencepiece

from fairseq_mega.data.text_cleaning import mark_model
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import write_text

DICTIONARY = "dict.txt"  # beside text that is cut into subwords
# Words that fairseq would read as its own tokens: padding, for instance, is never scored. <unk> may occur in a text.
RESERVED = frozenset(("<s>", "<pad>", "</s>"))
LONGEST_LINE = 1 << 24  # bytes; sentencepiece omits lines above 4,192 by default
SPECIAL = 4  # subwords of sentencepiece's own: unknown, begin, end and the blank
COVERED = 0.9995  # of the characters of a text, where the subwords are too few for all
BYTES = 256  # subwords of a model with byte_fallback
THREADS = 16  # on every machine: the model records their number


def train_model(
    lines: List[str],
    prefix: Path,
    vocabulary_size: int,
    byte_fallback: bool = False,
    cleaning: Sequence[str] = (),
) -> int:
    """Train a model on all the lines and write it to `prefix.model`; print and return its size.

    The file depends on the lines and options alone, not on its place or the machine. Text is not normalised, so that
    decoding restores the text, except for white space. A text too small for the requested size gets a smaller
    vocabulary. With ``byte_fallback`` there is a subword for every byte, and no text is unknown: the ends of its lines
    and every blank come back as well; rare characters are spelled in bytes where the subwords are too few for all.
    Without it every character has a subword: if characters would be three quarters of the subwords, the vocabulary is
    larger, with half of ``vocabulary_size`` for longer subwords.

    Args:
        cleaning: steps of :mod:`fairseq_mega.data.text_cleaning` that the text has had; the model names them.

    Raises:
        ValueError: the text is too small to learn from.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    partial, model = prefix.with_name(f"{prefix.name}.partial.model"), io.BytesIO()
    characters = Counter(character for line in lines for character in line if character != " ")
    needed = len(characters) + SPECIAL
    requested, coverage = vocabulary_size, 1.0
    if byte_fallback and needed + BYTES > vocabulary_size:
        coverage = COVERED
    elif not byte_fallback and 4 * needed > 3 * vocabulary_size:
        requested = needed + vocabulary_size // 2
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=requested,
            hard_vocab_limit=False,
            character_coverage=coverage,
            normalization_rule_name="identity",
            model_type="unigram",
            byte_fallback=byte_fallback,
            remove_extra_whitespaces=not byte_fallback,
            max_sentence_length=LONGEST_LINE,
            num_threads=THREADS,
            minloglevel=1,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"sentencepiece could not learn {requested} subwords from {len(lines)} lines: {error}"
        ) from None
    partial.write_bytes(model.getvalue())
    if cleaning:
        mark_model(partial, cleaning)
    os.replace(partial, f"{prefix}.model")
    size = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model").get_piece_size()
    print_line(f"{prefix.name}.model: {size:,} subwords, {vocabulary_size:,} requested")
    return int(size)


def write_dictionary(processor: Any, counts: Mapping[str, int], file: Path) -> int:
    """Write fairseq's dictionary of all subwords of a model, in the model's order; return how many it holds.

    fairseq-preprocess alone would omit the subwords that the training text lacks, such as a character that stands
    within longer subwords there; a new word with that character would have an ``<unk>``.
    """
    numbers = range(processor.get_piece_size())
    subwords = [processor.id_to_piece(n) for n in numbers if not (processor.is_unknown(n) or processor.is_control(n))]
    # A model may have tokens of a user with these names.
    subwords = [subword for subword in subwords if subword not in RESERVED]
    padding = [f"madeupword{n:04d}" for n in range(-(len(subwords) + SPECIAL) % 8)]  # fairseq's
    write_text(file, "".join(f"{subword} {counts.get(subword, 0)}\n" for subword in subwords + padding))
    return len(subwords)
