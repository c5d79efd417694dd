"""Write train, valid and test as lines of tokens, the input of `fairseq-preprocess --only-source`."""

import codecs
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from fairseq_mega.compat.features.interactive import TO_LINE_FEEDS
from fairseq_mega.data.byte_text import NEWLINE, encode
from fairseq_mega.lab.prepare.language_modeling.byte_ranges import (
    ByteRange,
    NothingLeft,
    character_begin,
    consecutive_ranges,
    held_out_ranges,
    read_ranges,
    size_of,
    whole,
    word_begin,
)
from fairseq_mega.lab.prepare.language_modeling.subwords import cut_words
from fairseq_mega.lab.prepare.language_modeling.words import check_not_empty, check_words, read_words
from fairseq_mega.lab.prepare.options import BLOCKS, HELD_OUT_SHARE, SUBWORDS
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.text_files import not_utf8
from fairseq_mega.lab.runs.files import blocks_of, write_json, written_whole

COUNTS = "counts.json"
MANY_RETURNS = 0.01  # carriage returns for a line feed


class TextCounts(NamedTuple):
    """Counts of a split after fairseq's binarisation."""

    lines: int
    tokens: int  # one </s> per line included
    bytes: int


class Cut(NamedTuple):
    """A text, and its division into train, valid and test.

    Attributes:
        unit: of the tokens: words, subwords or bytes.
        train: the text to learn from.
        valid, test: held out of ``train`` if None.
        sizes: bytes of each split, if ``train`` is cut into three parts.
        blocks: number of blocks of ``train``; each block has a part of every split.
        held_out: share of ``train`` for valid, and for test.
        limit: bytes of ``train`` to use, in equal parts from all blocks.
        vocab_size: number of subwords to learn.
        replace_invalid: replace bytes that are not UTF-8 by U+FFFD, unless the unit is bytes.
    """

    unit: str
    train: Path
    valid: Optional[Path] = None
    test: Optional[Path] = None
    sizes: Optional[Sequence[int]] = None
    blocks: int = BLOCKS
    held_out: float = HELD_OUT_SHARE
    limit: Optional[int] = None
    vocab_size: int = SUBWORDS
    replace_invalid: bool = False


