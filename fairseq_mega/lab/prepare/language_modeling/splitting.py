"""Write train, valid and test as lines of tokens, the input of `fairseq-preprocess --only-source`."""

import codecs
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import sentencepiece

from fairseq_mega.data.json_lines import line_number
from fairseq_mega.data.text_cleaning import WORDS
from fairseq_mega.data.text_units import MODEL_FILE, NEWLINE, encode_bytes
from fairseq_mega.lab.prepare.options import SUBWORDS
from fairseq_mega.lab.prepare.progress import SPLITS, follow, print_line
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, RESERVED, train_model, write_dictionary
from fairseq_mega.lab.runs.files import write_json, written_whole

COUNTS = "counts.json"
HELD_OUT_SHARE, BLOCKS = 0.05, 20
BLOCK = 1 << 18
LONGEST_ROW = 2000  # characters; sentencepiece finds few subwords in longer lines, and ignores very long lines
WORDS_OF_ROW = 20
END = "</s>"  # of a line


class ByteRange(NamedTuple):
    """The bytes of a file from `begin` up to, but not including, `end`."""

    begin: int
    end: int


Counts = Dict[str, int]  # of a split after fairseq's binarisation: lines, tokens with one </s> per line, bytes, symbols


class Cut(NamedTuple):
    """A text, and its division into train, valid and test."""

    unit: str  # of the tokens: words, subwords or bytes
    train: Path  # the text to learn from
    valid: Optional[Path] = None  # held out of train if None, also test
    test: Optional[Path] = None
    sizes: Optional[Sequence[int]] = None  # bytes of each split, if train is cut into three parts
    held_out: float = 0.0  # share of train for valid, and for test
    limit: Optional[int] = None  # bytes of train to use, in equal parts from all blocks
    vocab_size: int = SUBWORDS  # number of subwords to learn
    threshold: int = 0  # rarer words become <unk>


