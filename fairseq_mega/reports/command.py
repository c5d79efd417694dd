"""Tables and plots of result files, and the scores of translations."""

import argparse
import sys
from typing import Dict, Optional, Sequence

from fairseq_mega.reports import (
    classifiers,
    curves,
    decoding,
    figure4,
    figure5,
    figure6,
    kernels,
    language_models,
    lra_tables,
    megalodon_classifiers,
    megalodon_language_models,
    miniature,
    pathfinder_page,
    state_report,
    table1,
    table5,
    table7,
    translations,
)
from fairseq_mega.reports.report import Report

REPORTS: Dict[str, Report] = {
    "recipes": state_report.REPORT,
    "table1": table1.REPORT,
    "table2": lra_tables.TABLE2,
    "table3": lra_tables.TABLE3,
    "table4": lra_tables.TABLE4,
    "table5": table5.REPORT,
    "table7": table7.REPORT,
    "figure4": figure4.REPORT,
    "figure5": figure5.REPORT,
    "figure6": figure6.REPORT,
    "megalodon-table5": megalodon_language_models.TABLE5,
    "megalodon-table6": megalodon_classifiers.TABLE6,
    "megalodon-table7": megalodon_classifiers.TABLE7,
    "megalodon-table8": megalodon_language_models.TABLE8,
    "megalodon-figure5": megalodon_language_models.FIGURE5,
    "miniature": miniature.REPORT,
    "curves": curves.REPORT,
    "classifiers": classifiers.REPORT,
    "language-models": language_models.REPORT,
    "kernels": kernels.REPORT,
    "decoding": decoding.REPORT,
    "pathfinder-page": pathfinder_page.REPORT,
    "translations": translations.REPORT,
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all reports."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_mega.reports", description=__doc__)
    commands = parser.add_subparsers(dest="report", required=True, metavar="REPORT")
    for name, report in REPORTS.items():
        first = report.description.splitlines()[0]
        form = argparse.RawDescriptionHelpFormatter
        report.add_options(commands.add_parser(name, help=first, description=report.description, formatter_class=form))
    return parser


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run a report; returns the exit status, 1 after an error message."""
    options = build_parser().parse_args(given)
    options.given = list(sys.argv[1:] if given is None else given)
    try:
        REPORTS[options.report].run(options)
    except (OSError, ValueError) as error:
        print(f"{options.report}: error: {error}", file=sys.stderr)
        return 1
    return 0
