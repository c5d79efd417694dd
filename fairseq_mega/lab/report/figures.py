"""The papers' figures from result files: MEGA's Figures 4, 5 and 6, and MEGALODON's Figures 1, 4 and 5."""

import argparse
import itertools
import re
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, TASKS, mega, select
from fairseq_mega.lab.report.alike import read_alike
from fairseq_mega.lab.report.comparisons import MODELS
from fairseq_mega.lab.report.numbers import mean_and_deviation, pivot
from fairseq_mega.lab.report.paper_table import FULL, run_table, warnings
from fairseq_mega.lab.runs.plotting import COLOURS, SIZES, Line, Panel, draw_panels, load_pyplot, look, save
from fairseq_mega.lab.runs.report import Report, add_drawing, selected_results, show, warn_of_smoke
from fairseq_mega.lab.runs.results import Result, ResultError, is_trained_here, read_results
from fairseq_mega.lab.runs.text_tables import Table, table_of

Points = List[Tuple[float, float]]
EMA_DIM = TASKS["text"].ema_dim  # the same for Image
FIGURE1, FIGURE4, FIGURE5 = (f"megalodon-figure{number}" for number in (1, 4, 5))  # benchmarks
LOOKS = {"llama": 1, "megalodon": 0, "megalodon_one_hop": 2}  # indices of the curves, in the order of rows
BITS = "bits_per_token"
MILLION = 1e6
TITLES = {"megalodon": "MEGALODON", "llama": "Llama"}
# MEGALODON (Ma et al., NeurIPS 2024), section 4.1: "about 6%" slower at 4K, "about 32%" faster at 32K, on 256 A100.
PAPER_SPEEDS = {4096: "about 0.94x", 32768: "about 1.32x"}


class Figure(NamedTuple):
    """The numbers of a figure, the results in it, and its panels."""

    tables: List[Table]
    used: List[Result]
    panels: List[Panel]


# MEGA's Figures 4 and 5: the Long Range Arena.


def figure4(results: Sequence[Result], chunk: int) -> Figure:
    """Return accuracies over the EMA's dimensions at one chunk, and over the chunk.

    Raises:
        ValueError: if there is no result.
    """
    figure = Figure([], used := [], [])
    for axis, title, fixed in (
        ("ema_dim", f"EMA dimensions N ({'full attention' if chunk < 0 else f'C = {chunk}'})", {"chunk": chunk}),
        ("chunk", f"chunk C (N = {EMA_DIM})", {"ema_dim": EMA_DIM}),
    ):
        found = {
            TASKS[task].title: select(results, task=task, model="mega", attention=TASKS[task].attention, **fixed)
            for task in ("text", "image")
        }
        curves: Dict[str, Points] = {name: [] for name, runs in found.items() if runs}
        # Evenly spaced, because 0 and "full" have no place on a logarithmic axis.
        values = {run["settings"][axis] for runs in found.values() for run in runs}
        ticks = {value: str(value) for value in sorted(values) if value >= 0}
        ticks.update({value: "full" for value in values if value < 0})
        cells = []
        for place, value in enumerate(ticks):
            for name in curves:
                runs = select(found[name], **{axis: value})
                used += [run for run in runs if run not in used]
                accuracies = [run["scores"]["test_accuracy"] for run in runs]
                if runs:
                    curves[name].append((place, statistics.mean(accuracies)))
                    cells.append(({f"{title}: test accuracy": ticks[value]}, name, mean_and_deviation(accuracies)))
        if curves:
            figure.tables.append(pivot(cells, curves, missing="-"))
            lines = [Line(points, name) for name, points in curves.items()]
            axes = {"xlabel": title, "ylabel": "test accuracy (%)"}
            figure.panels.append(Panel(lines, axes, list(ticks.values())))
    if not used:
        raise ValueError(f"no result of MEGA on Text or Image with --chunk {chunk} or N = {EMA_DIM}")
    return figure


