"""The whole page: one file that requires no other file and no server."""

import html
import tempfile
from itertools import groupby
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.report.documents.filling import documents, places_of
from fairseq_mega.lab.report.documents.markers import titles
from fairseq_mega.lab.report.documents.pictures import drawn
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.recipe_states import Result, State, benchmark_table, state_table, states
from fairseq_mega.lab.runs.environment import git_revision
from fairseq_mega.lab.runs.provenance import provenance, revision_of
from fairseq_mega.lab.runs.results import read_result

from .figures import figures, training_curves
from .parts import folded, picture, section, table

STYLE = Path(__file__).with_name("style.css")
SECTIONS = {
    "benchmarks": "Benchmarks",
    "tables": "The papers' tables",
    "figures": "The papers' figures",
    "curves": "Training curves",
    "measured": "Measured here",
}


def write_page(output: Path, root: Path, runs: Sequence[Path]) -> None:
    """Write the page of a checkout and of some folders of runs.

    Raises:
        OSError, ValueError: if results are missing or damaged.
    """
    for folder in runs:
        if not folder.is_dir():
            raise FileNotFoundError(f"--runs {folder} does not exist: give the folder of fairseq-mega-reproduce")
    documents(root)  # raises unless the folder is a checkout
    found = states([root / "examples", *runs])
    results = [result for state in found for result in state.results]
    with tempfile.TemporaryDirectory() as work:
        parts = {
            "benchmarks": benchmarks(found, results),
            "tables": paper_tables(results),
            "figures": figures(results, Path(work)),
            "curves": training_curves(runs, Path(work)),
            "measured": measured(root),
        }
    content = "\n".join(section(name, title, *parts[name]) for name, title in SECTIONS.items())
    links = " ".join(f'<a href="#{name}">{title}</a>' for name, title in SECTIONS.items())
    revision = revision_of({"git_revision": git_revision(root)})
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>fairseq_mega: results</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>\n"
        f"<h1>fairseq_mega: results</h1>\n<p>MEGA and MEGALODON, revision {revision}.</p>\n<nav>{links}</nav>\n"
        f"{content}\n</body></html>\n",
        encoding="utf-8",
    )


def benchmarks(found: Sequence[State], results: Sequence[Result]) -> List[str]:
    """Return the HTML of the progress of each benchmark and recipe, and of the origin of each result."""
    parts = [table(benchmark_table(found)), folded("Every recipe", table(state_table(found)))]
    return parts + ([folded("Every result", table(provenance(results)))] if results else [])


def paper_tables(results: Sequence[Result]) -> List[str]:
    """Return the tables of both papers, with the papers' values and ours."""
    note = "<p>The paper: means of 5 seeds. Measured: the checkpoint of best validation score; * fewer updates.</p>"
    return [note, *(f"<h3>{one.title}</h3>\n{table(one.of_recipes(results))}" for one in PAPER_TABLES.values())]


def measured(root: Path) -> List[str]:
    """Return the tables and plots of all documents, each with its results."""
    parts, pictures = [], list(drawn(root))
    for document, places in groupby(places_of(root), lambda place: place.document):
        names = titles(document.read_text(encoding="utf-8"))
        shown = [(title, place) for title, place in zip(names, places) if place.call.name != "benchmarks"]
        parts += [f"<h3>{document.relative_to(root)}</h3>"] if shown else []
        for title, place in shown:
            parts.append(f"<h4>{html.escape(title)}</h4>")
            parts.append(table(place.table))
            files = [document.parent / word for word in place.call.words if word.endswith(".json")]
            sources = [read_result(file) for file in files if place.call.name != "planted-defects"]
            if sources:
                parts.append(folded("measured with", table(provenance(sources))))
        parts += [picture(one.file, one.words) for one in pictures if one.document == document]
    return parts
