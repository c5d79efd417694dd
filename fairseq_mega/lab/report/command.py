"""Tables and plots of result files, the scores of translations, and the tables of the documentation.

fairseq-mega-report --check                           # compare every table of the documentation with its results
fairseq-mega-report --write                           # write the tables again
fairseq-mega-report --html page.html                  # all results on one page
fairseq-mega-report table2 results --format markdown  # one REPORT; each has its own --help
"""

import argparse
import sys
from pathlib import Path
from typing import Dict, Optional, Sequence

from fairseq_mega.cli.commands import add_described, failure
from fairseq_mega.lab.evaluate import translations
from fairseq_mega.lab.report import comparisons, figures, pictures
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.report import Report

PROGRAM = "fairseq-mega-report"
REPORTS: Dict[str, Report] = {
    **{name: table.report for name, table in PAPER_TABLES.items()},
    **figures.REPORTS,
    **comparisons.REPORTS,
    **pictures.REPORTS,
    "translations": translations.REPORT,
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all reports."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write tables, numbers and pictures of all documents again")
    about = "fail if a table, number or picture differs from its results"
    what.add_argument("--check", action="store_true", help=about)
    what.add_argument("--html", type=Path, metavar="FILE", help="write one page with all results")
    about = "checkout with the documents (default: the current folder)"
    parser.add_argument("--root", type=Path, default=Path(), help=about)
    about = "also read results of fairseq-mega-reproduce, for --html"
    parser.add_argument("--runs", type=Path, action="append", default=[], metavar="FOLDER", help=about)
    commands = parser.add_subparsers(dest="report", metavar="REPORT")
    for name, report in REPORTS.items():
        add_described(commands, name, report.description, report.add_options)
    return parser


def of_checkout(options: argparse.Namespace) -> int:
    """Write or compare the documents of a checkout, or write its page; return the exit status, 1 after a difference."""
    from fairseq_mega.lab.report import documents, page  # and torch, fairseq and matplotlib

    if options.html is not None:
        page.write_page(options.html, options.root, options.runs)
        print(f"page: {options.html}")
    elif options.write:
        for path in documents.write(options.root):
            print(f"changed: {path}")
    else:
        found = documents.differences(options.root)
        print("\n".join(found or ["all tables and numbers are those of their results"]))
        if found:
            print("tables, numbers or pictures differ: run fairseq-mega-report --write", file=sys.stderr)
            return 1
    return 0


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run a report; return the exit status, 1 after an error message or if a document differs."""
    parser = build_parser()
    options = parser.parse_args(given)
    options.given = list(sys.argv[1:] if given is None else given)
    whole = options.write or options.check or options.html is not None
    if whole == (options.report is not None):
        parser.error("give one of --check, --write, --html FILE, or the name of a REPORT (--help lists them)")
    try:
        if whole:
            return of_checkout(options)
        REPORTS[options.report].run(options)
    except (OSError, ValueError) as error:
        return failure(options.report or PROGRAM, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
