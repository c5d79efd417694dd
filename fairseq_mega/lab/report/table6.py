"""MEGA's Table 6: ImageNet-1k, measured beside the paper's."""

import argparse
import functools
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import partial, select
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.published import paper_values, row_title
from fairseq_mega.lab.report.lra_cells import spread
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
        title: of its first column.
        paper: its rows, with parameters and top-1 accuracy.
        trained: the rows that have recipes, with the models of these.
        script: that fills it.
        notes: below it.
    """

    title: str
    paper: Mapping[str, Tuple[str, ...]]
    trained: Mapping[str, str]
    script: str
    notes: Tuple[str, ...] = (NOTE,)


TABLE = ImageTable("Table 6, ImageNet-1k", PAPER, {"DeiT-B": "deit_b", "MEGA": "mega"}, "mega_table6_imagenet.sh")


def other_images(result: Dict[str, Any]) -> bool:
    """Whether the images were not all of ImageNet's, or others."""
    return (result["settings"]["train_examples"], result["examples"]) != (IMAGES["train"], IMAGES["valid"])


def accuracy(results: Results) -> str:
    """Top-1 accuracy over the seeds; a star where it cannot be compared with the paper's."""
    if not results:
        return "-"
    star = "*" if any(partial(result) or other_images(result) for result in results) else ""
    return spread([result["scores"]["top1_accuracy"] for result in results]) + star


def table(results: Results, kind: ImageTable = TABLE) -> Table:
    """The paper's rows, and under those of recipes the measured ones."""
    rows: List[List[str]] = []
    for name, values in kind.paper.items():
        rows.append([row_title(name, name in kind.trained or name in TABLE.trained), *values])
        found = select(results, model=kind.trained.get(name))
        for checkpoint, title in CHECKPOINTS.items():
            scored = select(found, checkpoint=checkpoint)
            if scored:
                rows.append([f"  measured, {title}", f"{scored[0]['settings']['parameters']:,}", accuracy(scored)])
        if name in kind.trained and not found:
            rows.append(["  measured", "-", "not yet"])
    return Table([kind.title, "parameters", "top-1 accuracy"], rows)


def run(options: argparse.Namespace, kind: ImageTable) -> None:
    """Print a table, and where the results in it come from."""
    models = list(kind.trained.values())
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
