"""Prepare parallel text for translation: clean and split it, and cut it into subwords.

python -m fairseq_mega.lab.prepare.translation help-pages --packages DIR --output TEXT
python -m fairseq_mega.lab.prepare.translation own-text --text PREFIX --source-lang en --target-lang de --output TEXT
python -m fairseq_mega.lab.prepare.translation subwords --text TEXT --source-lang en --target-lang de --output PIECES
"""

import argparse
from pathlib import Path
from typing import Optional, Sequence

from fairseq_mega.cli.commands import Commands
from fairseq_mega.data.text_cleaning import SENTENCES, write_steps
from fairseq_mega.lab.prepare.progress import Progress
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.translation.corpus import Corpus, add_names, clean_pages, leak_key, own_corpus
from fairseq_mega.lab.prepare.translation.help_corpus import HelpCorpus
from fairseq_mega.lab.prepare.translation.parallel_files import describe_dropped, read_pairs, write_corpus
from fairseq_mega.lab.prepare.translation.subwords import command_subwords


def command_help_pages(options: argparse.Namespace) -> None:
    """Make train, valid and test text from the unpacked LibreOffice help packages."""
    help_corpus = HelpCorpus(options.packages, options.source_folder, options.target_folder)
    corpus = clean_pages(Progress("reading", "help pages", len(help_corpus)).follow(help_corpus))
    add_names(corpus, help_corpus.names)
    write_corpus(corpus, options.output, options.source_lang, options.target_lang, options.limit)
    write_steps(options.output, SENTENCES)
    statistics = help_corpus.statistics
    print(
        f"help pages in both languages: {statistics.pages_paired} "
        f"(in one only: {statistics.pages_of_one_language}); "
        f"paragraphs paired: {statistics.paragraphs_paired} "
        f"(without a partner: {statistics.paragraphs_unpaired})"
    )
    print(f"pairs dropped: {describe_dropped(corpus)}")
    print(f"sentence pairs: {describe_splits(corpus)}")


def command_own_text(options: argparse.Namespace) -> None:
    """Make train, valid and test text from your own parallel text (PREFIX.<source> and PREFIX.<target>)."""
    train, valid, test = (
        None if prefix is None else read_pairs(prefix, options.source_lang, options.target_lang)
        for prefix in (options.text, options.valid, options.test)
    )
    assert train is not None
    corpus = own_corpus(train, valid, test, options.held_out)
    write_corpus(corpus, options.output, options.source_lang, options.target_lang, options.limit)
    write_steps(options.output, SENTENCES)
    learnt = {leak_key(pair.source) for pair in corpus.splits["train"]}
    for name, given in (("valid", valid), ("test", test)):
        known = sum(leak_key(pair.source) in learnt for pair in given or ())
        empty = sum(not all(pair) for pair in given or ())
        if known:
            print(f"note: sources of --{name} that --text holds as well, which makes the score better: {known:,}")
        if empty:
            print(f"note: pairs of --{name} that have an empty side, and are scored all the same: {empty:,}")
    print(f"pairs read: {len(train)}; dropped: {describe_dropped(corpus)}")
    print(f"sentence pairs: {describe_splits(corpus)}")


def describe_splits(corpus: Corpus) -> str:
    """Return the number of pairs in each split."""
    return ", ".join(f"{name} {len(corpus.splits[name])}" for name in SPLITS)


def build_commands() -> Commands:
    """Return the parser of the command line."""
    commands = Commands("translation", __doc__)
    pages, own = commands.add("help-pages", command_help_pages), commands.add("own-text", command_own_text)
    subwords = commands.add("subwords", command_subwords)
    pages.add_argument(
        "--packages", type=Path, required=True, help="folder the packages were unpacked into (holds usr/)"
    )
    pages.add_argument("--source-folder", default="en-US", help="folder of the source language in the packages")
    pages.add_argument("--target-folder", default="de", help="folder of the target language in the packages")
    own.add_argument("--text", required=True, metavar="PREFIX", help="text to learn from, one sentence per line")
    own.add_argument("--valid", metavar="PREFIX", help="validation text (default: held out from the end of --text)")
    own.add_argument("--test", metavar="PREFIX", help="test text (default: held out from the end of --text)")
    own.add_argument("--held-out", type=int, help="pairs held out per split (default: a twentieth, 1000 at most)")
    for command in (pages, own):
        command.add_argument("--output", type=Path, required=True, help="folder to write <split>.<language> to")
        command.add_argument("--limit", type=int, help="keep so many training pairs only (a twentieth of it held out)")
    subwords.add_argument("--text", type=Path, required=True, help="folder with <split>.<lang> of every split")
    subwords.add_argument("--output", type=Path, required=True, help="folder to write the same files to, as pieces")
    subwords.add_argument("--vocab-size", type=int, default=8000, help="number of pieces (fewer for a small text)")
    subwords.add_argument("--model", type=Path, help="use this sentencepiece model and train none")
    subwords.add_argument("--max-train-pieces", type=int, default=250, help="leave longer training pairs out")
    subwords.add_argument("--max-pieces", type=int, default=1000, help="longest line of valid and test")
    for command in (pages, own, subwords):
        known = {"source": "en", "target": "de"} if command is pages else {}
        for side in ("source", "target"):
            command.add_argument(
                f"--{side}-lang", default=known.get(side), required=not known, help=f"ending of the {side} files"
            )
    return commands


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    return build_commands().run(argv)
