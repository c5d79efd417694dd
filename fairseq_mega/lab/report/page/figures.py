"""The papers' figures and training curves for the page, as far as there are results."""

import html
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.report import curves, figure4, figure5, figure6
from fairseq_mega.lab.report.lra_tables import RECIPES
from fairseq_mega.lab.report.paper_table import below
from fairseq_mega.lab.report.recipe_states import Result
from fairseq_mega.lab.runs.plotting import load_pyplot

from .parts import picture

FULL = -1


def draw_figure4(results: Sequence[Result], output: Path) -> None:
    """Figure 4; raises ValueError without results."""
    figure4.figure4(below(RECIPES, results), FULL, output)


def draw_figure5(results: Sequence[Result], output: Path) -> None:
    """Figure 5; raises ValueError without results."""
    figure5.figure5(below(RECIPES, results), FULL, output)


def draw_figure6(results: Sequence[Result], output: Path) -> None:
    """Figure 6; raises ValueError without results."""
    (recipe, *_) = find("figure6")
    left, right = recipe.evaluate["contexts"]
    own = [result for result in results if result["settings"]["recipe"] == recipe.name]
    context, chunks = figure6.curves(own, left["chunk_size"][0], right["segments"][0])
    if not context or not chunks:
        raise ValueError("no result of Figure 6")
    figure6.plot(context, chunks, output)


FIGURES: Dict[str, Callable[[Sequence[Result], Path], None]] = {
    "Figure 4: accuracy over the moving average's dimensions and over the chunk": draw_figure4,
    "Figure 5: validation curves on Pathfinder": draw_figure5,
    "Figure 6: perplexity over the context and over the chunk": draw_figure6,
}


def figures(results: Sequence[Result], work: Path) -> List[str]:
    """Return each figure as a picture, or the reason of its absence, as HTML; ``work`` is a temporary folder."""
    parts = []
    for number, (title, draw) in enumerate(FIGURES.items()):
        output = work / f"figure{number}.svg"
        try:
            with readable_text():
                draw(results, output)
        except ValueError as error:
            parts.append(f"<h3>{title}</h3>\n<p>Not run yet: {error}.</p>")
        else:
            parts.append(picture(output, title))
    return parts


def training_curves(folders: Sequence[Path], work: Path) -> List[str]:
    """Return the curves of all trainings below some folders as HTML."""
    logs = sorted(log for folder in folders for log in folder.rglob("train.log"))
    if not logs:
        return ["<p>No log of a training was given (--runs FOLDER).</p>"]
    output = work / "curves.svg"
    try:
        with readable_text():
            _, left_out = curves.draw(logs, output)
    except ValueError as error:
        return [f"<p>{html.escape(str(error))}.</p>"]
    return [picture(output, "Training curves"), *(f"<p>Not shown: {html.escape(line)}.</p>" for line in left_out)]


def readable_text() -> Any:
    """Make pictures contain text as text, which is smaller and can be searched."""
    return load_pyplot().rc_context({"svg.fonttype": "none", "svg.hashsalt": "fairseq_mega"})
