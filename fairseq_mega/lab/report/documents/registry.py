"""The tables for documents, by name."""

from functools import partial
from pathlib import Path
from typing import Callable, Dict, Sequence

from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.text_tables import Table

from . import (
    classification,
    contexts,
    decoding,
    grids,
    language_models,
    layers,
    operators,
    papers,
    peers,
    precisions,
    shared_sequences,
    sizes,
    translation,
)

# Functions of the document's folder and of the words after the name: result files or folders, relative to the folder.
Builder = Callable[[Path, Sequence[str]], Table]

TABLES: Dict[str, Builder] = {
    "benchmarks": papers.benchmarks,
    **{f"paper-{name}": partial(papers.of_paper, name=name) for name in PAPER_TABLES},
    "megalodon-table1": papers.academic_benchmarks,
    "megalodon-figure1": papers.trainings,
    "megalodon-figure1-contexts": papers.contexts,
    "megalodon-figure1-rates": papers.rates,
    "megalodon-figure4": papers.speed,
    "layer-lengths": layers.by_length,
    "layer-precisions": layers.by_precision,
    "operator-lengths": operators.by_length,
    "operator-shapes": operators.by_shape,
    "peers": peers.beside,
    "contexts": contexts.longest,
    "megalodon-sizes": sizes.megalodon,
    "planted-defects": operators.planted_defects,
    "decoding": decoding.decoding,
    "training-lengths": decoding.training_lengths,
    "shared-sequences": shared_sequences.memory,
    "language-models": language_models.comparison,
    "remembered-tokens": language_models.remembered,
    "miniature": classification.cells,
    "miniature-classifiers": classification.miniatures,
    "classifier-speed": classification.speed,
    "test-sets": translation.test_sets,
    "precisions": precisions.of_seeds,
    "grid": grids.grid,
}
