"""The reports as data, and the options that several of them share."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from fairseq_mega.reports.results import read_results


class Report(NamedTuple):
    """A subcommand of ``python -m fairseq_mega.reports``; an OSError or ValueError of ``run`` is the user's."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the folder of result files, and whether they are those of a --smoke run."""
    parser.add_argument("results", type=Path, help="folder of result files")
    parser.add_argument("--smoke", action="store_true", help="read the results of a --smoke run")


def given_results(options: argparse.Namespace, benchmark: str) -> List[Dict[str, Any]]:
    """Read the results that the options of :func:`add_results` ask for."""
    return read_results(options.results, benchmark + ("-smoke" if options.smoke else ""))


def warn_of_smoke(options: argparse.Namespace, data: str = "made-up data") -> None:
    """Say below the numbers of a --smoke run that they mean nothing."""
    if options.smoke:
        print(f"SMOKE RUN on {data}: these numbers mean nothing")


def parse_setting(text: str) -> Tuple[str, str]:
    """Split NAME=VALUE.

    Raises:
        ValueError: if a part is missing.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"--setting {text!r}: write it as NAME=VALUE")
    return name, value