def functions() -> Dict[str, Points]:
    """Return points of the attention functions laplace and relu2, which are applied to each score.

    Source: MEGA, Eq. 16 and Figure 5.
    """
    import torch  # which needs seconds

    from fairseq_mega.ops.attention.reference import laplace

    x = torch.linspace(-1.0, 2.0, 301, dtype=torch.float64)
    values = {"laplace": laplace(x), "relu2": x.relu().square()}
    return {name: list(zip(x.tolist(), y.tolist())) for name, y in values.items()}


def figure5(results: Sequence[Result], chunk: int) -> Figure:
    """Return the attention functions, and one validation curve on Pathfinder per seed of each.

    Raises:
        ValueError: if there is no result.
    """
    found = {function: mega(results, "pathfinder", chunk, function) for function in ("laplace", "relu2", "softmax")}
    used = [run for runs in found.values() for run in runs]
    if not used:
        raise ValueError(f"no result of MEGA on Pathfinder with --chunk {chunk}")
    curves, rows = [], []
    for number, (function, runs) in enumerate(found.items()):
        for run in runs:
            curve = [(point["updates"], point["accuracy"]) for point in run["curve"]]
            accuracies = [accuracy for _, accuracy in curve]
            falls = [before - after for before, after in zip(accuracies, accuracies[1:])]
            curves.append(Line(curve, function, look(number)))
            rows.append(
                {
                    "Pathfinder, validation accuracy": f"{function}, seed {run['seed']}",
                    "last": f"{accuracies[-1]:.2f}",
                    "best": f"{max(accuracies):.2f}",
                    "largest fall": f"{max([*falls, 0.0]):.2f}",
                }
            )
    of_functions = {"xlabel": "score", "ylabel": "weight", "ylim": (-0.1, 2.1), "title": "attention functions"}
    of_training = {"xlabel": "updates", "ylabel": "validation accuracy (%)", "title": "Pathfinder"}
    panels = [Panel([Line(points, name) for name, points in functions().items()], of_functions)]
    return Figure([table_of(rows)], used, [*panels, Panel(curves, of_training)])


def arena_report(description: str, figure: Callable[[Sequence[Result], int], Figure], chunk_help: str) -> Report:
    """Return the report of a figure of the Long Range Arena at the chunk of the option --chunk."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        add_drawing(parser)
        parser.add_argument("--chunk", type=int, default=FULL, help=f"{chunk_help} (default: -1, full attention)")

    def run(options: argparse.Namespace) -> None:
        found = figure(list(filter(is_trained_here, read_alike(options, BENCHMARK))), options.chunk)
        draw_panels(found.panels, options.output)
        show(options, [*found.tables, run_table(found.used)], found.used, warnings(found.used))
        print(f"plot: {options.output}")
        warn_of_smoke(options.smoke)

    return Report(description, add_options, run)


# MEGA's Figure 6 and MEGALODON's Figure 5: perplexity over the context.


def figure6(results: Sequence[Result], chunk: int, segments: int) -> Tuple[Points, Points]:
    """Return (mean segment, perplexity) at one chunk, and (chunk, perplexity) at one number of segments, ascending.

    Raises:
        ValueError: if the results are of several models.
    """
    models = sorted({(result["label"], str(result["settings"].get("checkpoint_sha256"))) for result in results})
    if len(models) > 1:
        names = ", ".join(f"{label} ({checkpoint[:8]})" for label, checkpoint in models)
        raise ValueError(
            f"the results are of several models, {names}: choose one with --label, or remove the other results"
        )
    rows = [(result["settings"], result["scores"]["perplexity"]) for result in results]
    context = [(row["mean_segment"], score) for row, score in rows if row.get("chunk_size") == chunk]
    chunks = [(row["chunk_size"], score) for row, score in rows if row.get("segments") == segments]
    return sorted(context), sorted(chunks)


def plot_figure6(context: Points, chunks: Points, output: Path) -> None:
    """Draw both curves side by side to an image file."""
    wide = max(x for x, _ in context) > 20 * min(x for x, _ in context)
    titles = {"context (tokens of a segment, mean)": "log" if wide else "linear", "chunk (tokens)": "linear"}
    draw_panels(
        [
            Panel([Line(points)], {"xlabel": title, "ylabel": "test perplexity", "xscale": scale})
            for points, (title, scale) in zip((context, chunks), titles.items())
        ],
        output,
    )


def add_figure6(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``figure6``."""
    add = parser.add_argument
    add("results", type=Path, help="folder of result files")
    add("--benchmark", default="figure6", help="name in the result files (default: figure6)")
    add("--label", help="name of the model in the result files (default: the only one)")
    add("--chunk", type=int, required=True, help="chunk of the left panel")
    add("--segments", type=int, required=True, help="segments of the right panel")
    add("--output", type=Path, required=True, help="image to write")


