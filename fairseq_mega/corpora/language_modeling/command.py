"""Prepare text for language modelling: check it, split it, and count what fairseq-preprocess made of it.

    python -m fairseq_mega.corpora.language_modeling.command check --unit words FILE...
    python -m fairseq_mega.corpora.language_modeling.command split --unit words --train FILE --output DIR
    python -m fairseq_mega.corpora.language_modeling.command count --data DATA_BIN --text DIR
    python -m fairseq_mega.corpora.language_modeling.command decode <NUMBERS >TEXT

`split` writes train, valid and test, in the form that `fairseq-preprocess --only-source` takes, and counts.json, which
`count` compares with the binarised data, leaving what a token is in unit.json there. The scripts prepare_*.sh run these
commands in their order.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from fairseq_mega.corpora.download import REPORT_SECONDS, say
from fairseq_mega.corpora.language_modeling import made_up
from fairseq_mega.corpora.language_modeling.byte_ranges import (
    SPLITS,
    Span,
    consecutive_spans,
    held_out_spans,
    read_spans,
    size_of,
    whole,
)
from fairseq_mega.corpora.language_modeling.sources import CORPORA
from fairseq_mega.corpora.language_modeling.subwords import cut_words
from fairseq_mega.corpora.language_modeling.words import check_not_empty, check_words, read_words
from fairseq_mega.data.byte_text import ByteCounter, TextCounts, decode, encode
from fairseq_mega.data.text_units import MODEL_FILE, UNITS, write_unit

COUNTS = "counts.json"
SCAN_TOKENS = 1 << 22


def with_progress(name: str, total: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass blocks on, with a line on stderr every few seconds that says how many of `total` bytes were seen."""
    done, reported = 0, time.monotonic()
    for block in blocks:
        yield block
        done += len(block)
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            say(f"{name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")


def write_bytes(path: Path, spans: Sequence[Span], target: Path, name: str) -> Tuple[TextCounts, int]:
    """Write the bytes of the spans as decimal numbers; returns the counts and the number of different symbols."""
    counter = ByteCounter()
    partial = target.with_name(target.name + ".partial")
    with open(path, "rb") as source, open(partial, "wb") as stream:
        for block in counter.count(with_progress(name, size_of(spans), read_spans(source, spans))):
            stream.write(encode(block))
    os.replace(partial, target)
    return counter.counts, counter.symbols


def write_words(
    path: Path, spans: Sequence[Span], target: Path, name: str, replace_invalid: bool
) -> Tuple[TextCounts, int]:
    """Write the words of the spans, one blank between them; returns the counts and the number of different words."""
    lines = tokens = 0
    seen = set()

    def rows() -> Iterator[bytes]:
        nonlocal lines, tokens
        for words in read_words(path, spans, replace_invalid):
            lines += 1
            tokens += len(words) + 1
            seen.update(words)
            yield " ".join(words).encode("utf-8") + b"\n"

    partial = target.with_name(target.name + ".partial")
    with open(partial, "wb") as stream:
        stream.writelines(with_progress(name, size_of(spans), rows()))
    os.replace(partial, target)
    return TextCounts(lines, tokens, size_of(spans)), len(seen - {"<unk>"})


def command_check(args: argparse.Namespace) -> None:
    """Refuse files that are missing, empty, without a word, or no UTF-8, with the place and the remedy."""
    check_files(args.files, args.unit, args.replace_invalid)


def check_files(paths: Sequence[Path], unit: str, replace_invalid: bool) -> None:
    """Raise OSError or ValueError for the first file that cannot be cut into tokens."""
    for path in paths:
        if unit == "bytes":
            check_not_empty(path)
        else:
            check_words(path, replace_invalid)


