"""Tables and plots of result files, the scores of translations, and the tables of the documentation.

fairseq-mega-report --check                           # compare every table of the documentation with its results
fairseq-mega-report --write                           # write the tables again
fairseq-mega-report --html page.html                  # all results on one page
fairseq-mega-report table2 results --format markdown  # one REPORT; each has its own --help
"""

import argparse
import sys
from typing import Dict, Optional, Sequence

from fairseq_mega.cli.commands import add_described, failure
from fairseq_mega.lab.benchmarks import kernels_report as kernels
from fairseq_mega.lab.evaluate import translations
from fairseq_mega.lab.report import (
    classifiers,
    curves,
    decoding,
    figure4,
    figure5,
    figure6,
    language_models,
    megalodon_figure1,
    megalodon_figure4,
    megalodon_figure5,
    miniature,
    pathfinder_page,
    quickstart,
    repository,
    state_report,
)
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.table1 import TABLE1
from fairseq_mega.lab.runs.report import Report

PROGRAM = "fairseq-mega-report"
REPORTS: Dict[str, Report] = {
    "recipes": state_report.REPORT,
    "table1": TABLE1.report,
    **{name: table.report for name, table in PAPER_TABLES.items()},
    "figure4": figure4.REPORT,
    "figure5": figure5.REPORT,
    "figure6": figure6.REPORT,
    "megalodon-figure1": megalodon_figure1.REPORT,
    "megalodon-figure4": megalodon_figure4.REPORT,
    "megalodon-figure5": megalodon_figure5.REPORT,
    "miniature": miniature.REPORT,
    "curves": curves.REPORT,
    "classifiers": classifiers.REPORT,
    "language-models": language_models.REPORT,
    "quickstart": quickstart.REPORT,
    "kernels": kernels.REPORT,
    "decoding": decoding.REPORT,
    "pathfinder-page": pathfinder_page.REPORT,
    "translations": translations.REPORT,
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all reports."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    repository.add_options(parser)
    commands = parser.add_subparsers(dest="report", metavar="REPORT")
    for name, report in REPORTS.items():
        add_described(commands, name, report.description, report.add_options)
    return parser


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run a report; return the exit status, 1 after an error message or if a document differs."""
    parser = build_parser()
    options = parser.parse_args(given)
    options.given = list(sys.argv[1:] if given is None else given)
    wanted = options.write or options.check or options.html is not None
    if wanted == (options.report is not None):
        parser.error("give one of --check, --write, --html FILE, or the name of a REPORT (--help lists them)")
    try:
        if wanted:
            return repository.run(options)
        REPORTS[options.report].run(options)
    except (OSError, ValueError) as error:
        return failure(options.report or PROGRAM, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