def print_figure6(options: argparse.Namespace) -> None:
    """Print the numbers of both curves, and draw them."""
    results = read_results(options.results, options.benchmark)
    chosen = [result for result in results if options.label in (None, result["label"])]
    context, chunks = figure6(chosen, options.chunk, options.segments)
    for option, value, points in (("--chunk", options.chunk, context), ("--segments", options.segments, chunks)):
        if not points:
            raise ValueError(f"{option} {value}: {options.results} has no such result")
    for title, points in (("context", context), ("chunk size", chunks)):
        print(f"{title:>12} perplexity")
        print("\n".join(f"{x:>12,.0f} {y:>10.3f}" for x, y in points))
    plot_figure6(context, chunks, options.output)
    print(f"plot: {options.output}")


def context_curve(results: Sequence[Result]) -> Points:
    """Return contexts in tokens and perplexities, ascending."""
    return sorted((row["settings"]["exact_context"], row["scores"]["perplexity"]) for row in results)


def perplexity_table(results: Sequence[Result]) -> Table:
    """Return a row for each context of MEGALODON's Figure 5."""
    rows = [[f"{context:,}", f"{score:.3f}"] for context, score in context_curve(results)]
    return Table(["MEGALODON, Figure 5, context", "test perplexity"], rows)


def plot_megalodon_figure5(results: Sequence[Result], output: Path) -> None:
    """Draw perplexity over the context to an image file."""
    axes = {"xlabel": "context (tokens)", "ylabel": "test perplexity"}
    draw_panels([Panel([Line(context_curve(results))], axes, base=2)], output)


# MEGALODON's Figure 1 scaled down: losses over the bytes read in training, and over the context afterwards.


def by_model(results: Iterable[Result]) -> Dict[str, List[Result]]:
    """Return results by model, in the order of the seeds."""
    ordered = sorted(results, key=lambda result: result["seed"])
    found = {model: [one for one in ordered if one["settings"]["model"] == model] for model in LOOKS}
    return {model: own for model, own in found.items() if own}


def by_context(results: Sequence[Result]) -> Dict[float, List[float]]:
    """Return the bits per token of the seeds by context in tokens, ascending; infinity is the whole text."""
    found: Dict[float, List[float]] = {}
    for result in results:
        context, segments = (result["settings"].get(key) for key in ("exact_context", "segments"))
        if context is not None or segments == 1:
            found.setdefault(float("inf") if context is None else context, []).append(result["scores"][BITS])
    return dict(sorted(found.items()))


def mean_and_range(values: Sequence[float]) -> str:
    """Return the mean of the seeds, and for several seeds the smallest and the largest value."""
    mean = f"{statistics.fmean(values):.4f}"
    return f"{mean} ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else mean


