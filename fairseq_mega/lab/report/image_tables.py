"""MEGA's Table 6 and MEGALODON's Table 4: ImageNet-1k, measured beside the papers' numbers."""

import argparse
from functools import partial
from typing import Sequence

from fairseq_mega.lab.evaluate.lra_runs import select, shortened
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.lra_cells import INTERPRETATION, mean_and_deviation
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.report import show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result

CHECKPOINTS = {"best": ", best epoch", "last": ", last epoch", "given": ""}
NOTE = "measured: on the 50,000 validation images, which also select the best epoch"


def incomparable(result: Result) -> bool:
    """Return whether the training was shorter than the paper's, or the images were not all of ImageNet's."""
    images = result["settings"].get("train_examples", IMAGES["train"]), result["examples"]
    return shortened(result) or images != (IMAGES["train"], IMAGES["valid"])


def accuracy(results: Sequence[Result]) -> str:
    """Return the top-1 accuracy over the seeds, with a star if it cannot be compared with the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(incomparable, results)) else ""
    return mean_and_deviation([result["scores"]["top1_accuracy"] for result in results]) + star


def measured(results: Sequence[Result], model: str) -> Rows:
    """Return a row for each scored checkpoint of a model, or one row without results."""
    rows: Rows = []
    for checkpoint, title in CHECKPOINTS.items():
        scored = select(results, model=model, checkpoint=checkpoint)
        if scored:
            rows.append([f"  measured{title}", f"{scored[0]['settings']['parameters']:,}", accuracy(scored)])
    return rows or [["  measured", "-", "not yet"]]


def run(table: PaperTable, options: argparse.Namespace, script: str) -> None:
    """Print a table, and the origin of its results.

    Raises:
        ResultError: if there is no result of its models.
    """
    models = [model for model in table.trained.values() if model is not None]
    results = [one for one in table.read(options) if one["settings"]["model"] in models]
    table.require(results, options, script, " or ".join(models))
    notes = [*table.notes]
    if any(map(incomparable, results)):
        notes.append("* fewer updates than in the paper, or other images: not comparable with the paper's numbers")
    show(options, [table.of(results)], results, notes)
    warn_of_smoke(options.smoke)


# MEGA (Ma et al., ICLR 2023), Table 6: parameters and top-1 accuracy.
TABLE6 = PaperTable(
    "MEGA, Table 6: ImageNet",
    ("imagenet",),
    ("mega/table6",),
    ["Table 6, ImageNet-1k", "parameters", "top-1 accuracy"],
    {
        "ResNet-152": ("60M", "78.3"),
        "ViT-B, 384 pixels": ("86M", "77.9"),
        "DeiT-B": ("86M", *paper_values("table6", "deit_b", ["imagenet"], "top1_accuracy")),
        "MEGA": ("90M", *paper_values("table6", "mega", ["imagenet"], "top1_accuracy")),
    },
    {"DeiT-B": "deit_b", "MEGA": "mega"},
    measured,
    notes=(NOTE,),
    run=partial(run, script="mega_table6_imagenet.sh"),
)
# MEGALODON (Ma et al., NeurIPS 2024), Table 4; for other models it repeats MEGA's Table 6.
MEGALODON4 = PaperTable(
    "MEGALODON, Table 4: ImageNet",
    ("imagenet",),
    ("megalodon/table4",),
    ["MEGALODON, Table 4, ImageNet-1k", "parameters", "top-1 accuracy"],
    {
        **TABLE6.rows,
        "MEGALODON": ("90M", *paper_values("table4", "megalodon", ["imagenet"], "top1_accuracy", "megalodon")),
    },
    {"DeiT-B": None, "MEGA": None, "MEGALODON": "megalodon"},
    measured,
    notes=(NOTE, INTERPRETATION),
    run=partial(run, script="megalodon_table4_imagenet.sh"),
)
