"""Cut the words of a text for language modelling into subwords, the pieces of a sentencepiece model."""

from pathlib import Path
from typing import Dict

import sentencepiece

from fairseq_mega.corpora.language_modeling.byte_ranges import SPLITS
from fairseq_mega.corpora.translation.parallel_files import read_lines
from fairseq_mega.corpora.translation.subwords import train_model
from fairseq_mega.data.text_units import MODEL_FILE


def cut_words(words: Path, output: Path, vocabulary_size: int) -> Dict[str, Dict[str, int]]:
    """Learn the pieces of ``words/train``, write every split to ``output`` as pieces, and the model beside them.

    Returns:
        Per split the number of tokens, an ``</s>`` per line included, and of different pieces.

    Raises:
        ValueError: the text is too small to learn from.
    """
    train_model(read_lines(words / "train"), output / Path(MODEL_FILE).stem, vocabulary_size)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(output / MODEL_FILE))
    found = {}
    for split in SPLITS:
        tokens, seen = 0, set()
        partial = output / f"{split}.partial"
        with open(words / split, encoding="utf-8", newline="\n") as lines, open(partial, "wb") as target:
            for line in lines:
                pieces = processor.encode(line.rstrip("\n"), out_type=str)
                tokens += len(pieces) + 1
                seen.update(pieces)
                target.write(" ".join(pieces).encode("utf-8") + b"\n")
        partial.replace(output / split)
        found[split] = {"tokens": tokens, "symbols": len(seen)}
    return found
