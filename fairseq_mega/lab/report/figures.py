"""The papers' figures from result files: MEGA's Figures 4, 5 and 6, and MEGALODON's Figures 1, 4 and 5."""

import itertools
import statistics
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, TASKS
from fairseq_mega.lab.report.alike import Contents, read_alike, report_of, scores_table
from fairseq_mega.lab.report.comparisons import MODELS
from fairseq_mega.lab.report.numbers import FORMS, by_subject, pivot, ratio, record_of
from fairseq_mega.lab.report.papers import FULL, PAPER, rule_of
from fairseq_mega.lab.runs.plotting import Line, Panel, look
from fairseq_mega.lab.runs.report import Report, all_results, selected_results
from fairseq_mega.lab.runs.results import Result, ResultError, is_trained_here
from fairseq_mega.lab.runs.text_tables import Table, table_of

EMA_DIM = TASKS["text"].ema_dim  # the same for Image
FIGURE1, FIGURE4, FIGURE5 = (f"megalodon-figure{number}" for number in (1, 4, 5))  # benchmarks
LOOKS = {"llama": 1, "megalodon": 0, "megalodon_one_hop": 2}  # of the curves, in the order of rows
BITS = "bits_per_token"
WHOLE = float("inf")  # context of a text that is read as one stream
# MEGALODON (Ma et al., NeurIPS 2024), section 4.1: "about 6%" slower at 4K, "about 32%" faster at 32K, on 256 A100.
PAPER_SPEEDS = {4096: "about 0.94x", 32768: "about 1.32x"}


class Point(NamedTuple):
    """A measured point of a curve; points of one curve at one place are its mean, and a band where several differ."""

    line: str
    x: Any
    y: float
    number: int = 0  # of the curve's look


def lines_of(points: Iterable[Point], places: Sequence[Any] = (), banded: bool = False) -> List[Line]:
    """Return the curves of some points, by names in the order of their first points.

    Args:
        places: of points that are drawn side by side, and not at the numbers of their places.
        banded: whether curves have a band from the smallest to the largest value.
    """
    curves: Dict[Tuple[str, int], Dict[Any, List[float]]] = {}
    for point in points:
        x = places.index(point.x) if places else point.x
        curves.setdefault((point.line, point.number), {}).setdefault(x, []).append(point.y)
    lines = []
    for (name, number), values in curves.items():
        ordered = sorted(values.items())
        means = [(x, statistics.fmean(own)) for x, own in ordered]
        band = [(x, min(own), max(own)) for x, own in ordered] if banded else []
        lines.append(Line(means, name or None, look(number) if banded else {}, band))
    return lines


# MEGA's Figures 4 and 5: the Long Range Arena.


def figure4(results: Sequence[Result]) -> Contents:
    """Return accuracies over the EMA's dimensions in full attention, and over the chunk."""
    trained = list(filter(is_trained_here, results))
    tables, panels, used = [], [], []
    for axis, title, fixed in (
        ("ema_dim", "EMA dimensions N (full attention)", {"chunk": FULL}),
        ("chunk", f"chunk C (N = {EMA_DIM})", {"ema_dim": EMA_DIM}),
    ):
        points: List[Point] = []
        for task in ("text", "image"):
            found = list(filter(rule_of({"task": task, "model": "mega", "attention": PAPER, **fixed}), trained))
            points += [Point(TASKS[task].title, run["settings"][axis], run["scores"]["test_accuracy"]) for run in found]
            used += [run for run in found if run not in used]
        if points:  # evenly spaced, because 0 and full attention have no place on a logarithmic axis
            values = sorted({point.x for point in points}, key=lambda value: (value < 0, value))
            names = {value: "full" if value < 0 else str(value) for value in values}
            head = f"{title}: test accuracy"
            cells = [
                ({head: names[value]}, point.line, point.y) for value in values for point in points if point.x == value
            ]
            tables.append(pivot(cells, dict.fromkeys(point.line for point in points), missing="-"))
            axes = {"xlabel": title, "ylabel": "test accuracy (%)"}
            panels.append(Panel(lines_of(points, values), axes, list(names.values())))
    return Contents([*tables, scores_table(used)] if used else [], used, panels=panels)


