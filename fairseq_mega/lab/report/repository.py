"""The options of fairseq-mega-report for a whole checkout: its documents, and a page with all results."""

import argparse
import sys
from pathlib import Path

from fairseq_mega.lab.report.documents.filling import differences, write
from fairseq_mega.lab.report.documents.pictures import draw_outdated, outdated
from fairseq_mega.lab.report.page import write_page


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--write``, ``--check`` and ``--html``, and the options for their input."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write tables, numbers and pictures of all documents again")
    what.add_argument(
        "--check", action="store_true", help="fail if a table, number or picture differs from its results"
    )
    what.add_argument("--html", type=Path, metavar="FILE", help="write one page with all results")
    parser.add_argument(
        "--root", type=Path, default=Path(), help="checkout with the documents (default: the current folder)"
    )
    runs = "also read results and logs of fairseq-mega-reproduce, for --html"
    parser.add_argument("--runs", type=Path, action="append", default=[], metavar="FOLDER", help=runs)


def run(options: argparse.Namespace) -> int:
    """Carry out the options; return the exit status, 1 if a document differs.

    Raises:
        OSError, ValueError: with messages for the user.
    """
    if options.html is not None:
        write_page(options.html, options.root, options.runs)
        print(f"page: {options.html}")
        return 0
    if options.write:
        for path in [*write(options.root), *draw_outdated(options.root)]:
            print(f"changed: {path}")
        return 0
    found = [*differences(options.root), *outdated(options.root)]
    print("\n".join(found or ["all tables and numbers are those of their results"]))
    if found:
        remedy = "run fairseq-mega-report --write"
        print(f"{len(found)} rows, numbers and pictures differ: {remedy}", file=sys.stderr)
    return 1 if found else 0