def training_table(results: Sequence[Result]) -> Table:
    """Return a row for each model: its losses at the end of training, over the seeds, and the spikes of each seed.

    Spikes that all models of a seed have at the same update are omitted: all read the same text there.
    """
    rows, trained = [], by_model(result for result in results if "curve" in result)
    spikes: Dict[int, List[Set[int]]] = {}
    for result in itertools.chain.from_iterable(trained.values()):
        spikes.setdefault(result["seed"], []).append({*result["spikes"]})
    shared = {seed: set.intersection(*found) if len(found) > 1 else set() for seed, found in spikes.items()}
    for model, own in trained.items():
        settings = own[0]["settings"]
        train, valid = ([result["scores"][f"{key}_{BITS}"] for result in own] for key in ("train", "valid"))
        rows.append(
            {
                "MEGALODON, Figure 1": MODELS[model],
                "parameters": f"{settings['parameters']:,}",
                "learning rate": f"{settings['lr']:g}",
                "bytes": f"{settings['tokens'] / MILLION:.1f} M",
                "bits per byte, training": mean_and_range(train),
                "bits per byte, validation": mean_and_range(valid),
                "spikes of its own": ", ".join(str(len({*one["spikes"]} - shared[one["seed"]])) for one in own),
            }
        )
    return table_of(rows)


def context_table(results: Sequence[Result]) -> Table:
    """Return a row for each model, a column for each context: bits per byte of the test text, over the seeds."""
    found = {model: by_context(own) for model, own in by_model(results).items()}
    contexts = sorted({context for scores in found.values() for context in scores})
    titles = {context: "the whole text" if context == float("inf") else f"{context:,}" for context in contexts}
    head = "bits per byte of the test text, read in contexts of"
    cells = [
        ({head: MODELS[model]}, titles[context], mean_and_range(values))
        for model, scores in found.items()
        for context, values in scores.items()
    ]
    return pivot(cells, titles.values(), missing="-")


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