def functions() -> List[Point]:
    """Return points of the attention functions laplace and relu2, which are applied to each score.

    Source: MEGA, Eq. 16 and Figure 5.
    """
    import torch  # which needs seconds

    from fairseq_mega.ops.attention.reference import laplace

    x = torch.linspace(-1.0, 2.0, 301, dtype=torch.float64)
    values = {"laplace": laplace(x), "relu2": x.relu().square()}
    return [Point(name, *pair) for name, y in values.items() for pair in zip(x.tolist(), y.tolist())]


def figure5(results: Sequence[Result]) -> Contents:
    """Return the attention functions, and one validation curve on Pathfinder per seed of each."""
    trained, used = list(filter(is_trained_here, results)), []
    lines, rows = [], []
    for number, function in enumerate(("laplace", "relu2", "softmax")):
        chosen = {"task": "pathfinder", "model": "mega", "chunk": FULL, "attention": function, "ema_dim": PAPER}
        for run in filter(rule_of(chosen), trained):
            accuracies = [point["accuracy"] for point in run["curve"]]
            falls = [before - after for before, after in zip(accuracies, accuracies[1:])]
            lines.append(
                Line([(point["updates"], point["accuracy"]) for point in run["curve"]], function, look(number))
            )
            used.append(run)
            rows.append(
                {
                    "Pathfinder, validation accuracy": f"{function}, seed {run['seed']}",
                    "last": f"{accuracies[-1]:.2f}",
                    "best": f"{max(accuracies):.2f}",
                    "largest fall": f"{max([*falls, 0.0]):.2f}",
                }
            )
    if not used:
        return Contents([], [])
    of_functions = {"xlabel": "score", "ylabel": "weight", "ylim": (-0.1, 2.1), "title": "attention functions"}
    of_training = {"xlabel": "updates", "ylabel": "validation accuracy (%)", "title": "Pathfinder"}
    panels = [Panel(lines_of(functions()), of_functions), Panel(lines, of_training)]
    return Contents([table_of(rows), scores_table(used)], used, panels=panels)


# MEGA's Figure 6 and MEGALODON's Figure 5: perplexity over the context.


def perplexities(results: Sequence[Result], key: str, title: str, base: int = 0) -> Tuple[Table, Panel]:
    """Return the perplexities over a setting, ascending, as a table and as a panel.

    Args:
        base: of a logarithmic axis.
    """
    points = sorted(Point("", run["settings"][key], run["scores"]["perplexity"]) for run in results)
    rows = [[f"{point.x:,.0f}", f"{point.y:.3f}"] for point in points]
    axes: Dict[str, Any] = {"xlabel": title, "ylabel": "test perplexity"}
    if key == "mean_segment" and points[-1].x > 20 * points[0].x:
        axes["xscale"] = "log"
    return Table([title, "test perplexity"], rows), Panel(lines_of(points), axes, base=base or None)


def figure6(results: Sequence[Result]) -> Contents:
    """Return perplexities over the context at the chunk of most results, and over the chunk at their most segments.

    Raises:
        ValueError: if the results are of several models.
    """
    models = {(result["label"], str(result["settings"].get("checkpoint_sha256"))) for result in results}
    if len(models) > 1:
        names = ", ".join(f"{label} ({checkpoint[:8]})" for label, checkpoint in sorted(models))
        raise ValueError(f"the results are of several models, {names}: give the results of one")
    parts = []
    for fixed, key, title in (
        ("chunk_size", "mean_segment", "context (tokens of a segment, mean)"),
        ("segments", "chunk_size", "chunk (tokens)"),
    ):
        own = [result for result in results if fixed in result["settings"]]
        most = statistics.mode(result["settings"][fixed] for result in own) if own else None
        chosen = [result for result in own if result["settings"][fixed] == most]
        parts += [perplexities(chosen, key, title)] if chosen else []
    return Contents([table for table, _ in parts], results, panels=[panel for _, panel in parts])


