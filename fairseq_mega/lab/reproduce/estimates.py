"""How long a training takes: from the speed of one that is going on or was done, or from its operations."""

import math
import statistics
from pathlib import Path
from typing import Any, List, Mapping, Optional

from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.log_progress import parse_statistics

from .sizes import layer_size, patches

GPU_RATE = 40e12  # operations per second that we reckon with: a quarter of an A100's peak in TF32
CORE_RATE = 25e9  # of a CPU's core: 22 to 39 were measured on an AMD EPYC, by the trainings of the miniature
RATES_SAID = "at 40 TFLOP/s a GPU (a quarter of an A100's peak in TF32) or 25 GFLOP/s a core"
WORDS_PER_PAIR = 2  # a translation reads and writes


def measured_rate(logs: List[Path]) -> Optional[float]:
    """Updates per second, the median over the logged intervals of the trainings; None where there is none."""
    rates = []
    for log in logs:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = parse_statistics(line) if "| train_inner |" in line else {}
                if float(found.get("ups", 0) or 0) > 0:
                    rates.append(float(found["ups"]))
    return statistics.median(rates) if rates else None


def operations(recipe: Recipe) -> float:
    """Floating-point operations of an update, forward and backward: matrix products and the FFTs of the EMA.

    A reckoning for the order of magnitude: two per weight and token forward, twice as many backward, and what attention
    and the moving average add. A vocabulary counts with its widest band.
    """
    model, dataset = recipe.config["model"], recipe.config["dataset"]
    length = recipe.config["task"].get("tokens_per_sample") or model.get("max_positions") or patches(model) or 256
    places = recipe.gpus * recipe.config["optimization"]["update_freq"][0]
    tokens = dataset.get("max_tokens") or dataset["batch_size"] * length
    return 3.0 * of_token(model, length) * tokens * places


def operations_measured(recipe: Recipe) -> float:
    """Floating-point operations of the passes over all lengths by which a speed is measured."""
    model, wanted = recipe.config["model"], recipe.evaluate
    passes = 4 if model.get("checkpoint_activations") else 3  # a backward pass is two, and one forward is made again
    return sum(passes * length * of_token(model, length) for length in wanted["lengths"]) * (wanted["repeat"] + 1)


def of_token(model: Mapping[str, Any], length: int) -> float:
    """Floating-point operations of a forward pass for each token of sequences of a length."""
    layer = layer_size(model)
    chunk = model.get(f"{layer.side}_chunk_size", -1)
    chunk = length if chunk < 0 else min(chunk, length)
    reach = 15 * layer.embed_dim * math.log2(max(2, 2 * length)) * layer.moving_average
    per_token = model[f"{layer.side}_layers"] * (2 * layer.weights + 2 * chunk * layer.attended + reach)
    if layer.side == "encoder" and "decoder_layers" in model:
        per_token *= 2 * WORDS_PER_PAIR
    return float(per_token)


def duration(recipe: Recipe, done: int, updates: int, logs: List[Path], gpus: int, cores: int) -> str:
    """The time that the rest of a training takes, and where that comes from: a log, or the rates above.

    Args:
        done, updates: how many there are of how many, of all seeds.
        logs: of trainings with the same settings.
        gpus: to be used; 0 for the CPU.
        cores: of the CPU.
    """
    rate = measured_rate(logs)
    if rate is not None:
        return f"{span((updates - done) / rate)} (measured)"
    if recipe.measured:
        work = operations_measured(recipe) * (updates - done) / updates
        return f"{span(work / (GPU_RATE if gpus > 0 else CORE_RATE * cores))} (estimated)"
    speed = GPU_RATE * min(gpus, recipe.gpus) if gpus > 0 else CORE_RATE * cores
    return f"{span((updates - done) * operations(recipe) / speed)} (estimated)"


def span(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
