"""Train a joint sentencepiece model and cut parallel text into its pieces."""

import argparse
import os
import sys
from pathlib import Path
from typing import List, Optional, Tuple

import sentencepiece

from fairseq_mega.corpora.translation.parallel_files import read_lines
from fairseq_mega.corpora.translation.parallel_text import SPLITS

LONGEST_LINE = 1 << 24  # bytes; sentencepiece leaves lines above 4,192 out unless told


def train_model(lines: List[str], prefix: Path, vocabulary_size: int) -> int:
    """Train a model on all the lines and write it to `prefix.model` and `prefix.vocab`; return its size.

    Text is not normalised, so that decoding gives back what was encoded, white space aside. A text too
    small for the wanted size gets a smaller vocabulary.

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


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="subword", description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="folder with <split>.<lang> of every split")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the same files to, as pieces")
    parser.add_argument("--source-lang", required=True, help="ending of the source files")
    parser.add_argument("--target-lang", required=True, help="ending of the target files")
    parser.add_argument("--vocab-size", type=int, default=8000, help="number of pieces (fewer for a small text)")
    parser.add_argument("--model", type=Path, help="use this sentencepiece model and train none")
    parser.add_argument("--max-train-pieces", type=int, default=250, help="leave longer training pairs out")
    parser.add_argument("--max-pieces", type=int, default=1000, help="longest line of valid and test")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status. The model trained is `<output>/joint.model`."""
    options = build_parser().parse_args(arguments)
    langs = (options.source_lang, options.target_lang)
    model = options.model
    try:
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
    except (OSError, ValueError) as error:
        print(f"subword: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