def megalodon_figure5(results: Sequence[Result]) -> Contents:
    """Return perplexities over the context."""
    if not results:
        return Contents([], [])
    table, panel = perplexities(results, "exact_context", "context (tokens)", base=2)
    return Contents([table], results, panels=[panel])


# MEGALODON's Figure 1 scaled down: losses over the bytes read in training, and over the context afterwards.


def by_model(results: Iterable[Result]) -> Dict[str, List[Result]]:
    """Return results by model, in the order of the seeds."""
    ordered = sorted(results, key=lambda result: result["seed"])
    found = {model: [one for one in ordered if one["settings"]["model"] == model] for model in LOOKS}
    return {model: own for model, own in found.items() if own}


def mean_and_range(values: Sequence[float]) -> str:
    """Return the mean of the seeds, and for several seeds the smallest and the largest value."""
    mean = f"{statistics.fmean(values):.4f}"
    return f"{mean} ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else mean


def training_table(results: Sequence[Result]) -> Table:
    """Return a row for each model: its losses at the end of training, over the seeds, and the spikes of each seed.

    Spikes that all models of a seed have at the same update are omitted: all read the same text there.
    """
    records, trained = [], by_model(result for result in results if "curve" in result)
    spikes: Dict[int, List[Set[int]]] = {}
    for result in itertools.chain.from_iterable(trained.values()):
        spikes.setdefault(result["seed"], []).append({*result["spikes"]})
    shared = {seed: set.intersection(*found) if len(found) > 1 else set() for seed, found in spikes.items()}
    for model, own in trained.items():
        ends = {key: mean_and_range([one["scores"][f"{key}_{BITS}"] for one in own]) for key in ("train", "valid")}
        alone = ", ".join(str(len({*one["spikes"]} - shared[one["seed"]])) for one in own)
        about = {"title": MODELS[model], "read": own[0]["settings"]["tokens"] / 1e6, "own_spikes": alone}
        records.append({**record_of(own[0]), **about, **ends})
    return FORMS["figure1"].table(records)


def context_points(results: Sequence[Result]) -> Iterator[Point]:
    """Yield the bits per token of each model and seed, read in contexts of so many tokens."""
    for model, own in by_model(results).items():
        for result in own:
            settings = result["settings"]
            context, window = settings.get("exact_context"), settings.get("attention_window")
            line = MODELS[model] + (f", window of {window:,}" if window else "")
            if context is not None or settings.get("segments") == 1:
                yield Point(line, context or WHOLE, result["scores"][BITS], len(LOOKS) if window else LOOKS[model])


def context_table(results: Sequence[Result]) -> Table:
    """Return a row for each model, a column for each context: bits per byte of the test text, over the seeds."""
    found: Dict[Tuple[str, float], List[float]] = {}
    for point in context_points(results):
        found.setdefault((point.line, point.x), []).append(point.y)
    titles = {x: "the whole text" if x == WHOLE else f"{x:,}" for x in sorted({x for _, x in found})}
    head = "bits per byte of the test text, read in contexts of"
    cells = [({head: line}, titles[x], mean_and_range(values)) for (line, x), values in found.items()]
    return pivot(cells, titles.values(), missing="-")


def losses(results: Sequence[Result]) -> Iterator[Point]:
    """Yield the training losses of each model and seed by millions of bytes read.

    Raises:
        ResultError: where the seeds read different numbers of bytes.
    """
    for model, own in by_model(result for result in results if "curve" in result).items():
        curves = [result["curve"]["train"] for result in own]
        if len({len(curve["tokens"]) for curve in curves}) > 1:
            raise ResultError("the trainings of one model have different lengths: give the results of one command")
        read = [statistics.fmean(counts) / 1e6 for counts in zip(*(curve["tokens"] for curve in curves))]
        for curve in curves:
            yield from (Point(MODELS[model], x, y, LOOKS[model]) for x, y in zip(read, curve[BITS]))


