"""Parameters of architectures, memory and time of MEGALODON's sizes, all on paper: nothing is run."""

import argparse
from pathlib import Path
from typing import Dict, Sequence

import yaml
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.inspect.recipe_models import BYTES, symbols_of_preset
from fairseq_mega.lab.runs.text_tables import Table, table_of
from fairseq_mega.models import on_paper
from fairseq_mega.models.cost import GIB, language_model, operations, parameters, training_step
from fairseq_mega.models.image_classifier import ImageClassifier

SIZES = {"11m": 260, "200m": 32000, "1b3": 32000, "1b3_pg19": 32000, "7b": 32000}  # presets to symbols
DEVICE = 100e12  # sustained operations per second of a device


def count(words: str) -> int:
    """Return the parameters of an architecture: ``mega_wmt_en_de``, ``mega_wmt_en_de symbols=33000 encoder_layers=3``.

    Args:
        words: name of the architecture, then options that differ from it, as in recipes; ``symbols`` is the size of
            each dictionary, by default that of the architecture's recipes.

    Raises:
        ValueError: for an unknown architecture or option, a later word that is not OPTION=VALUE, or if the recipes
            have no or several dictionaries for the architecture and ``symbols`` is missing.
    """
    name, *settings = words.split()
    if name not in ARCH_MODEL_REGISTRY:
        raise ValueError("give the name of an architecture")
    if not all("=" in setting for setting in settings):
        raise ValueError("write the options behind the architecture as OPTION=VALUE")
    options = {key: yaml.safe_load(value) for key, _, value in (setting.partition("=") for setting in settings)}
    symbols = options.pop("symbols", None) or symbols_of_preset(name)
    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY[name].add_args(parser)
    unknown = set(options) - set(vars(parser.parse_args([])))
    if unknown:
        raise ValueError(f"{name} has no options {', '.join(sorted(unknown))}")
    if symbols is None and not issubclass(ARCH_MODEL_REGISTRY[name], ImageClassifier):
        raise ValueError("no recipe has this architecture, or several with different dictionaries: add symbols=NUMBER")
    return parameters(on_paper.built({"_name": name, **options}, symbols or BYTES))


def row(size: str, symbols: int) -> Dict[str, str]:
    """Cells of a size, by the titles of their columns."""
    options = {"_name": f"megalodon_lm_{size}"}
    model = language_model(options, symbols)
    step = training_step(options, symbols)
    recomputed = training_step({**options, "checkpoint_activations": True}, symbols)
    work = 3.0 * operations(model, model.chunk_size)  # a backward pass counts as two
    return {
        "": size,
        "parameters": f"{step.parameters:,}",
        "training state": f"{step.state / GIB:,.1f} GiB",
        "activations per token": f"{step.token / 1024:,.0f} KiB",
        "the same, recomputed": f"{recomputed.token / 1024:,.0f} KiB",
        "GFLOP per token": f"{work / 1e9:.2g}",
        "tokens/s at 100 TFLOP/s": f"{float(f'{DEVICE / work:.2g}'):,.0f}",
    }


def megalodon(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each size."""
    return table_of([row(size, symbols) for size, symbols in SIZES.items()])
