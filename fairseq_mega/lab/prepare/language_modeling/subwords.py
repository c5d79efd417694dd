"""Cut the words of a text for language modelling into subwords, the pieces of a sentencepiece model."""

from collections import Counter
from pathlib import Path
from typing import Dict, Iterator

import sentencepiece

from fairseq_mega.data.text_cleaning import WORDS
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, train_model, write_dictionary
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.files import written_whole

LONGEST_ROW = 2000  # characters; sentencepiece finds few pieces in longer lines, and ignores very long lines
WORDS_OF_ROW = 20
END = "</s>"  # of a line


def cut_words(words: Path, output: Path, vocabulary_size: int) -> Dict[str, Dict[str, int]]:
    """Learn the pieces of ``words/train``, write every split to ``output`` as pieces, and the model beside them.

    Returns:
        For each split the number of tokens, an ``</s>`` per line included, and of different pieces; for train of all
        pieces, which ``dict.txt`` lists.

    Raises:
        ValueError: the text is too small to learn from.
    """
    with open(words / "train", encoding="utf-8", newline="\n") as lines:
        text = [row for line in lines for row in rows_of(line)]
    train_model(text, output / Path(MODEL_FILE).stem, vocabulary_size, cleaning=WORDS)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(output / MODEL_FILE))
    found = {}
    for split in SPLITS:
        seen: Counter = Counter()
        with written_whole(output / split) as partial, open(partial, "wb") as target, open(
            words / split, encoding="utf-8", newline="\n"
        ) as lines:
            for line in lines:
                pieces = [piece for row in rows_of(line) for piece in processor.encode(row, out_type=str)]
                seen.update([*pieces, END])
                target.write(" ".join(pieces).encode("utf-8") + b"\n")
        tokens, symbols = seen.total(), len(seen) - 1
        if split == "train":
            symbols = write_dictionary(processor, seen, output / DICTIONARY)
        found[split] = {"tokens": tokens, "symbols": symbols}
    return found


def rows_of(line: str) -> Iterator[str]:
    """Yield parts of a line of words that sentencepiece accepts; no piece spans two words, so pieces do not change."""
    line = line.rstrip("\n")
    if len(line) <= LONGEST_ROW:
        yield line
        return
    words = line.split(" ")
    for begin in range(0, len(words), WORDS_OF_ROW):
        yield " ".join(words[begin : begin + WORDS_OF_ROW])
