"""Split parallel text into the subwords of a joint sentencepiece model."""

from collections import Counter
from pathlib import Path
from typing import Optional, Sequence

import sentencepiece

from fairseq_mega.data.text_cleaning import clean, mark_model, steps_of_folder, steps_of_model, write_steps
from fairseq_mega.lab.prepare.options import SUBWORDS
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, train_model, write_dictionary
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.files import read_lines

MODEL = "joint.model"
TRAIN_PIECES, PIECES = 250, 1000  # most subwords of a training pair, and of a line of the other splits


def model_of(given: Path, text: Path, output: Path) -> Path:
    """Return a given model, or a copy that names the cleaning of the text if the model does not."""
    steps = steps_of_folder(text)
    if not steps or steps_of_model(given) == steps:
        return given
    model = output / MODEL
    model.write_bytes(given.read_bytes())
    mark_model(model, steps)
    print_line(f"{MODEL}: a copy of {given} that names the cleaning of the text; use the copy, here or in data-bin")
    return model


def cut_pairs(
    text: Path,
    output: Path,
    languages: Sequence[str],
    vocabulary_size: int = SUBWORDS,
    given: Optional[Path] = None,
    max_train_pieces: int = TRAIN_PIECES,
    max_pieces: int = PIECES,
) -> None:
    """Split parallel text into subwords of a joint sentencepiece model; a new model is written to ``joint.model``.

    Args:
        text: folder with ``SPLIT.LANGUAGE`` of every split.
        output: folder for the same files as subwords, and ``dict.txt`` of all subwords.
        languages: of the source and of the target.
        given: a model to use in place of a new one.
        max_train_pieces: longer training pairs are omitted.
        max_pieces: the longest line of valid and test.

    Raises:
        ValueError: for a line of valid or test with more subwords, naming the file and the remedy.
    """
    output.mkdir(parents=True, exist_ok=True)
    if given is None:
        model = output / MODEL
        lines = [line for language in languages for line in read_lines(text / f"train.{language}")]
        train_model(lines, output / model.stem, vocabulary_size, cleaning=steps_of_folder(text))
    else:
        model = model_of(given, text, output)
    processor, steps = sentencepiece.SentencePieceProcessor(model_file=str(model)), steps_of_model(model)
    for split in SPLITS:
        files = [f"{split}.{language}" for language in languages]
        cleaned = ([clean(line, steps) for line in read_lines(text / file)] for file in files)
        pairs = list(zip(*(processor.encode(side, out_type=str) for side in cleaned)))
        limit = max_train_pieces if split == "train" else max_pieces
        kept = [pair for pair in pairs if max(map(len, pair)) <= limit]
        print_line(f"{split}: {len(kept)} pairs, {len(pairs) - len(kept)} longer than {limit} subwords")
        if split == "train":
            counts = Counter(subword for pair in kept for subwords in pair for subword in subwords)
            write_dictionary(processor, counts, output / DICTIONARY)
        elif len(kept) < len(pairs):
            number = next(number for number, pair in enumerate(pairs, 1) if max(map(len, pair)) > limit)
            raise ValueError(
                f"{text / split}.*, line {number}: more than {limit} subwords; cut the line into sentences"
            )
        for side, file in enumerate(files):
            content = "".join(" ".join(pair[side]) + "\n" for pair in kept)
            (output / file).write_bytes(content.encode("utf-8"))
    write_steps(output, steps)
