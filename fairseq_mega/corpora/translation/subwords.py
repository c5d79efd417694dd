"""Cut parallel text into the pieces of a joint sentencepiece model."""

import argparse
from pathlib import Path
from typing import List, Tuple

import sentencepiece

from fairseq_mega.corpora.sentencepieces import train_model
from fairseq_mega.corpora.splits import SPLITS
from fairseq_mega.corpora.translation.parallel_files import read_lines


def encode_pairs(
    model: Path, inputs: List[Path], outputs: List[Path], max_pieces: int, drop_long: bool
) -> Tuple[int, int]:
    """Encode the parallel files `inputs` to `outputs`, pieces separated by spaces.

    Returns:
        How many lines were kept and how many were left out.

    Raises:
        ValueError: files of different length, or a line of more than `max_pieces` pieces and not `drop_long`.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    sides = [processor.encode(read_lines(path), out_type=str) for path in inputs]
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
    return len(kept), total - len(kept)


def command_subwords(options: argparse.Namespace) -> None:
    """Train a joint sentencepiece model (`<output>/joint.model`) and cut parallel text into its pieces."""
    langs = (options.source_lang, options.target_lang)
    model = options.model
    if model is None:
        model = options.output / "joint.model"
        lines = [line for lang in langs for line in read_lines(options.text / f"train.{lang}")]
        size = train_model(lines, options.output / "joint", options.vocab_size)
        print(f"{model}: {size} pieces, {options.vocab_size} asked for", flush=True)
    elif not model.is_file():
        raise FileNotFoundError(f"--model {model}: no such file; without --model one is trained")
    for split in SPLITS:
        inputs, outputs = ([d / f"{split}.{lang}" for lang in langs] for d in (options.text, options.output))
        is_train = split == "train"
        limit = options.max_train_pieces if is_train else options.max_pieces
        kept, dropped = encode_pairs(model, inputs, outputs, limit, drop_long=is_train)
        print(f"{split}: {kept} pairs, {dropped} left out as longer than {limit} pieces", flush=True)
