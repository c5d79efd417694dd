"""One HTML page with all results, which requires no other file and no server."""

import base64
import html
import re
import shlex
import tempfile
from pathlib import Path
from typing import Callable, Dict, List, Sequence

from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.report.documents import BEGIN, documents, fill
from fairseq_mega.lab.report.figures import figure4, figure5, figure6, plot_figure6
from fairseq_mega.lab.report.paper_table import FULL, of_folders
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.pictures import draw_curves
from fairseq_mega.lab.report.recipe_states import Result, State, benchmark_table, state_table, states
from fairseq_mega.lab.runs.environment import git_revision
from fairseq_mega.lab.runs.plotting import draw_panels, load_pyplot
from fairseq_mega.lab.runs.provenance import provenance, revision_of
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table

STYLE = Path(__file__).with_name("page.css")
SECTIONS = {
    "benchmarks": "Benchmarks",
    "tables": "The papers' tables",
    "figures": "The papers' figures",
    "curves": "Training curves",
    "measured": "Measured here",
}
TITLE = re.compile(r"#+ (?P<heading>.+)|\*\*(?P<bold>[^*]+)\*\*")
LONGEST_NUMBER = 22  # characters; longer cells are treated as words
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
SVG = {"svg.fonttype": "none", "svg.hashsalt": "fairseq_mega"}  # text as text is smaller and can be searched


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
    """Return an image as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = html.escape(title)
    source = f"data:{TYPES[path.suffix]};base64,{data}"
    return f'<figure><img alt="{text}" src="{source}"><figcaption>{text}</figcaption></figure>'


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
    with tempfile.TemporaryDirectory() as work, load_pyplot().rc_context(SVG):
        parts = [
            benchmarks(found, results),
            paper_tables(results),
            paper_figures(results, Path(work)),
            training_curves(runs, Path(work)),
        ]
    sections = []
    for (name, title), content in zip(SECTIONS.items(), [*parts, measured(root)]):
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


def benchmarks(found: Sequence[State], results: Sequence[Result]) -> List[str]:
    """Return the HTML of the progress of each benchmark and recipe, and of the origin of each result."""
    parts = [table(benchmark_table(found)), folded("Every recipe", table(state_table(found)))]
    return parts + ([folded("Every result", table(provenance(results)))] if results else [])


def paper_tables(results: Sequence[Result]) -> List[str]:
    """Return the tables of both papers, with the papers' values and ours."""
    note = "<p>The paper: means of 5 seeds. Measured: the checkpoint of best validation score; * fewer updates.</p>"
    return [note, *(f"<h3>{one.title}</h3>\n{table(one.of_recipes(results))}" for one in PAPER_TABLES.values())]


def draw_figure6(results: Sequence[Result], output: Path) -> None:
    """Draw Figure 6; raises ValueError without results."""
    (recipe, *_) = find("figure6")
    left, right = recipe.evaluate["contexts"]
    own = [result for result in results if result["settings"]["recipe"] == recipe.name]
    context, chunks = figure6(own, left["chunk_size"][0], right["segments"][0])
    if not context or not chunks:
        raise ValueError("no result of Figure 6")
    plot_figure6(context, chunks, output)


def paper_figures(results: Sequence[Result], work: Path) -> List[str]:
    """Return each figure as a picture, or the reason of its absence, as HTML; ``work`` is a temporary folder."""
    arena = of_folders(PAPER_TABLES["table2"].recipes, results)
    figures: Dict[str, Callable[[Path], None]] = {
        "Figure 4: accuracy over the moving average's dimensions and over the chunk": (
            lambda output: draw_panels(figure4(arena, FULL).panels, output)
        ),
        "Figure 5: validation curves on Pathfinder": lambda output: draw_panels(figure5(arena, FULL).panels, output),
        "Figure 6: perplexity over the context and over the chunk": lambda output: draw_figure6(results, output),
    }
    parts = []
    for number, (title, draw) in enumerate(figures.items()):
        output = work / f"figure{number}.svg"
        try:
            draw(output)
            parts.append(picture(output, title))
        except ValueError as error:
            parts.append(f"<h3>{title}</h3>\n<p>Not run yet: {error}.</p>")
    return parts


def training_curves(folders: Sequence[Path], work: Path) -> List[str]:
    """Return the curves of all trainings below some folders as HTML."""
    logs = sorted(log for folder in folders for log in folder.rglob("train.log"))
    if not logs:
        return ["<p>No log of a training was passed (--runs FOLDER).</p>"]
    output = work / "curves.svg"
    try:
        draw_curves(logs, output)
    except ValueError as error:
        return [f"<p>{html.escape(str(error))}.</p>"]
    return [picture(output, "Training curves")]


def titles(text: str) -> List[str]:
    """Return a title for each generated table: the words in bold at the head of a paragraph above it, or a heading."""
    found, title = [], ""
    for line in text.splitlines():
        named = TITLE.match(line)
        if line.startswith(BEGIN):
            found.append(title)
        elif named is not None:
            title = (named["heading"] or named["bold"]).replace("`", "").strip().rstrip(".:")
    return found


def measured(root: Path) -> List[str]:
    """Return the tables and plots of all documents, each with its results."""
    parts = []
    for document in map(fill, documents(root)):
        shown = [pair for pair in zip(titles(document.old), document.places) if pair[1].call.split()[0] != "benchmarks"]
        parts += [f"<h3>{document.file.relative_to(root)}</h3>"] if shown else []
        for title, (call, made) in shown:
            parts += [f"<h4>{html.escape(title)}</h4>", table(made)]
            files = [document.file.parent / word for word in shlex.split(call) if word.endswith(".json")]
            sources = [read_result(file) for file in files if not call.startswith("planted-defects ")]
            parts += [folded("measured with", table(provenance(sources)))] if sources else []
        parts += [picture(one.file, one.words) for one in document.pictures]
    return parts
