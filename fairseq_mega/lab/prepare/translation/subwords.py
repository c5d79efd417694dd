"""Split parallel text into the pieces of a joint sentencepiece model."""

import itertools
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, List, Optional, Sequence, Tuple

import sentencepiece

from fairseq_mega.data.text_cleaning import clean, mark_model, steps_of_folder, steps_of_model, write_steps
from fairseq_mega.lab.prepare.options import SUBWORDS
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, train_model, write_dictionary
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.files import read_lines

MODEL = "joint.model"
TRAIN_PIECES, PIECES = 250, 1000  # most pieces of a training pair, and of a line of the other splits
FIRST_LINES = 1000  # that are compared with their pieces
MANY = 0.1  # share of changed lines that is noted


def encode_pairs(
    model: Path, inputs: List[Path], outputs: List[Path], max_pieces: int, drop_long: bool
) -> Tuple[List[Tuple[List[str], ...]], int]:
    """Encode the parallel files `inputs`, cleaned as the model specifies, to `outputs`, with spaces between pieces.

    Returns:
        The pieces of the kept pairs, and the number of pairs left out.

    Raises:
        ValueError: for files of different length, or, without `drop_long`, a line of more than `max_pieces` pieces.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    steps = steps_of_model(model)
    sides = [processor.encode([clean(line, steps) for line in read_lines(path)], out_type=str) for path in inputs]
    if len({len(side) for side in sides}) > 1:
        counts = ", ".join(f"{path} {len(side)}" for path, side in zip(inputs, sides))
        raise ValueError(f"the numbers of lines differ ({counts}): line n must translate line n")
    kept = []
    for number, row in enumerate(zip(*sides)):
        lengths = [len(pieces) for pieces in row]
        if max(lengths) <= max_pieces:
            kept.append(row)
        elif not drop_long:
            raise ValueError(
                f"{inputs[lengths.index(max(lengths))]}, line {number + 1}: {max(lengths)} pieces, more than "
                f"the {max_pieces} allowed; cut the line into sentences"
            )
    for path, side in zip(outputs, zip(*kept) if kept else [()] * len(outputs)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(" ".join(pieces) + "\n" for pieces in side)
    total = len(sides[0]) if sides else 0
    return kept, total - len(kept)


def describe_unknown(lines: Iterable[List[str]], processor: Any) -> str:
    """Return a text on the number of characters that become ``<unk>`` because no piece of the model has them."""
    unknown: Counter = Counter()
    characters = 0
    for pieces in lines:
        for piece in pieces:
            text = piece.replace("\u2581", "")
            characters += len(text)
            if processor.is_unknown(processor.piece_to_id(piece)):
                unknown.update(text or " ")
    if not unknown:
        return f"none of its {characters:,} characters becomes <unk>"
    examples = " ".join(character for character, _ in unknown.most_common(10))
    return f"{sum(unknown.values()):,} of its {characters:,} characters become <unk>: {examples}"


def note_on_changes(processor: Any, path: Path) -> None:
    """Note lines of a target text whose letters the rules of a given model change, as rules that drop capitals do."""
    lines = list(itertools.islice(read_lines(path), FIRST_LINES))
    changed = []
    for line in lines:
        text = "".join(processor.encode(line, out_type=str)).replace("\u2581", " ")
        one, other = ("".join(unicodedata.normalize("NFKC", part).split()) for part in (line, text))
        if one != other:
            changed.append((line, " ".join(text.split())))
    if changed and len(changed) >= MANY * len(lines):
        line, text = changed[0]
        say(
            f"note: --model changes letters in {len(changed):,} of the first {len(lines):,} lines of {path}: "
            f"{line[:40]!r} becomes {text[:40]!r}, and so will translations and the references of their scores"
        )


def require(model: Optional[Path]) -> None:
    """Raise FileNotFoundError for a given model that does not exist; None is no model."""
    if model is not None and not model.is_file():
        raise FileNotFoundError(f"--model {model}: no such file; without --model one is trained")


def model_of(given: Path, text: Path, output: Path) -> Path:
    """Return a given model, or a copy that names the cleaning of the text if the model does not."""
    steps = steps_of_folder(text)
    if not steps or steps_of_model(given) == steps:
        return given
    model = output / MODEL
    output.mkdir(parents=True, exist_ok=True)
    model.write_bytes(given.read_bytes())
    mark_model(model, steps)
    say(
        f"{MODEL}: a copy of {given} that names the cleaning of the text; use this copy, or the copy in data-bin, "
        "instead"
    )
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
    """Split parallel text into pieces of a joint sentencepiece model; a new model is written to ``joint.model``.

    Args:
        text: folder with ``SPLIT.LANGUAGE`` of every split.
        output: folder for the same files as pieces, and ``dict.txt`` of all pieces.
        languages: of the source and of the target.
        given: a model to use in place of a new one.
        max_train_pieces: longer training pairs are left out.
        max_pieces: the longest line of valid and test.

    Raises:
        OSError, ValueError: for a text that cannot be split, naming the file and the remedy.
    """
    if given is None:
        model = output / MODEL
        lines = [line for language in languages for line in read_lines(text / f"train.{language}")]
        train_model(lines, output / model.stem, vocabulary_size, cleaning=steps_of_folder(text))
    else:
        model = model_of(given, text, output)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    if any(map(processor.is_byte, range(processor.get_piece_size()))):
        raise ValueError(
            f"--model {given}: it spells rare characters in bytes (byte_fallback), which fairseq's sentencepiece "
            "does not decode to characters: give a model that was trained without byte_fallback"
        )
    if given is not None:
        note_on_changes(processor, text / f"train.{languages[1]}")
    counts: Counter = Counter()
    for split in SPLITS:
        inputs, outputs = ([folder / f"{split}.{name}" for name in languages] for folder in (text, output))
        is_train = split == "train"
        limit = max_train_pieces if is_train else max_pieces
        kept, dropped = encode_pairs(model, inputs, outputs, limit, drop_long=is_train)
        lines_of_pieces = [pieces for pair in kept for pieces in pair]
        if is_train:
            counts.update(piece for pieces in lines_of_pieces for piece in pieces)
            write_dictionary(processor, counts, output / DICTIONARY)
        say(f"{split}: {len(kept)} pairs, {dropped} left out as longer than {limit} pieces")
        if not is_train:
            say(f"{split}: {describe_unknown(lines_of_pieces, processor)}")
    write_steps(output, steps_of_model(model))
