"""One HTML page with all results, which requires no other file and no server."""

import base64
import html
import re
import shlex
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.report.documents import documents, fill
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.recipe_states import benchmark_table, states
from fairseq_mega.lab.runs.environment import git_revision
from fairseq_mega.lab.runs.provenance import provenance, revision_of
from fairseq_mega.lab.runs.results import Result, read_result
from fairseq_mega.lab.runs.text_tables import Table

STYLE = Path(__file__).with_name("page.css")
SECTIONS = {
    "benchmarks": "Benchmarks",
    "tables": "The papers' tables",
    "measured": "Measured here",
}
LONGEST_NUMBER = 22  # characters; longer cells are treated as words


def cell(text: str) -> str:
    """Return a cell of Markdown: bold, code, and the text of a link, whose target is not part of the page."""
    text = html.escape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def table(found: Table) -> str:
    """Return a table that scrolls separately on a narrow screen; words are aligned left, numbers right.

    Columns of code after the first have a class of their own, so that a narrow screen can omit them.
    """
    columns = [[row[column] for row in found.rows] for column in range(len(found.columns))]
    kinds = [' class="text"' if max(map(len, texts)) > LONGEST_NUMBER else "" for texts in columns]
    for number, texts in enumerate(columns):
        if number and all(text.startswith("`") for text in texts):
            kinds[number] = ' class="text code"'
    heads = "".join(f'<th scope="col"{kind}>{cell(text)}</th>' for kind, text in zip(kinds, found.columns))
    rows = []
    for first, *others in found.rows:
        under = ' class="below"' if first.startswith("  ") else ""
        cells = "".join(f"<td{kind}>{cell(text)}</td>" for kind, text in zip(kinds[1:], others))
        rows.append(f'<tr><th scope="row"{under}>{cell(first)}</th>{cells}</tr>')
    body = "\n".join(rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def picture(path: Path, title: str) -> str:
    """Return a PNG as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = html.escape(title)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def folded(title: str, text: str) -> str:
    """Return the HTML of a text that a click on its title shows."""
    return f"<details><summary>{html.escape(title)}</summary>\n{text}\n</details>"


def write_page(output: Path, root: Path, runs: Sequence[Path]) -> None:
    """Write the page of a checkout and of some folders of runs.

    Raises:
        OSError, ValueError: if results are missing or damaged.
    """
    for folder in runs:
        if not folder.is_dir():
            raise FileNotFoundError(f"--runs {folder} does not exist: give the folder of fairseq-mega-reproduce")
    found = states([root / "examples", *runs])
    results = [result for state in found for result in state.results]
    origins = [folded("Every result", table(provenance(results)))] if results else []
    parts = [[table(benchmark_table(found)), *origins], paper_tables(results), measured(root)]
    sections = []
    for (name, title), content in zip(SECTIONS.items(), parts):
        sections.append("\n".join([f'<section id="{name}">\n<h2>{html.escape(title)}</h2>', *content]) + "\n</section>")
    links = " ".join(f'<a href="#{name}">{title}</a>' for name, title in SECTIONS.items())
    revision = revision_of({"git_revision": git_revision(root)})
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>fairseq_mega: results</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>\n"
        f"<h1>fairseq_mega: results</h1>\n<p>MEGA and MEGALODON, revision {revision}.</p>\n<nav>{links}</nav>\n"
        + "\n".join(sections)
        + "\n</body></html>\n",
        encoding="utf-8",
    )


def paper_tables(results: Sequence[Result]) -> List[str]:
    """Return the tables of both papers, with the papers' values and ours."""
    note = "<p>The paper: means of 5 seeds. Measured: the checkpoint of best validation score; * fewer updates.</p>"
    return [note, *(f"<h3>{one.title}</h3>\n{table(one.of_recipes(results))}" for one in PAPER_TABLES.values())]


def measured(root: Path) -> List[str]:
    """Return the tables and pictures of all documents under the words of their markers, each with its results."""
    parts = []
    for document in map(fill, documents(root)):
        shown = [place for place in document.places if not place.call.startswith("benchmarks ")]
        parts += [f"<h3>{document.file.relative_to(root)}</h3>"] if shown else []
        for call, made in shown:
            name, *words = shlex.split(call)
            parts += [f"<h4>{html.escape(name.replace('-', ' '))}</h4>", table(made)]
            files = [document.file.parent / word for word in words if word.endswith(".json")]
            sources = [read_result(file) for file in files if name != "planted-defects"]
            parts += [folded("measured with", table(provenance(sources)))] if sources else []
        parts += [picture(one.file, one.words) for one in document.pictures]
    return parts