def follow_bytes(name: str, total: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks, and print from time to time how many of ``total`` bytes were read."""
    return Progress(name, "MB", total / 1e6).follow(blocks, size=lambda block: len(block) / 1e6)


def write_bytes(path: Path, ranges: Sequence[ByteRange], target: Path, name: str) -> Tuple[TextCounts, int]:
    """Write the bytes of the ranges as decimal numbers; return the counts and the number of different symbols.

    An unfinished last line is a line with its </s>.
    """
    size, line_feeds, last = size_of(ranges), 0, b"\n"
    seen: Set[int] = set()
    with open(path, "rb") as source, written_whole(target) as partial, open(partial, "wb") as stream:
        for block in follow_bytes(name, size, read_ranges(source, ranges)):
            line_feeds, last = line_feeds + block.count(b"\n"), block[-1:]
            seen.update(block)
            stream.write(encode(block))
    unfinished = last != b"\n"
    return TextCounts(line_feeds + unfinished, size + unfinished, size), len(seen - {NEWLINE})


def write_words(
    path: Path, ranges: Sequence[ByteRange], target: Path, name: str, replace_invalid: bool
) -> Tuple[TextCounts, int]:
    """Write the words of the ranges, separated by blanks; return the counts and the number of different words."""
    lines = tokens = 0
    seen = set()

    def rows() -> Iterator[bytes]:
        nonlocal lines, tokens
        for words in read_words(path, ranges, replace_invalid):
            lines += 1
            tokens += len(words) + 1
            seen.update(words)
            yield " ".join(words).encode("utf-8") + b"\n"

    with written_whole(target) as partial, open(partial, "wb") as stream:
        stream.writelines(follow_bytes(name, size_of(ranges), rows()))
    return TextCounts(lines, tokens, size_of(ranges)), len(seen - {"<unk>"})


def check_files(paths: Sequence[Path], unit: str, replace_invalid: bool) -> None:
    """Raise OSError or ValueError for the first file that cannot be cut into tokens."""
    for path in paths:
        if unit == "bytes":
            check_not_empty(path)
        else:
            check_words(path, replace_invalid)
        if unit == "bytes" and not is_utf8(path):
            say(f"note: {path} is not UTF-8, and what is typed for its model is: {not_utf8(path)}")
        feeds, returns, pairs = line_ends(path)
        if returns > MANY_RETURNS * feeds:
            change = TO_LINE_FEEDS if 2 * pairs <= feeds else r"`tr -d '\r'` removes them"  # lines that end in CR CR LF
            say(
                f"note: {path} has {feeds} line feeds and {returns} carriage returns without one, which do not end "
                f"lines here ({change})"
            )
        if unit == "bytes" and pairs > MANY_RETURNS * feeds:
            say(
                f"note: {pairs:,} of the {feeds:,} lines of {path} end in CR LF, and the model learns the CR, which "
                rf"open(FILE).read() of Python leaves out of a text: `sed 's/\r$//' {path} >OUT` removes it"
            )


def split_ranges(cut: Cut) -> Dict[str, Tuple[Path, List[ByteRange]]]:
    """Return the file and the ranges of each split."""
    if cut.sizes is not None:
        return {split: (cut.train, ranges) for split, ranges in consecutive_ranges(cut.train, cut.sizes).items()}
    given = {split: getattr(cut, split) for split in SPLITS if getattr(cut, split) is not None}
    missing = [split for split in SPLITS if split not in given]
    how = (cut.train, missing, cut.blocks, cut.held_out, cut.limit)
    try:
        found = held_out_ranges(*how)
    except NothingLeft:
        place, name = (character_begin, "anywhere") if cut.unit == "bytes" else (word_begin, "at white space")
        try:
            found = held_out_ranges(*how, place)
        except NothingLeft as error:
            if cut.unit == "bytes":
                raise ValueError(f"{cut.train} is too short to be cut into parts: give more text ({error})") from error
            raise ValueError(
                f"{cut.train} {few_line_ends(cut.train)}, nor is there white space enough: end its sentences with "
                f"line feeds, or read it with --unit bytes ({error})"
            ) from error
        say(f"{cut.train} {few_line_ends(cut.train)}: its parts are cut {name}")
    return {split: (given.get(split, cut.train), found.get(split) or whole(given[split])) for split in SPLITS}


def is_utf8(path: Path) -> bool:
    """Return whether a file is text in UTF-8 from beginning to end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb") as stream:
        try:
            for block in blocks_of(stream):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def line_ends(path: Path) -> Tuple[int, int, int]:
    """Return the numbers of line feeds, of carriage returns without a line feed, and of those with one."""
    feeds = returns = pairs = 0
    last = b""
    with open(path, "rb") as stream:
        for block in blocks_of(stream):
            feeds += block.count(b"\n")
            returns += block.count(b"\r")
            pairs += (last + block).count(b"\r\n")
            last = block[-1:]
    return feeds, returns - pairs, pairs


def few_line_ends(path: Path) -> str:
    """Return the reason why a file has too few lines for its parts."""
    return f"has {line_ends(path)[0]} line feeds, too few to be cut between lines"


def split_text(cut: Cut, output: Path) -> None:
    """Write train, valid and test to a folder as lines of tokens, and their counts.

    Raises:
        OSError, ValueError: for a text that cannot be cut, naming the place and the remedy.
    """
    given = [path for path in (cut.train, cut.valid, cut.test) if path is not None]
    check_files(given, cut.unit, cut.replace_invalid)  # all files, before anything is written
    folder = output / "words" if cut.unit == "subwords" else output
    folder.mkdir(parents=True, exist_ok=True)
    result: Dict[str, Any] = {"unit": cut.unit, "splits": {}}
    for split, (path, ranges) in split_ranges(cut).items():
        name = f"{split} ({cut.unit} of {path.name})"
        if cut.unit == "bytes":
            counts, symbols = write_bytes(path, ranges, folder / split, name)
        else:
            counts, symbols = write_words(path, ranges, folder / split, name, cut.replace_invalid)
        if counts.tokens == counts.lines:
            raise ValueError(f"{path}: {split} has {counts.lines} lines and no token; give more text")
        result["splits"][split] = {**counts._asdict(), "symbols": symbols}
        say(f"{split}: {counts.bytes} bytes, {counts.lines} lines, {counts.tokens} tokens, {symbols} different")
    if cut.unit == "subwords":
        for split, found in cut_words(folder, output, cut.vocab_size).items():
            result["splits"][split].update(found)
            say(f"{split}: {found['tokens']} tokens as subwords, {found['symbols']} different")
    write_json(output / COUNTS, result)