def held_out_ranges(
    path: Path, splits: Sequence[str], share: float, limit: Optional[int] = None, blocks: int = BLOCKS
) -> Dict[str, List[ByteRange]]:
    """Cut a file into train and the held-out `splits`, which are spread over the whole file.

    The file is cut into `blocks` equal blocks. The last `share` of each block belongs to the last split, the `share`
    before to the split before, and the rest to train. All cuts are moved to the next end of a line.

    With a `limit` only as many bytes are used, in equal parts from the beginning of every block; without, the ranges,
    which are ascending and do not overlap, cover the file.

    Raises:
        ValueError: shares that leave nothing to train, or a text too short for a line in every split.
    """
    if splits and not 0 < share * len(splits) < 1:
        raise ValueError(f"--held-out is {share}: give a share above 0 and below {1 / len(splits)}")
    size = path.stat().st_size
    used = size if limit is None else min(limit, size)
    order = ["train", *splits]
    ranges: Dict[str, List[ByteRange]] = {split: [] for split in order}
    with open(path, "rb") as stream:
        for number in range(blocks):
            begin, end = number * size // blocks, (number + 1) * size // blocks
            length = min((number + 1) * used // blocks - number * used // blocks, end - begin)
            edges = [begin, *(begin + length - round(length * share * n) for n in range(len(splits), -1, -1))]
            ends = []
            for edge in edges:  # moved to the beginning of a line, or the end of the file
                stream.seek(max(0, edge - 1))
                if edge:
                    stream.readline()
                ends.append(stream.tell())
            for split, first, last in zip(order, ends, ends[1:]):
                if last > first:
                    ranges[split].append(ByteRange(first, last))
    for split in order:
        if not ranges[split]:
            raise ValueError(
                f"{path}: no line is left for {split} of {used} bytes cut into {blocks} blocks, {share} of them for "
                f"each of {', '.join(splits)}: give a longer text with line feeds"
            )
    return ranges


def split_ranges(cut: Cut) -> Dict[str, Tuple[Path, List[ByteRange]]]:
    """Return the file and the ranges of each split."""
    if cut.sizes is not None:
        ends = zip(SPLITS, cut.sizes, accumulate(cut.sizes))
        return {split: (cut.train, [ByteRange(end - size, end)]) for split, size, end in ends}
    given = {split: path for split, path in (("valid", cut.valid), ("test", cut.test)) if path is not None}
    missing = [split for split in SPLITS[1:] if split not in given]
    found = held_out_ranges(cut.train, missing, cut.held_out, cut.limit)
    whole = {split: [ByteRange(0, path.stat().st_size)] for split, path in given.items()}
    return {split: (given.get(split, cut.train), {**found, **whole}[split]) for split in SPLITS}


def read_words(path: Path, ranges: Sequence[ByteRange]) -> Iterator[List[str]]:
    r"""Yield the words of every line in the ranges of a UTF-8 file, which begin and end at ends of lines.

    Lines end at `\n` only, and are split into words as by fairseq. A byte-order mark is omitted. Raises ValueError that
    names the line with bytes that are not UTF-8, or with a word that fairseq reserves.
    """
    with open(path, "rb") as stream:
        for part in ranges:
            stream.seek(part.begin)
            offset = part.begin
            while offset < part.end and (line := stream.readline(part.end - offset)):
                text = line if offset else line.removeprefix(codecs.BOM_UTF8)
                try:
                    words = text.decode("utf-8").split()
                    if reserved := RESERVED.intersection(words):
                        raise ValueError(f"fairseq reserves the word {min(reserved)!r}: remove it")
                except ValueError as error:
                    raise ValueError(f"{path}, line {line_number(path, offset)}: {error}") from error
                yield words
                offset += len(line)


def write_bytes(path: Path, ranges: Sequence[ByteRange], target: Path) -> Counts:
    """Write the bytes of the ranges as decimal numbers; an unfinished last line is a line with its </s>."""
    size, line_feeds, last = size_of(ranges), 0, b"\n"
    seen: Set[int] = set()
    with open(path, "rb") as source, written_whole(target) as partial, open(partial, "wb") as stream:
        for part in ranges:
            source.seek(part.begin)
            sizes = (min(BLOCK, part.end - place) for place in range(part.begin, part.end, BLOCK))
            for block in map(source.read, sizes):
                line_feeds, last = line_feeds + block.count(b"\n"), block[-1:]
                seen.update(block)
                stream.write(encode_bytes(block))
    end = last != b"\n"
    return {"lines": line_feeds + end, "tokens": size + end, "bytes": size, "symbols": len(seen - {NEWLINE})}


def size_of(ranges: Sequence[ByteRange]) -> int:
    """Return the number of bytes in all ranges."""
    return sum(part.end - part.begin for part in ranges)


def write_words(path: Path, ranges: Sequence[ByteRange], target: Path) -> Counts:
    """Write the words of the ranges, separated by blanks."""
    lines = tokens = 0
    seen: Set[str] = set()
    rows = follow(read_words(path, ranges), f"{target.name}: words of {path.name}", "lines")
    with written_whole(target) as partial, open(partial, "wb") as stream:
        for words in rows:
            lines, tokens = lines + 1, tokens + len(words) + 1
            seen.update(words)
            stream.write(" ".join(words).encode("utf-8") + b"\n")
    return {"lines": lines, "tokens": tokens, "bytes": size_of(ranges), "symbols": len(seen - {"<unk>"})}


def cut_words(words: Path, output: Path, vocabulary_size: int) -> Dict[str, Counts]:
    """Learn the subwords of ``words/train``, write every split to ``output`` as subwords, and the model beside them.

    Return for each split the number of tokens, an ``</s>`` per line included, and of different subwords; for train of
    all subwords, which ``dict.txt`` lists.
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
                subwords = [subword for row in rows_of(line) for subword in processor.encode(row, out_type=str)]
                seen.update([*subwords, END])
                target.write(" ".join(subwords).encode("utf-8") + b"\n")
        tokens, distinct = seen.total(), len(seen) - 1
        if split == "train":
            distinct = write_dictionary(processor, seen, output / DICTIONARY)
        found[split] = {"tokens": tokens, "symbols": distinct}
    return found


def rows_of(line: str) -> List[str]:
    """Return parts of a line of words that sentencepiece accepts; no subword spans two words, so none changes."""
    words = line.rstrip("\n").split(" ")
    step = WORDS_OF_ROW if len(line) > LONGEST_ROW else len(words)
    return [" ".join(words[begin : begin + step]) for begin in range(0, len(words), step)]


def split_text(cut: Cut, output: Path) -> None:
    """Write train, valid and test to a folder as lines of tokens, and their counts."""
    folder = output / "words" if cut.unit == "subwords" else output
    result: Dict[str, Any] = {"unit": cut.unit, "splits": {}}
    for split, (path, ranges) in split_ranges(cut).items():
        if cut.unit == "bytes":
            found = write_bytes(path, ranges, folder / split)
        else:
            found = write_words(path, ranges, folder / split)
        if found["tokens"] == found["lines"]:
            raise ValueError(f"{path}: {split} has {found['lines']} lines and no token; give more text")
        result["splits"][split] = found
        print_line(f"{split}: {', '.join(f'{count} {things}' for things, count in found.items())}")
    if cut.unit == "subwords":
        for split, found in cut_words(folder, output, cut.vocab_size).items():
            result["splits"][split].update(found)
            print_line(f"{split}: {found['tokens']} tokens as subwords, {found['symbols']} different")
    write_json(output / COUNTS, result)