def plot_megalodon_figure1(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw the losses over the bytes, and over the context, to an image file, with ``source`` as in ``save``."""
    trained = [
        banded(losses(own), model) for model, own in by_model(result for result in results if "curve" in result).items()
    ]
    axes = {"xlabel": "bytes read (millions)", "ylabel": "training loss (bits per byte)", "ylim": limits(trained)}
    panels = [Panel(trained, axes)]
    scored = {model: by_context(own) for model, own in by_model(results).items()}
    contexts = sorted({context for scores in scored.values() for context in scores} - {float("inf")})
    if contexts:
        read = [
            banded({contexts.index(at): scores[at] for at in contexts if at in scores}, model)
            for model, scores in scored.items()
        ]
        axes = {"xlabel": "context (bytes)", "ylabel": "test loss (bits per byte)"}
        panels.append(Panel(read, axes, ticks=[f"{context:,}" for context in contexts]))
    draw_panels(panels, output, source=source)


# MEGALODON's Figure 4: training speed beside a Llama-style Transformer with fused attention, over the context.


def speeds_of(result: Result) -> Dict[int, Dict[str, float]]:
    """Return the measurements of a result by length, ascending: tokens per second, MiB and parameters."""
    found: Dict[int, Dict[str, float]] = {}
    for name, value in result["scores"].items():
        measured = re.fullmatch(r"L=(\d+) (\w+)", name)
        if measured:
            found.setdefault(int(measured[1]), {})[measured[2]] = value
    return dict(sorted(found.items()))


def by_size(results: Sequence[Result]) -> Dict[str, Dict[str, Dict[int, Dict[str, float]]]]:
    """Return measurements by size, model and length; of several results of one model the last."""
    found: Dict[str, Dict[str, Dict[int, Dict[str, float]]]] = {}
    for result in results:
        settings = result["settings"]
        found.setdefault(settings["task"], {})[settings["model"]] = speeds_of(result)
    return {size: dict(sorted(models.items())) for size, models in found.items()}


def speed_table(results: Sequence[Result]) -> Table:
    """Return a row for each model and length, with its speed relative to the Llama-style model of the same size."""
    rows: List[Dict[str, str]] = []
    for size, models in by_size(results).items():
        for model, points in models.items():
            for length, point in points.items():
                tokens, base = point["tokens_per_second"], models.get("llama", {}).get(length)
                beside = base is not None and model != "llama"
                rows.append(
                    {
                        "MEGALODON, Figure 4": f"{size.upper()}, {TITLES[model]}",
                        "parameters": f"{int(point['parameters']):,}",
                        "L": f"{length:,}",
                        "tokens/s of a device": f"{tokens:,.0f}",
                        "against Llama": f"{tokens / base['tokens_per_second']:.2f}x" if base and beside else "-",
                        "paper, 7B": PAPER_SPEEDS.get(length, "-") if beside else "-",
                        "peak MiB": f"{point['memory_mib']:,.0f}",
                    }
                )
    return table_of(rows)


def plot_megalodon_figure4(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw the speeds as bars, a panel for each size, to an image file, with ``source`` as in ``save``."""
    sizes = by_size(results)
    width, height = SIZES[min(len(sizes), max(SIZES))]
    grid = {"figsize": (width * len(sizes), height), "squeeze": False, "layout": "constrained"}
    figure, panels = load_pyplot().subplots(1, len(sizes), **grid)
    for panel, (size, models) in zip(panels[0], sizes.items()):
        lengths = sorted({length for points in models.values() for length in points})
        for number, (model, points) in enumerate(models.items()):
            places = [lengths.index(length) + 0.4 * (number - (len(models) - 1) / 2) for length in points]
            heights = [point["tokens_per_second"] for point in points.values()]
            style: Dict[str, Any] = {"label": TITLES[model], "color": COLOURS[list(TITLES).index(model)]}
            bars = panel.bar(places, heights, 0.38, **style)
            panel.bar_label(bars, [f"{height:,.0f}" for height in heights], fontsize=8)
        panel.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
        panel.set(title=size.upper() if len(sizes) > 1 else "", xlabel="context (tokens)")
        panel.set_ylabel("tokens per second of a device")
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.margins(y=0.25)
        panel.legend(loc="upper center", ncols=len(models))
    save(figure, output, source)


def megalodon_report(
    description: str,
    benchmark: str,
    tables: Sequence[Callable[[Sequence[Result]], Table]],
    plot: Callable[[Sequence[Result], Path], None],
) -> Report:
    """Return the report of a figure of MEGALODON, which requires that the first table has rows."""

    def run(options: argparse.Namespace) -> None:
        results = selected_results(options, benchmark)
        found = [table(results) for table in tables]
        if not found[0].rows:
            recipe = benchmark.replace("-", "/")
            raise ResultError(f"{options.results} has no result of {benchmark} to draw: run the recipe {recipe}")
        show(options, [table for table in found if table.rows], results)
        plot(results, options.output)
        print(f"plot: {options.output}")
        warn_of_smoke(options.smoke)

    return Report(description, add_drawing, run)


REPORTS = {
    "figure4": arena_report(
        "Plot MEGA's Figure 4: accuracy over the EMA's dimensions and over the chunk.",
        figure4,
        "of the left panel",
    ),
    "figure5": arena_report(
        "Plot MEGA's Figure 5: validation curves on Pathfinder.",
        figure5,
        "attention chunk",
    ),
    "figure6": Report(
        "Plot MEGA's Figure 6: perplexity over the context and over the chunk.", add_figure6, print_figure6
    ),
    FIGURE1: megalodon_report(
        "Plot MEGALODON's Figure 1 scaled down: losses over bytes and contexts.",
        FIGURE1,
        [training_table, context_table],
        plot_megalodon_figure1,
    ),
    FIGURE4: megalodon_report(
        "Plot MEGALODON's Figure 4: training speed over the context.", FIGURE4, [speed_table], plot_megalodon_figure4
    ),
    FIGURE5: megalodon_report(
        "Plot MEGALODON's Figure 5: perplexity over the context.", FIGURE5, [perplexity_table], plot_megalodon_figure5
    ),
}
