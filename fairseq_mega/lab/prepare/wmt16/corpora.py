"""The corpora that WMT'16 English-German consists of, and their plain text out of the archives."""

import json
import re
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, name_of, naming_damage, tar_files
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import count_lines, written_whole

LANGUAGES = ("en", "de")
TRAIN = "train"
COUNTS = "counts.json"  # beside toy archives
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


class Corpus(NamedTuple):
    """A part of the data: its archive, its file names per language, and the lines that each must have."""

    name: str
    url: str
    files: Dict[str, Tuple[str, ...]]
    lines: int
    exact: bool = True


def _text(stem: str) -> Dict[str, Tuple[str, ...]]:
    return {language: (f"{stem}.{language}",) for language in LANGUAGES}


def _sgm(stem: str) -> Dict[str, Tuple[str, ...]]:
    # A language may be stored as source or as reference; the English source comes with the German reference.
    roles = {"en": ("src", "ref"), "de": ("ref", "src")}
    return {language: tuple(f"{stem}-{role}.{language}.sgm" for role in roles[language]) for language in LANGUAGES}


STATMT, DATA = "http://www.statmt.org", "http://data.statmt.org/wmt16/translation-task"
CRAWL, NEWS = f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz", f"{DATA}/training-parallel-nc-v11.tgz"
# In the order in which the training corpora are concatenated. Lines as counted by the shared task; the test sets
# must match exactly, the training corpora within 1 % (line counts of repackaged copies differ slightly).
TRAINING = (
    Corpus("europarl-v7", f"{STATMT}/europarl/v7/de-en.tgz", _text("europarl-v7.de-en"), 1920209, False),
    Corpus("commoncrawl", CRAWL, _text("commoncrawl.de-en"), 2399123, False),
    Corpus("news-commentary-v11", NEWS, _text("news-commentary-v11.de-en"), 242770, False),
)
EVALUATION = (
    Corpus("newstest2013", f"{DATA}/dev.tgz", _text("newstest2013"), 3000),
    Corpus("newstest2014", f"{DATA}/dev.tgz", _sgm("newstest2014-deen"), 3003),
    Corpus("newstest2015", f"{DATA}/dev.tgz", _sgm("newstest2015-ende"), 2169),
    Corpus("newstest2016", f"{DATA}/test.tgz", _sgm("newstest2016-ende"), 2999),
)
SPLITS = (TRAIN, *(corpus.name for corpus in EVALUATION))


def archive_urls() -> List[str]:
    """Return the addresses of the five archives, each once."""
    return list(dict.fromkeys(corpus.url for corpus in TRAINING + EVALUATION))


def corpora_with_counts(counts_file: Optional[Path]) -> Tuple[Corpus, ...]:
    """Return all corpora; ``counts_file`` (JSON, ``{name: lines}``) replaces the expected numbers of lines."""
    corpora = TRAINING + EVALUATION
    if counts_file is None:
        return corpora
    counts = json.loads(counts_file.read_text(encoding="utf-8"))
    return tuple(corpus._replace(lines=counts[corpus.name], exact=True) for corpus in corpora)


def unpack_all(archives: Path, corpora: Sequence[Corpus], raw: Path) -> None:
    """Unpack the archives, check the numbers of lines and join the training corpora."""
    raw.mkdir(parents=True, exist_ok=True)
    for url in archive_urls():
        archive = archives / name_of(url)
        print_line(f"{archive.name}: unpacking")
        unpack(archive, raw, [corpus for corpus in corpora if corpus.url == url])
    check_counts(raw, corpora)
    print_line(f"training corpora joined: {concatenate(raw)} pairs")


def unpack(archive: Path, output: Path, corpora: Sequence[Corpus]) -> None:
    """Write ``output/<corpus>.<language>``, plain UTF-8 text, for each of ``corpora`` stored in ``archive``."""
    selected = {  # by name in the archive; of several names the first is preferred
        name: (rank, output / f"{corpus.name}.{language}")
        for corpus in corpora
        for language, names in corpus.files.items()
        for rank, name in enumerate(names)
    }
    best: Dict[Path, int] = {}
    with naming_damage(archive, FETCH_AGAIN):
        for member, stream in tar_files(archive):
            rank, path = selected.get(name_of(member.name), (0, None))
            if path is not None and best.get(path, rank) >= rank:
                best[path] = rank
                _write_text(stream, member.name, path)


def _write_text(stream: IO[bytes], member: str, path: Path) -> None:
    """Write a text, of which bytes that are no UTF-8 become U+FFFD, or the segments of an SGM test set."""
    damaged = 0
    with written_whole(path) as partial, open(partial, "wb") as target:
        if member.endswith(".sgm"):
            target.writelines(f"{line}\n".encode() for line in read_sgm(stream.read().decode("utf-8", "replace")))
        else:
            for line in stream:
                text = line.rstrip(b"\n").decode("utf-8", "replace").encode("utf-8") + b"\n"
                damaged += text.rstrip(b"\n") != line.rstrip(b"\n")
                target.write(text)
    if damaged:
        print_line(f"{member}: {damaged} lines hold bytes that are not UTF-8, replaced by U+FFFD")


def read_sgm(text: str) -> List[str]:
    """Return the segments of an SGM test set, one string per ``<seg>``, white space within reduced to spaces.

    Entities are left as they stand, as Moses' input-from-sgm and sacreBLEU do.
    """
    return [" ".join(segment.split()) for segment in SEGMENT.findall(text)]


def check_counts(output: Path, corpora: Sequence[Corpus]) -> None:
    """Raise ValueError unless both sides of every corpus have the lines they should have."""
    for corpus in corpora:
        english, german = (count_lines(output / f"{corpus.name}.{language}") for language in LANGUAGES)
        tolerance = 0 if corpus.exact else corpus.lines // 100
        if english != german or not english > 0 or abs(english - corpus.lines) > tolerance:
            raise ValueError(
                f"{corpus.name}: expected {corpus.lines} lines, found {english} English and {german} German ones in "
                f"{name_of(corpus.url)}; fetch it again from {corpus.url}"
            )
        print_line(f"{corpus.name}: {english} pairs (the shared task counts {corpus.lines})")


def concatenate(output: Path) -> int:
    """Join the training corpora, in their order, into ``output/train.<language>``; return the number of pairs."""
    for language in LANGUAGES:
        parts = [output / f"{corpus.name}.{language}" for corpus in TRAINING]
        with ExitStack() as stack:
            target = stack.enter_context(open(stack.enter_context(written_whole(output / f"{TRAIN}.{language}")), "wb"))
            for part in parts:
                shutil.copyfileobj(stack.enter_context(open(part, "rb")), target)
        for part in parts:
            part.unlink()
    return count_lines(output / f"{TRAIN}.{LANGUAGES[0]}")
