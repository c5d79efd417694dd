"""Prepare the WMT'16 English-German data: fetch, unpack, tokenise, byte-pair encode, clean.

Each step is a sub-command that leaves whole files or none, and that refuses a wrong number of lines.

    python -m fairseq_mega.corpora.wmt16.command fetch --archives DIR --record FILE
    python -m fairseq_mega.corpora.wmt16.command unpack --archives DIR --output RAW
    python -m fairseq_mega.corpora.wmt16.command tokenize --input RAW --output TOK
    python -m fairseq_mega.corpora.wmt16.command learn-bpe --input TOK --codes FILE
    python -m fairseq_mega.corpora.wmt16.command apply-bpe --input TOK --codes FILE --output BPE
    python -m fairseq_mega.corpora.wmt16.command clean --input BPE
"""

import argparse
import json
import os
import re
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Dict, Iterable, List, Optional, Sequence, Tuple

from fairseq_mega.corpora.download import DownloadError, obtain, say
from fairseq_mega.corpora.unpacking import check_expansion
from fairseq_mega.corpora.wmt16.line_pool import TextError, count_lines
from fairseq_mega.corpora.wmt16.moses_text import (
    BpeFactory,
    TokenizerFactory,
    clean_corpus,
    learn_bpe,
    transform_missing,
)

LANGUAGES = ("en", "de")
TRAIN = "train"
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Corpus:
    """One part of the data: its archive, its file names per language, and the lines each must have."""

    name: str
    url: str
    files: Dict[str, Tuple[str, ...]]
    lines: int
    exact: bool = True

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return self.url.rpartition("/")[2]


def _text(stem: str) -> Dict[str, Tuple[str, ...]]:
    return {language: (f"{stem}.{language}",) for language in LANGUAGES}


def _sgm(stem: str) -> Dict[str, Tuple[str, ...]]:
    # A language may be stored as source or as reference; the English source comes with the German reference.
    roles = {"en": ("src", "ref"), "de": ("ref", "src")}
    return {language: tuple(f"{stem}-{role}.{language}.sgm" for role in roles[language]) for language in LANGUAGES}