def split_sources(args: argparse.Namespace) -> Dict[str, Tuple[Path, List[Span]]]:
    """Return the file and the spans that each split is made of."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    if args.sizes is not None:
        if len(given) > 1:
            raise ValueError("--sizes cuts the file of --train alone: leave --valid and --test out")
        return {split: (args.train, spans) for split, spans in consecutive_spans(args.train, args.sizes).items()}
    missing = [split for split in SPLITS if split not in given]
    cut = held_out_spans(args.train, missing, args.blocks, args.held_out, args.limit)
    return {split: (given.get(split, args.train), cut.get(split) or whole(given[split])) for split in SPLITS}


def command_split(args: argparse.Namespace) -> None:
    """Write train, valid and test as lines of tokens, and their counts."""
    if args.smoke:
        made_up.write_corpus("own", args.train)
    given = [path for path in (args.train, args.valid, args.test) if path is not None]
    check_files(given, args.unit, args.replace_invalid)  # all of them, before anything is made
    folder = args.output / "words" if args.unit == "subwords" else args.output
    folder.mkdir(parents=True, exist_ok=True)
    result: Dict[str, Any] = {"unit": args.unit, "splits": {}}
    for split, (path, spans) in split_sources(args).items():
        name = f"{split} ({args.unit} of {path.name})"
        if args.unit == "bytes":
            counts, symbols = write_bytes(path, spans, folder / split, name)
        else:
            counts, symbols = write_words(path, spans, folder / split, name, args.replace_invalid)
        if counts.tokens == counts.lines:
            raise ValueError(f"{path}: {split} has {counts.lines} lines and no token; give more text")
        result["splits"][split] = {**counts._asdict(), "symbols": symbols}
        say(f"{split}: {counts.bytes} bytes, {counts.lines} lines, {counts.tokens} tokens, {symbols} different")
    if args.unit == "subwords":
        for split, found in cut_words(folder, args.output, args.vocab_size).items():
            result["splits"][split].update(found)
            say(f"{split}: {found['tokens']} tokens as subwords, {found['symbols']} different")
    write_json(args.output / COUNTS, result)


def write_json(path: Path, content: Any) -> None:
    """Write JSON; the file appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)


