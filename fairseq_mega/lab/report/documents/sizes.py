"""Parameters of architectures, memory and time of MEGALODON's sizes, all on paper: nothing is run."""

from pathlib import Path
from typing import Dict, Sequence

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.inspect.recipe_models import BYTES, symbols_of_preset
from fairseq_mega.lab.runs.text_tables import Table, table_of
from fairseq_mega.models import on_paper
from fairseq_mega.models.cost import GIB, language_model, operations, parameters, training_step
from fairseq_mega.models.image_classifier import ImageClassifier

SIZES = {"11m": 260, "200m": 32000, "1b3": 32000, "1b3_pg19": 32000, "7b": 32000}  # presets to symbols
DEVICE = 100e12  # sustained operations per second of a device


def count(name: str) -> int:
    """Return the parameters of an architecture, with the dictionary of its recipes.

    Raises:
        ValueError: for an unknown architecture, or if the recipes have no or several dictionaries for it.
    """
    if name not in ARCH_MODEL_REGISTRY:
        raise ValueError("give the name of an architecture")
    symbols = symbols_of_preset(name)
    if symbols is None and not issubclass(ARCH_MODEL_REGISTRY[name], ImageClassifier):
        raise ValueError("no recipe has this architecture, or several with different dictionaries")
    return parameters(on_paper.built({"_name": name}, symbols or BYTES))


def row(size: str, symbols: int) -> Dict[str, str]:
    """Cells of a size, by the titles of their columns."""
    options = {"_name": f"megalodon_lm_{size}"}
    model = language_model(options, symbols)
    step = training_step(options, symbols)
    work = 3.0 * operations(model, model.chunk_size)  # a backward pass counts as two
    return {
        "": size,
        "parameters": f"{step.parameters:,}",
        "training state": f"{step.state / GIB:,.1f} GiB",
        "activations per token": f"{step.token / 1024:,.0f} KiB",
        "the same, recomputed": f"{step.recomputed / 1024:,.0f} KiB",
        "GFLOP per token": f"{work / 1e9:.2g}",
        "tokens/s at 100 TFLOP/s": f"{float(f'{DEVICE / work:.2g}'):,.0f}",
    }


def megalodon(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each size."""
    return table_of([row(size, symbols) for size, symbols in SIZES.items()])
