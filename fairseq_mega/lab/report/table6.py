"""MEGA's Table 6: ImageNet-1k, measured beside the paper's."""

import argparse
import functools
from typing import Any, Dict, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import partial, select
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.published import paper_values
from fairseq_mega.lab.report.lra_cells import spread
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import Report, add_results, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.text_tables import Table

BENCHMARK = "imagenet"
# MEGA (Ma et al., ICLR 2023), Table 6: parameters and top-1 accuracy; those of recipes stand there.
PAPER = {
    "ResNet-152": ("60M", "78.3"),
    "ViT-B, 384 pixels": ("86M", "77.9"),
    "DeiT-B": ("86M", *paper_values("table6", "deit_b", ["imagenet"], "top1_accuracy")),
    "MEGA": ("90M", *paper_values("table6", "mega", ["imagenet"], "top1_accuracy")),
}
CHECKPOINTS = {"best": "best epoch", "last": "last epoch"}
NOTE = "measured: on the 50,000 validation images, by which the best epoch is chosen, too"
Results = Sequence[Dict[str, Any]]


class ImageTable(NamedTuple):
    """A table of accuracies on ImageNet.

    Attributes:
        paper: the table, whose trained rows name the models of recipes.
        script: that fills it.
        notes: below it.
    """

    paper: PaperTable
    script: str
    notes: Tuple[str, ...] = (NOTE,)


def columns(title: str) -> Sequence[str]:
    """The titles of a table of ImageNet."""
    return title, "parameters", "top-1 accuracy"


TABLE = ImageTable(
    PaperTable(columns("Table 6, ImageNet-1k"), PAPER, {"DeiT-B": "deit_b", "MEGA": "mega"}), "mega_table6_imagenet.sh"
)


def other_images(result: Dict[str, Any]) -> bool:
    """Whether the images were not all of ImageNet's, or others."""
    return (result["settings"]["train_examples"], result["examples"]) != (IMAGES["train"], IMAGES["valid"])


def accuracy(results: Results) -> str:
    """Top-1 accuracy over the seeds; a star where it cannot be compared with the paper's."""
    if not results:
        return "-"
    star = "*" if any(partial(result) or other_images(result) for result in results) else ""
    return spread([result["scores"]["top1_accuracy"] for result in results]) + star


def measured_rows(results: Results, model: str) -> Rows:
    """A row for each checkpoint of a model that was scored, or one that says there is nothing yet."""
    rows: Rows = []
    for checkpoint, title in CHECKPOINTS.items():
        scored = select(results, model=model, checkpoint=checkpoint)
        if scored:
            rows.append([f"  measured, {title}", f"{scored[0]['settings']['parameters']:,}", accuracy(scored)])
    return rows or [["  measured", "-", "not yet"]]


def table(results: Results, kind: ImageTable = TABLE) -> Table:
    """The paper's rows, and under those of recipes the measured ones."""
    return kind.paper.beside(functools.partial(measured_rows, results))


def run(options: argparse.Namespace, kind: ImageTable) -> None:
    """Print a table, and where the results in it come from."""
    models = [model for model in kind.paper.trained.values() if model is not None]
    results = [result for result in given_results(options, BENCHMARK) if result["settings"]["model"] in models]
    if not results:
        name = BENCHMARK + ("-smoke" if options.smoke else "")
        raise ResultError(
            f"{options.results} has no result of {name} by {' or '.join(models)}; run scripts/{kind.script} first"
        )
    notes = [*kind.notes]
    if any(partial(result) or other_images(result) for result in results):
        notes.append("* fewer updates than in the paper, or other images: not comparable with the paper's numbers")
    show(options, [table(results, kind)], results, notes)
    warn_of_smoke(options)


REPORT = Report("Print MEGA's Table 6: ImageNet.", add_results, functools.partial(run, kind=TABLE))