STATMT, DATA = "http://www.statmt.org", "http://data.statmt.org/wmt16/translation-task"
# In the order in which the training corpora are concatenated. Lines as counted by the shared task; the test sets
# must match exactly, the training corpora within 1 % (line counts of repackaged copies differ slightly).
TRAINING = (
    Corpus("europarl-v7", f"{STATMT}/europarl/v7/de-en.tgz", _text("europarl-v7.de-en"), 1920209, False),
    Corpus(
        "commoncrawl", f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz", _text("commoncrawl.de-en"), 2399123, False
    ),
    Corpus(
        "news-commentary-v11", f"{DATA}/training-parallel-nc-v11.tgz", _text("news-commentary-v11.de-en"), 242770, False
    ),
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


def read_sgm(text: str) -> List[str]:
    """Return the segments of an SGM test set, one string per ``<seg>``, white space within reduced to spaces.

    Entities are left as they stand, as Moses' input-from-sgm and sacreBLEU do.
    """
    return [" ".join(segment.split()) for segment in SEGMENT.findall(text)]


def _wanted(corpora: Iterable[Corpus], archive: str) -> Dict[str, Tuple[Corpus, str, int]]:
    """Map base name to (corpus, language, preference) for the members wanted from ``archive``."""
    return {
        name: (corpus, language, rank)
        for corpus in corpora
        if corpus.archive == archive
        for language, names in corpus.files.items()
        for rank, name in enumerate(names)
    }


def unpack(archive: Path, output: Path, corpora: Sequence[Corpus]) -> None:
    """Write ``output/<corpus>.<language>``, plain UTF-8 text, for each of ``corpora`` stored in ``archive``.

    Bytes that are no UTF-8 become U+FFFD and are reported. Raises :class:`TextError` when a file is not in the
    archive, and :class:`DownloadError` when the archive cannot be read.
    """
    wanted = _wanted(corpora, archive.name)
    best: Dict[Tuple[str, str], int] = {}
    output.mkdir(parents=True, exist_ok=True)
    unpacked = 0
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                unpacked += member.size
                check_expansion(archive, unpacked)  # before any of it is read
                found = wanted.get(member.name.rpartition("/")[2])
                if found is None or not member.isfile():
                    continue
                corpus, language, rank = found
                stream = tar.extractfile(member)
                if stream is None or best.get((corpus.name, language), rank) < rank:
                    continue
                best[corpus.name, language] = rank
                _write_text(stream, member.name, output / f"{corpus.name}.{language}")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DownloadError(f"{archive} cannot be unpacked: {error}; remove it and fetch it again") from error
    for corpus in corpora:
        for language, names in corpus.files.items():
            if corpus.archive == archive.name and (corpus.name, language) not in best:
                raise TextError(f"{archive} has none of {', '.join(names)}; it is not the archive of {corpus.url}")


def _write_text(stream: IO[bytes], member: str, path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    damaged = 0
    with open(partial, "wb") as target:
        if member.endswith(".sgm"):
            target.writelines(f"{line}\n".encode() for line in read_sgm(stream.read().decode("utf-8", "replace")))
        else:
            for line in stream:
                text = line.rstrip(b"\n").decode("utf-8", "replace").encode("utf-8") + b"\n"
                damaged += text.rstrip(b"\n") != line.rstrip(b"\n")
                target.write(text)
    if damaged:
        say(f"{member}: {damaged} lines hold bytes that are no UTF-8, replaced by U+FFFD")
    os.replace(partial, path)


def check_counts(output: Path, corpora: Sequence[Corpus]) -> None:
    """Raise :class:`TextError` unless both sides of every corpus have the lines they should have."""
    for corpus in corpora:
        counts = {language: count_lines(output / f"{corpus.name}.{language}") for language in LANGUAGES}
        english, german = counts["en"], counts["de"]
        if english != german:
            raise TextError(f"{corpus.name}: {english} English and {german} German lines; the archive is damaged")
        difference = abs(english - corpus.lines)
        if english == 0 or difference > (0 if corpus.exact else corpus.lines // 100):
            raise TextError(
                f"{corpus.name}: expected {corpus.lines} lines, found {english} in {corpus.archive}; fetch it "
                f"again from {corpus.url}"
            )
        say(f"{corpus.name}: {english} pairs" + (f" (the shared task counts {corpus.lines})" if difference else ""))


def concatenate(output: Path) -> int:
    """Join the training corpora, in their order, into ``output/train.<language>``; return the number of pairs."""
    for language in LANGUAGES:
        partial = output / f"{TRAIN}.{language}.partial"
        with open(partial, "wb") as target:
            for corpus in TRAINING:
                with open(output / f"{corpus.name}.{language}", "rb") as source:
                    for line in source:
                        target.write(line)
        os.replace(partial, output / f"{TRAIN}.{language}")
    for corpus in TRAINING:
        for language in LANGUAGES:
            (output / f"{corpus.name}.{language}").unlink()
    return count_lines(output / f"{TRAIN}.{LANGUAGES[0]}")


def corpora_with_counts(counts_file: Optional[Path]) -> Tuple[Corpus, ...]:
    """Return all corpora; ``counts_file`` (JSON, ``{name: lines}``) replaces the expected numbers of lines."""
    corpora = TRAINING + EVALUATION
    if counts_file is None:
        return corpora
    counts = json.loads(counts_file.read_text(encoding="utf-8"))
    return tuple(Corpus(c.name, c.url, c.files, counts[c.name], True) for c in corpora)


def command_fetch(args: argparse.Namespace) -> None:
    """Obtain and verify the archives."""
    for url in archive_urls():
        obtain(url, args.archives, args.record, allow_download=not args.no_download)


def command_unpack(args: argparse.Namespace) -> None:
    """Unpack the archives, check the numbers of lines and join the training corpora."""
    corpora = corpora_with_counts(args.counts)
    for url in archive_urls():
        archive = args.archives / url.rpartition("/")[2]
        say(f"{archive.name}: unpacking")
        unpack(archive, args.output, [corpus for corpus in corpora if corpus.url == url])
    check_counts(args.output, corpora)
    say(f"training corpora joined: {concatenate(args.output)} pairs")


def command_tokenize(args: argparse.Namespace) -> None:
    """Tokenise all splits; the training text is cleaned before, dev and test sets are not."""
    transform_missing(
        [
            (
                args.input / f"{split}.{language}",
                args.output / f"{split}.{language}",
                TokenizerFactory(language, split == TRAIN),
            )
            for split in SPLITS
            for language in LANGUAGES
        ],
        args.processes,
        say,
    )


def command_learn_bpe(args: argparse.Namespace) -> None:
    """Learn joint merges on the training text of both languages."""
    merges = learn_bpe([args.input / f"{TRAIN}.{language}" for language in LANGUAGES], args.codes, args.merges)
    say(f"{merges} merges written to {args.codes}" + ("" if merges == args.merges else f" (asked for {args.merges})"))


def command_apply_bpe(args: argparse.Namespace) -> None:
    """Segment all splits."""
    factory = BpeFactory(str(args.codes))
    transform_missing(
        [
            (args.input / f"{split}.{language}", args.output / f"{split}.{language}", factory)
            for split in SPLITS
            for language in LANGUAGES
        ],
        args.processes,
        say,
    )


def command_clean(args: argparse.Namespace) -> None:
    """Keep the training pairs of sensible length."""
    read, kept = clean_corpus(args.input / TRAIN, args.input / f"{TRAIN}.clean", LANGUAGES)
    say(f"{kept} of {read} training pairs kept (3 to 150 pieces, ratio up to 1.5)")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="wmt16", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, function, *paths: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=function.__doc__)
        command.set_defaults(function=function)
        for path in paths:
            command.add_argument(path, type=Path, required=True, metavar="PATH")
        return command

    fetch = add("fetch", command_fetch, "--archives", "--record")
    fetch.add_argument("--no-download", action="store_true", help="use only archives that are there")
    add("unpack", command_unpack, "--archives", "--output").add_argument(
        "--counts",
        type=Path,
        metavar="FILE",
        help="JSON with the expected lines of each corpus (default: the real ones)",
    )
    learn = add("learn-bpe", command_learn_bpe, "--input", "--codes")
    learn.add_argument("--merges", type=int, default=32000)
    for command in (
        add("tokenize", command_tokenize, "--input", "--output"),
        add("apply-bpe", command_apply_bpe, "--input", "--codes", "--output"),
    ):
        command.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    add("clean", command_clean, "--input")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    args = build_parser().parse_args(argv)
    try:
        args.function(args)
    except (DownloadError, TextError, OSError) as error:
        print(f"wmt16: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