def figure1_panels(results: Sequence[Result]) -> List[Panel]:
    """Return the losses over the bytes, and over the context, with bands over the seeds."""
    trained = lines_of(losses(results), banded=True)
    late = [loss for line in trained for _, *ends in line.band[len(line.band) // 4 :] for loss in ends]
    margin = 0.1 * (max(late) - min(late)) or 0.1
    limits = (min(late) - margin, max(late) + 4 * margin)  # the curves begin far above
    axes = {"xlabel": "bytes read (millions)", "ylabel": "training loss (bits per byte)", "ylim": limits}
    panels = [Panel(trained, axes)]
    points = [point for point in context_points(results) if point.x != WHOLE]
    if points:
        contexts = sorted({point.x for point in points})
        axes = {"xlabel": "context (bytes)", "ylabel": "test loss (bits per byte)"}
        panels.append(Panel(lines_of(points, contexts, banded=True), axes, [f"{context:,}" for context in contexts]))
    return panels


def megalodon_figure1(results: Sequence[Result]) -> Contents:
    """Return the losses over the bytes, and over the context."""
    table = training_table(results)
    panels = figure1_panels(results) if table.rows else []
    return Contents([table, context_table(results)], results, panels=panels)


# MEGALODON's Figure 4: training speed beside a Llama-style Transformer with fused attention, over the context.


def speeds_of(result: Result) -> Dict[int, Dict[str, float]]:
    """Return the measurements of a result by length, ascending: tokens per second, MiB and parameters."""
    return dict(sorted(by_subject(result["scores"], "L").get("", {}).items()))


def speeds(results: Sequence[Result]) -> Iterator[Dict[str, Any]]:
    """Yield a record for each size, model and length; of several results of one model the last counts."""
    last = {(result["settings"]["task"], result["settings"]["model"]): speeds_of(result) for result in results}
    for (size, model), points in sorted(last.items()):
        for length, point in points.items():
            base = last.get((size, "llama"), {}).get(length, {}).get("tokens_per_second")
            record = {**point, "size": size.upper(), "title": FORMS["figure4"].title(model), "at": length}
            if base and model != "llama":
                record.update(against=ratio(point["tokens_per_second"] / base), paper=PAPER_SPEEDS.get(length, "-"))
            yield record


def speed_table(results: Sequence[Result]) -> Table:
    """Return a row for each model and length, with its speed relative to the Llama-style model of the same size."""
    return FORMS["figure4"].table(speeds(results))


def figure4_panels(results: Sequence[Result]) -> List[Panel]:
    """Return the speeds over the context, a panel for each size."""
    panels, found = [], list(speeds(results))
    for size in dict.fromkeys(record["size"] for record in found):
        own = [record for record in found if record["size"] == size]
        points = [Point(record["title"], record["at"], record["tokens_per_second"]) for record in own]
        axes = {"title": size, "xlabel": "context (tokens)", "ylabel": "tokens per second of a device"}
        panels.append(Panel(lines_of(points), axes, base=2))
    return panels


def megalodon_figure4(results: Sequence[Result]) -> Contents:
    """Return training speeds over the context."""
    return Contents([speed_table(results)], results, panels=figure4_panels(results))


def figure(
    about: str,
    benchmark: str,
    contents: Callable[[List[Result]], Contents],
    read: Callable[..., List[Result]] = selected_results,
) -> Report:
    """Return the report of a figure."""
    return report_of(f"Plot {about}.", [benchmark], contents, read, drawn=True)


ACCURACIES = "MEGA's Figure 4: accuracy over the EMA's dimensions and over the chunk"
CONTEXTS = "MEGA's Figure 6: perplexity over the context and over the chunk"
LOSSES = "MEGALODON's Figure 1 scaled down: losses over bytes and contexts"
REPORTS = {
    "figure4": figure(ACCURACIES, BENCHMARK, figure4, read_alike),
    "figure5": figure("MEGA's Figure 5: validation curves on Pathfinder", BENCHMARK, figure5, read_alike),
    "figure6": figure(CONTEXTS, "figure6", figure6, all_results),
    FIGURE1: figure(LOSSES, FIGURE1, megalodon_figure1),
    FIGURE4: figure("MEGALODON's Figure 4: training speed over the context", FIGURE4, megalodon_figure4),
    FIGURE5: figure("MEGALODON's Figure 5: perplexity over the context", FIGURE5, megalodon_figure5),
}
