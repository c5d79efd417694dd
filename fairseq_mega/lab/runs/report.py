"""The form of a report, and the options that several reports share."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from fairseq_mega.lab.runs.provenance import provenance
from fairseq_mega.lab.runs.results import GIVEN, changes_of, is_trained_here, read_results
from fairseq_mega.lab.runs.text_tables import FORMATS, Table


class Report(NamedTuple):
    """A subcommand of ``fairseq-mega-report``; an OSError or ValueError of ``run`` is an error of the user."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    drawn: bool = False  # whether it draws a picture to --output


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the options of result files: their folder, and --smoke."""
    parser.add_argument("results", type=Path, help="folder of result files, or one file")
    parser.add_argument("--smoke", action="store_true", help="read the results of a --smoke run")
    parser.add_argument("--format", choices=list(FORMATS), default="terminal", help="(default: %(default)s)")


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Add the options of a figure of result files: those of :func:`add_results`, and its image."""
    add_results(parser)
    parser.add_argument("--output", type=Path, required=True, help="image to write")


def show(
    options: argparse.Namespace,
    tables: Sequence[Table],
    results: Sequence[Dict[str, Any]] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print tables in the requested form, notes, and the origin of the results."""
    form = FORMATS[options.format]
    parts = [*map(form, tables), "\n".join([*notes, *other_settings(results)])]
    print("\n\n".join(filter(None, [*parts, form(provenance(results)) if results else ""])))


def other_settings(results: Sequence[Dict[str, Any]]) -> List[str]:
    """Return the differences from the recipe: changes of trainings, and options of weights from elsewhere."""
    given = [
        (result["settings"]["recipe"], result["settings"][GIVEN]) for result in results if not is_trained_here(result)
    ]
    lines = [
        f"{about['source']}, {recipe}: {'; '.join(about['differs'])}" for recipe, about in given if about.get("differs")
    ]
    for result in filter(changes_of, results):
        done = "trained" if is_trained_here(result) else "scored"
        lines.append(f"{result['settings'].get('recipe', result['label'])}: {done} with {changes_of(result)}")
    return list(dict.fromkeys(lines))


def selected_results(options: argparse.Namespace, benchmark: str) -> List[Dict[str, Any]]:
    """Read the results of trainings that the options of :func:`add_results` select."""
    return list(filter(is_trained_here, all_results(options, benchmark)))


def all_results(options: argparse.Namespace, benchmark: str) -> List[Dict[str, Any]]:
    """Read the results that the options select, including those of weights that were trained elsewhere."""
    return read_results(options.results, benchmark_read(options, benchmark))


def benchmark_read(options: argparse.Namespace, benchmark: str) -> str:
    """Return the name of a benchmark in its result files."""
    return benchmark + ("-smoke" if options.smoke else "")


def warn_of_smoke(smoke: bool) -> None:
    """Print below the numbers of a --smoke run that the numbers are meaningless."""
    if smoke:
        print("SMOKE RUN on invented data: these numbers are meaningless")