def binarised_counts(data: Path, split: str, dictionary: Any) -> Tuple[Dict[str, int], List[str]]:
    """Return lines, tokens and unknown words of a binarised split, and what is wrong with it."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path, index_file_path

    prefix = str(data / split)
    index = MMapIndexedDataset.Index(index_file_path(prefix))
    tokens = np.memmap(data_file_path(prefix), dtype=index.dtype, mode="r")
    frequency = np.zeros(len(dictionary), dtype=np.int64)
    for begin in range(0, len(tokens), SCAN_TOKENS):
        found = np.bincount(tokens[begin : begin + SCAN_TOKENS].astype(np.int64), minlength=len(dictionary))
        if len(found) > len(dictionary):
            return {}, [f"{split}: expected token numbers below {len(dictionary)} (dict.txt), found {len(found) - 1}"]
        frequency += found
    lines, problems = len(index.sizes), []
    for what, want, have in (
        ("tokens in the index", len(tokens), int(index.sizes.sum())),
        ("</s>", lines, int(frequency[dictionary.eos()])),
        ("<s> and <pad>", 0, int(frequency[dictionary.bos()] + frequency[dictionary.pad()])),
    ):
        if want != have:
            problems.append(f"{split}: expected {want} {what}, found {have}")
    return {"lines": lines, "tokens": len(tokens), "unknown": int(frequency[dictionary.unk()])}, problems


def expected_counts(args: argparse.Namespace) -> List[Tuple[str, Dict[str, Dict[str, int]], Optional[int]]]:
    """Return who expects what: a name, lines and tokens per split, and the size of the dictionary or None."""
    expected = []
    text = json.loads((args.text / COUNTS).read_text(encoding="utf-8"))
    wanted = {split: {key: counts[key] for key in ("lines", "tokens")} for split, counts in text["splits"].items()}
    size = None
    if not args.threshold:
        size = -(-(4 + text["splits"]["train"]["symbols"]) // 8) * 8  # fairseq pads to a multiple of 8
    expected.append((f"the text in {args.text}", wanted, size))
    if args.corpus:
        corpus = CORPORA[args.corpus]
        expected.append((f"{corpus.name} as published", corpus.counts(), corpus.dictionary))
    return expected


def command_count(args: argparse.Namespace) -> None:
    """Compare the binarised data with the text it was made of and with published counts, and leave its unit there."""
    from fairseq.data import Dictionary

    for name in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
        if not (args.data / name).is_file():
            raise FileNotFoundError(f"{args.data / name} does not exist; binarise the text again")
    dictionary = Dictionary.load(str(args.data / "dict.txt"))
    splits, problems = {}, []
    for split in SPLITS:
        splits[split], wrong = binarised_counts(args.data, split, dictionary)
        problems += wrong
    for who, wanted, size in [] if problems else expected_counts(args):
        for split, counts in wanted.items():
            for what, want in counts.items():
                if splits[split][what] != want:
                    problems.append(f"{split}: expected {want} {what} ({who}), found {splits[split][what]}")
        if size not in (None, len(dictionary)):
            problems.append(f"dict.txt: expected a dictionary of {size} ({who}), found {len(dictionary)}")
    if problems:
        raise ValueError(f"{args.data}: " + "; ".join(problems))
    for split, found in splits.items():
        say(
            f"{split}: {found['lines']} lines, {found['tokens']} tokens with one </s> per line, "
            f"{100 * found['unknown'] / found['tokens']:.2f} % <unk>"
        )
    say(f"dictionary: {len(dictionary)} symbols, the special ones and fairseq's padding included")
    text = json.loads((args.text / COUNTS).read_text(encoding="utf-8"))
    write_unit(args.data, text["unit"], args.text / MODEL_FILE if text["unit"] == "subwords" else None)
    if args.json is not None:
        for split in SPLITS:
            splits[split]["bytes"] = text["splits"][split]["bytes"]
        write_json(args.json, {"unit": text["unit"], "dictionary": len(dictionary), "splits": splits})


def command_decode(args: argparse.Namespace) -> None:
    """Turn lines of decimal numbers on stdin, for instance generated ones, into the text they stand for."""
    sys.stdout.buffer.write(decode(sys.stdin.read()))


def sizes(text: str) -> List[int]:
    """Parse the argument of --sizes."""
    values = [int(part) for part in text.split(",")]
    if len(values) != len(SPLITS) or min(values) < 1:
        raise ValueError
    return values


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="prepare_text", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, function) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=function.__doc__)
        command.set_defaults(function=function)
        return command

    def add_unit(command: argparse.ArgumentParser) -> None:
        command.add_argument("--unit", choices=UNITS, required=True, help="what a token is")
        command.add_argument("--replace-invalid", action="store_true", help="except for bytes: no UTF-8 becomes U+FFFD")

    check = add("check", command_check)
    add_unit(check)
    check.add_argument("files", type=Path, nargs="+", metavar="FILE")
    split = add("split", command_split)
    add_unit(split)
    split.add_argument("--train", type=Path, required=True, metavar="FILE")
    for name in ("valid", "test"):
        split.add_argument(f"--{name}", type=Path, metavar="FILE", help="default: held out of --train")
    split.add_argument("--output", type=Path, required=True, metavar="DIR")
    split.add_argument("--sizes", type=sizes, metavar="N,N,N", help="cut --train into three parts of so many bytes")
    split.add_argument("--blocks", type=int, default=20, metavar="N", help="blocks that each give to every split")
    split.add_argument("--held-out", type=float, default=0.05, metavar="SHARE", help="share of valid and of test")
    split.add_argument("--limit", type=int, metavar="BYTES", help="use so many bytes of --train, from every block")
    split.add_argument("--vocab-size", type=int, default=8000, metavar="N", help="subwords: how many to learn")
    split.add_argument("--smoke", action="store_true", help="make a text up and write it to the file of --train")
    count = add("count", command_count)
    count.add_argument("--data", type=Path, required=True, metavar="DIR", help="what fairseq-preprocess wrote")
    count.add_argument("--text", type=Path, required=True, metavar="DIR", help="what split wrote")
    count.add_argument("--threshold", type=int, default=0, metavar="N", help="--thresholdsrc of fairseq-preprocess")
    count.add_argument("--corpus", choices=sorted(CORPORA), help="compare with its published counts, too")
    count.add_argument("--json", type=Path, metavar="FILE", help="write the counts to this file")
    add("decode", command_decode)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    args = build_parser().parse_args(argv)
    try:
        args.function(args)
    except (OSError, ValueError) as error:
        print(f"prepare_text: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
