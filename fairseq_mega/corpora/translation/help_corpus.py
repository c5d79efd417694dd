"""Make train, valid and test text from the unpacked LibreOffice help packages."""

import argparse
import sys
import time
from pathlib import Path
from typing import Iterator, List, Optional

from fairseq_mega.corpora.libreoffice_help import HelpCorpus, PagePair
from fairseq_mega.corpora.translation.parallel_files import describe_dropped, write_corpus
from fairseq_mega.corpora.translation.parallel_text import SPLITS, clean_pages


def _with_progress(help_corpus: HelpCorpus, seconds: float = 10.0) -> Iterator[PagePair]:
    """Pass the pages on, with a line on stderr every few seconds."""
    total, last = len(help_corpus), time.monotonic()
    for number, page in enumerate(help_corpus, start=1):
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            print(f"  {number} of {total} help pages read", file=sys.stderr, flush=True)
        yield page


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="prepare_help_corpus", description=__doc__)
    parser.add_argument(
        "--packages", type=Path, required=True, help="folder the packages were unpacked into (holds usr/)"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write <split>.<language> to")
    parser.add_argument("--source-lang", default="en", help="ending of the source files")
    parser.add_argument("--target-lang", default="de", help="ending of the target files")
    parser.add_argument("--source-folder", default="en-US", help="folder of the source language in the packages")
    parser.add_argument("--target-folder", default="de", help="folder of the target language in the packages")
    parser.add_argument("--limit", type=int, help="keep this many training pairs only (a twentieth of it held out)")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = build_parser().parse_args(arguments)
    try:
        help_corpus = HelpCorpus(options.packages, options.source_folder, options.target_folder)
        corpus = clean_pages(_with_progress(help_corpus))
        write_corpus(corpus, options.output, options.source_lang, options.target_lang, options.limit)
    except (OSError, ValueError) as error:
        print(f"prepare_help_corpus: error: {error}", file=sys.stderr)
        return 1
    statistics = help_corpus.statistics
    print(
        f"help pages in both languages: {statistics.pages_paired} "
        f"(in one only: {statistics.pages_of_one_language}); "
        f"paragraphs paired: {statistics.paragraphs_paired} "
        f"(without a partner: {statistics.paragraphs_unpaired})"
    )
    print(f"pairs dropped: {describe_dropped(corpus)}")
    print("sentence pairs: " + ", ".join(f"{name} {len(corpus.splits[name])}" for name in SPLITS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
