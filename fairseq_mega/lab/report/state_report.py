"""The state of all recipes as a report."""

import argparse
from pathlib import Path

from fairseq_mega.lab.report.recipe_states import state_table, states
from fairseq_mega.lab.runs.report import Report, add_format
from fairseq_mega.lab.runs.text_tables import FORMATS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``recipes``."""
    parser.add_argument(
        "folders", type=Path, nargs="+", help="folders with results, for instance examples or outputs/lra"
    )
    add_format(parser)


def run(options: argparse.Namespace) -> None:
    """Print the table.

    Raises:
        FileNotFoundError: if a folder does not exist.
    """
    for folder in options.folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist: give one that contains results")
    print(FORMATS[options.format](state_table(states(options.folders))))


REPORT = Report("Print every recipe with the paper's value and ours, failed seeds, machine and data.", add_options, run)
