"""Estimates of the time of a training, from the speed in the log of one, or from its operations."""

import statistics
from pathlib import Path
from typing import Any, List, Mapping, Optional

from fairseq_mega.lab.inspect.recipe_models import model_of
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.log_progress import parse_statistics
from fairseq_mega.models import cost
from fairseq_mega.modules.images import patch_count

from .datasets import scored_of

GPU_RATE = 40e12  # assumed operations per second: a quarter of an A100's peak in TF32
CORE_RATE = 25e9  # of a CPU's core: 22 to 39 were measured on an AMD EPYC, by the trainings of the miniature
RATES_SAID = (
    f"at {GPU_RATE / 1e12:.0f} TFLOP/s a GPU (a quarter of an A100's peak in TF32) or "
    f"{CORE_RATE / 1e9:.0f} GFLOP/s a core"
)
SENTENCE = 256  # assumed positions of a translation


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
    """Floating-point operations of an update, forward and backward, which is two passes: for the order of magnitude."""
    model, config, length = model_of(recipe), recipe.config, mean_length(recipe)
    tokens = config["dataset"].get("max_tokens")
    if tokens is None:
        tokens = config["dataset"]["batch_size"] * length * getattr(model, "documents", 1)
    return 3.0 * cost.operations(model, length) * tokens * recipe.gpus * config["optimization"]["update_freq"][0]


def mean_length(recipe: Recipe) -> int:
    """Return the mean number of positions of a data set's examples; the longest where it is unknown or all have it."""
    scored = scored_of(recipe)
    if scored is not None and scored.mean_length is not None:
        return round(scored.mean_length)
    return longest(recipe.config["task"].get("tokens_per_sample"), recipe.config["model"])


def longest(block: Optional[int], model: Mapping[str, Any]) -> int:
    """Positions of a sequence of a recipe: of a block of text, of a classifier's input, of an image, of a sentence."""
    if "patch_size" in model:
        return patch_count(model["image_size"], model["patch_size"])
    return int(block or model.get("max_positions") or SENTENCE)


def scoring(recipe: Recipe, gpus: int, cores: int) -> str:
    """Return the estimated time of scoring a checkpoint, at the rates above; "" without a published test part.

    Args:
        gpus, cores: see :func:`duration`; a GPU scores alone.
    """
    scored = scored_of(recipe)
    if scored is None:
        return ""
    model, length = model_of(recipe), mean_length(recipe)
    each = 1 if recipe.evaluate["kind"] == "language-model" else length * getattr(model, "documents", 1)
    times = len(recipe.evaluate.get("contexts", [{}]))
    work = times * scored.size * each * cost.operations(model, length)
    return span(work / (GPU_RATE if gpus > 0 else CORE_RATE * cores))


def operations_measured(recipe: Recipe) -> float:
    """Floating-point operations of the passes over all lengths by which a speed is measured."""
    model, wanted = model_of(recipe), recipe.evaluate
    passes = 4 if recipe.config["model"].get("checkpoint_activations") else 3  # one forward pass is made again
    once = sum(passes * length * cost.operations(model, length) for length in wanted["lengths"])
    return once * (wanted["repeat"] + 1)


def duration(recipe: Recipe, done: int, updates: int, logs: List[Path], gpus: int, cores: int) -> str:
    """Return the estimated time of the rest of a training, and its source: a log, or the rates above.

    Args:
        done, updates: number of updates so far and in all, of all seeds.
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
