"""MEGALODON's Figure 1 scaled down: losses over the bytes read in training, and over the context afterwards."""

import argparse
import statistics
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

from fairseq_mega.lab.runs.plotting import Line, Panel, draw_panels, look
from fairseq_mega.lab.runs.report import Report, add_drawing, given_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result, ResultError
from fairseq_mega.lab.runs.text_tables import Table, table_of

BENCHMARK = "megalodon-figure1"
MODELS = {"llama": "Llama-style", "megalodon": "MEGALODON", "megalodon_one_hop": "MEGALODON, one hop"}
LOOKS = {"megalodon": 0, "llama": 1, "megalodon_one_hop": 2}  # numbers of the curves
BITS = "bits_per_token"
MILLION = 1e6


def by_model(results: Sequence[Result]) -> Dict[str, List[Result]]:
    """Return results by model, in the order of MODELS and of the seeds."""
    found: Dict[str, List[Result]] = {}
    for model in MODELS:
        own = [result for result in results if result["settings"]["model"] == model]
        if own:
            found[model] = sorted(own, key=lambda result: result["seed"])
    return found


def trainings(results: Sequence[Result]) -> List[Result]:
    """Return the results that contain the losses of a training."""
    return [result for result in results if "curve" in result]


def by_context(results: Sequence[Result]) -> Dict[Optional[int], List[float]]:
    """Return the bits per token of the seeds by context in tokens, in rising order; None is the whole text."""
    found: Dict[Optional[int], List[float]] = {}
    for result in results:
        settings = result["settings"]
        if settings.get("exact_context") is not None or settings.get("segments") == 1:
            found.setdefault(settings.get("exact_context"), []).append(result["scores"][BITS])
    return {context: found[context] for context in sorted(found, key=length_of)}


def length_of(context: Optional[int]) -> float:
    """Return the tokens of a context; the whole text is longer than any context."""
    return float("inf") if context is None else context


def shared_spikes(results: Sequence[Result]) -> Dict[int, Set[int]]:
    """Return for each seed the updates at which every model has a spike, because all read the same text there.

    One model alone has no shared spikes.
    """
    found: Dict[int, List[Set[int]]] = {}
    for result in results:
        found.setdefault(result["seed"], []).append(set(result["spikes"]))
    return {seed: set.intersection(*spikes) if len(spikes) > 1 else set() for seed, spikes in found.items()}


def mean_and_range(values: Sequence[float]) -> str:
    """Return the mean of the seeds, and for several seeds the smallest and the largest value."""
    mean = f"{statistics.fmean(values):.4f}"
    return f"{mean} ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else mean


def training_table(results: Sequence[Result]) -> Table:
    """Return a row for each model: its losses at the end of training, over the seeds, and the spikes of each seed."""
    rows = []
    shared = shared_spikes(trainings(results))
    for model, own in by_model(trainings(results)).items():
        settings = own[0]["settings"]
        spikes = [len({*result["spikes"]} - shared[result["seed"]]) for result in own]
        ends = {
            key: mean_and_range([result["scores"][f"{key}_{BITS}"] for result in own]) for key in ("train", "valid")
        }
        rows.append(
            {
                "MEGALODON, Figure 1": MODELS[model],
                "parameters": f"{settings['parameters']:,}",
                "rate": f"{settings['lr']:g}",
                "bytes": f"{settings['tokens'] / MILLION:.1f} M",
                "bits per byte, training": ends["train"],
                "bits per byte, validation": ends["valid"],
                "spikes of its own": ", ".join(map(str, spikes)),
            }
        )
    return table_of(rows)


def context_table(results: Sequence[Result]) -> Table:
    """Return a row for each model, a column for each context: bits per byte of the test text, over the seeds."""
    found = {model: by_context(own) for model, own in by_model(results).items()}
    every = sorted({context for scores in found.values() for context in scores}, key=length_of)
    rows = []
    for model, scores in found.items():
        cells = {
            "the whole text" if context is None else f"{context:,}": mean_and_range(scores[context])
            if context in scores
            else "-"
            for context in every
        }
        if scores:
            rows.append({"bits per byte of the test text, read in contexts of": MODELS[model], **cells})
    return table_of(rows)


def banded(points: Dict[float, List[float]], model: str) -> Line:
    """Return the means of some values as a line, with a band from the smallest to the largest value."""
    means = [(x, statistics.fmean(values)) for x, values in points.items()]
    band = [(x, min(values), max(values)) for x, values in points.items()]
    return Line(means, MODELS[model], look(LOOKS[model]), band)


def losses(results: Sequence[Result]) -> Dict[float, List[float]]:
    """Return the training losses of the seeds by millions of bytes read.

    Raises:
        ResultError: where the seeds read different numbers of bytes.
    """
    curves = [result["curve"]["train"] for result in results]
    if len({len(curve["tokens"]) for curve in curves}) > 1:
        raise ResultError("the trainings of one model have different lengths: give the results of one command")
    read = [statistics.fmean(counts) / MILLION for counts in zip(*(curve["tokens"] for curve in curves))]
    return dict(zip(read, map(list, zip(*(curve[BITS] for curve in curves)))))


def limits(lines: Sequence[Line]) -> Tuple[float, float]:
    """Return the range of losses of a panel from the last three quarters of the curves, which begin far above."""
    late = [loss for line in lines for _, *ends in line.band[len(line.band) // 4 :] for loss in ends]
    margin = 0.1 * (max(late) - min(late)) or 0.1
    return min(late) - margin, max(late) + 4 * margin


def plot(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw the losses over the bytes, and over the context, to an image file, with ``source`` as in ``save``."""
    trained = [banded(losses(own), model) for model, own in by_model(trainings(results)).items()]
    axes = {"xlabel": "bytes read (millions)", "ylabel": "training loss (bits per byte)", "ylim": limits(trained)}
    panels = [Panel(trained, axes)]
    scored = {model: by_context(own) for model, own in by_model(results).items()}
    contexts = sorted({context for scores in scored.values() for context in scores if context is not None})
    if contexts:
        read = [
            banded({contexts.index(at): bits for at, bits in scores.items() if at is not None}, model)
            for model, scores in scored.items()
        ]
        axes = {"xlabel": "context (bytes)", "ylabel": "test loss (bits per byte)"}
        panels.append(Panel(read, axes, ticks=[f"{context:,}" for context in contexts]))
    draw_panels(panels, output, source=source)


def run(options: argparse.Namespace) -> None:
    """Print the tables, and draw the figure.

    Raises:
        ResultError: if there is no training.
    """
    results = given_results(options, BENCHMARK)
    if not trainings(results):
        raise ResultError(f"{options.results} has no training with its losses: run the recipe megalodon/figure1")
    tables = [training_table(results), context_table(results)]
    show(options, [table for table in tables if table.rows], results)
    plot(results, options.output)
    print(f"plot: {options.output}")
    warn_of_smoke(options.smoke)


REPORT = Report("Plot MEGALODON's Figure 1 scaled down: losses over bytes and contexts.", add_drawing, run)
