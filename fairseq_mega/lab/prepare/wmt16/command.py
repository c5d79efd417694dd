"""Prepare the WMT'16 English-German data: fetch, unpack, tokenise, byte-pair encode, clean.

Each step is a sub-command that leaves whole files or none, and that refuses a wrong number of lines.

    python -m fairseq_mega.lab.prepare.wmt16 fetch --archives DIR --record FILE
    python -m fairseq_mega.lab.prepare.wmt16 unpack --archives DIR --output RAW
    python -m fairseq_mega.lab.prepare.wmt16 tokenize --input RAW --output TOK
    python -m fairseq_mega.lab.prepare.wmt16 learn-bpe --input TOK --codes FILE
    python -m fairseq_mega.lab.prepare.wmt16 apply-bpe --input TOK --codes FILE --output BPE
    python -m fairseq_mega.lab.prepare.wmt16 clean --input BPE
"""

import argparse
import os
from pathlib import Path
from typing import Callable, Optional, Sequence

from fairseq_mega.cli.commands import Commands
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.wmt16.archives import obtain
from fairseq_mega.lab.prepare.wmt16.bpe import BpeFactory, learn_bpe
from fairseq_mega.lab.prepare.wmt16.length_filter import clean_corpus
from fairseq_mega.lab.prepare.wmt16.line_pool import transform_missing
from fairseq_mega.lab.prepare.wmt16.moses import TokenizerFactory
from fairseq_mega.lab.prepare.wmt16.sources import LANGUAGES, SPLITS, TRAIN, archive_urls, corpora_with_counts
from fairseq_mega.lab.prepare.wmt16.texts import check_counts, concatenate, unpack
from fairseq_mega.lab.prepare.wmt16.toy_data import write_archives


def command_make_up(args: argparse.Namespace) -> None:
    """Write small archives of an invented language pair in place of the real ones, to try all steps."""
    write_archives(args.output)


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
    )


def command_clean(args: argparse.Namespace) -> None:
    """Keep the training pairs of sensible length."""
    read, kept = clean_corpus(args.input / TRAIN, args.input / f"{TRAIN}.clean", LANGUAGES)
    say(f"{kept} of {read} training pairs kept (3 to 150 pieces, ratio up to 1.5)")


def build_commands() -> Commands:
    """Return the parser of the command line."""
    commands = Commands("wmt16", __doc__)

    def add(name: str, function: Callable[[argparse.Namespace], None], *paths: str) -> argparse.ArgumentParser:
        command = commands.add(name, function)
        for path in paths:
            command.add_argument(path, type=Path, required=True, metavar="PATH")
        return command

    add("make-up", command_make_up, "--output")
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
    return commands


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    return build_commands().run(argv)
