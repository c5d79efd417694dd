"""Print MEGA's Table 2, 3 or 4 with what was measured under the paper's rows.

python -m fairseq_mega.reports.lra_tables 2 RESULTS [--speed FILE]
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.reports.results import read_result, read_results

Result = Dict[str, Any]
BENCHMARK = "lra"


class Task(NamedTuple):
    """A task: its title, MEGA's attention function, the chunk of MEGA-chunk, and the accuracy that shows learning.

    Below ``learned`` per cent of the validation set a run has not left chance: a tenth or a half, a few points for
    what the classes' unequal shares give (the most frequent of ListOps has a sixth of the examples).
    """

    title: str
    attention: str
    chunk: int
    learned: float


TASKS = {
    "listops": Task("ListOps", "softmax", 128, 20.0),
    "text": Task("Text", "softmax", 128, 54.0),
    "retrieval": Task("Retrieval", "softmax", 128, 54.0),
    "image": Task("Image", "laplace", 128, 14.0),
    "pathfinder": Task("Pathfinder", "laplace", 128, 54.0),
    "pathx": Task("Path-X", "laplace", 4096, 54.0),
    "speech": Task("Speech", "laplace", 1000, 14.0),
}
LRA = [task for task in TASKS if task != "speech"]
EMA_DIM = 16
REMEDY = (
    "Whether a run leaves chance can depend on the seed (google-research/long-range-arena#37): give further --seeds. "
    "If several stay there, lower the peak rate or lengthen the warm-up (state-spaces/s4#82), for instance with "
    "-- --lr 0.004 --warmup-updates 50000 and another --out. Pathfinder and Path-X may need tens of epochs to leave it."
)

# MEGA (Ma et al., ICLR 2023), Table 2: mean of 5 seeds, in the order of LRA; average, speed and memory beside the
# Transformer's, training on Text with 4K input.
TABLE2: Dict[str, Tuple[str, ...]] = {
    "Transformer": ("37.11", "65.21", "79.14", "42.94", "71.83", "fails", "59.24", "1x", "1x"),
    "Luna-256": ("37.98", "65.78", "79.56", "47.86", "78.55", "fails", "61.95", "4.9x", "0.16x"),
    "S4-v2 (re-run)": ("59.10", "86.53", "90.94", "88.48", "94.01", "96.07", "85.86", "4.8x", "0.14x"),
    "MEGA": ("63.14", "90.43", "91.25", "90.44", "96.01", "97.98", "88.21", "2.9x", "0.31x"),
    "MEGA-chunk": ("58.76", "90.19", "90.97", "85.80", "94.41", "93.81", "85.66", "5.5x", "0.13x"),
}
SPEED_NAMES = {"Transformer": "transformer", "MEGA": "mega", "MEGA-chunk": "mega-chunk"}
# Table 3: Text and Image, full attention.
TABLE3 = {"softmax": ("90.43", "89.87"), "relu2": ("90.08", "90.22"), "laplace": ("90.22", "90.43")}
# Table 4: parameters and accuracy; S4 is the paper's re-run.
TABLE4 = {
    "Transformer": ("786K", "not runnable"),
    "S4": ("300K", "97.50"),
    "MEGA-chunk base": ("300K", "96.92"),
    "MEGA-chunk big": ("476K", "97.30"),
}


def select(results: Sequence[Result], **settings: Any) -> List[Result]:
    """The results whose settings have these values."""
    return [result for result in results if all(result["settings"][key] == settings[key] for key in settings)]


def mega(results: Sequence[Result], task: str, chunk: int, attention: str = "", ema_dim: int = EMA_DIM) -> List[Result]:
    """Results of MEGA with an attention function (default: the task's)."""
    function = attention or TASKS[task].attention
    return select(results, task=task, model="mega", chunk=chunk, attention=function, ema_dim=ema_dim)


def partial(result: Result) -> bool:
    """Whether a training had fewer updates than the paper's."""
    return bool(result["settings"]["updates"] < result["settings"]["published_updates"])


def stuck(result: Result) -> bool:
    """Whether a training never left chance."""
    return bool(result["scores"]["best_valid_accuracy"] < TASKS[result["settings"]["task"]].learned)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean, and from two values on the standard deviation."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ±{statistics.stdev(values):.{digits}f}"


def cell(results: Sequence[Result]) -> str:
    """Test accuracy of the seeds of one setting; a star where a training was shorter than the paper's."""
    if not results:
        return "-"
    star = "*" if any(map(partial, results)) else ""
    return spread([result["scores"]["test_accuracy"] for result in results]) + star


def learned(results: Sequence[Result]) -> str:
    """How many of the seeds left chance."""
    return f"{sum(not stuck(result) for result in results)}/{len(results)}" if results else "-"


def average(cells: Sequence[Sequence[Result]]) -> str:
    """Mean over tasks, if each was measured."""
    if not all(cells):
        return "-"
    means = [statistics.mean(result["scores"]["test_accuracy"] for result in results) for results in cells]
    return f"{statistics.mean(means):.2f}" + ("*" if any(partial(result) for some in cells for result in some) else "")


def row(title: str, cells: Sequence[str], width: int = 14) -> str:
    """A line of a table."""
    return title.ljust(30) + "".join(text.rjust(width) for text in cells)


def measured_rows(name: str, cells: Sequence[Sequence[Result]], last: Sequence[str]) -> List[str]:
    """Two lines under the paper's row, or one that says there is nothing yet."""
    if not any(cells):
        return [row(name, ["not yet", *["-"] * (len(cells) - 1), *last])]
    accuracies = [*map(cell, cells), *last]
    return [row(name, accuracies), row("  runs that left chance", list(map(learned, cells)))]


def speed_cells(speed: Optional[Result], name: str) -> List[str]:
    """Speed and memory of a model beside those of the first one that was measured."""
    scores = speed["scores"] if speed is not None else {}
    keys = [f"{SPEED_NAMES.get(name)} {what}" for what in ("speed", "memory")]
    return [f"{scores[key]:.2f}x" if key in scores else "-" for key in keys]


def table2(results: Sequence[Result], speed: Optional[Result] = None) -> List[str]:
    """Accuracy of all tasks; MEGA-chunk once more for chunks that are not the paper's."""
    lines = [row("Table 2, test accuracy", [TASKS[task].title for task in LRA] + ["average", "speed", "memory"])]
    for name, paper in TABLE2.items():
        lines.append(row(f"{name}, paper", paper))
        if name not in SPEED_NAMES:
            continue
        cells = [
            select(results, task=task, model="transformer")
            if name == "Transformer"
            else mega(results, task, TASKS[task].chunk if name == "MEGA-chunk" else -1)
            for task in LRA
        ]
        lines += measured_rows("  measured", cells, [average(cells), *speed_cells(speed, name)])
    usual = {task: {-1, TASKS[task].chunk} for task in LRA}
    others = {result["settings"]["chunk"] for task in LRA for result in select(results, task=task, model="mega")}
    for chunk in sorted(others):
        cells = [[] if chunk in usual[task] else mega(results, task, chunk) for task in LRA]
        if any(cells):
            lines += measured_rows(f"MEGA-chunk, C = {chunk}, measured", cells, ["-", "-", "-"])
    if speed is not None:
        gpus = speed["hardware"].get("gpus") or [speed["hardware"].get("processor", "CPU")]
        base = speed["settings"].get("models", "transformer").split(",")[0]
        lines.append(f"speed and memory measured: {speed['label']}, beside {base} (1x), on {gpus[0]}")
    return lines


def table3(results: Sequence[Result], chunk: int) -> List[str]:
    """Accuracy of the attention functions."""
    attention = "full attention" if chunk < 0 else f"chunks of {chunk}"
    lines = [row("Table 3, test accuracy", ["Text", "Image"])]
    for function, paper in TABLE3.items():
        cells = [mega(results, task, chunk, function) for task in ("text", "image")]
        lines.append(row(f"{function}, paper", paper))
        lines += measured_rows(f"  measured, {attention}", cells, [])
    return lines


def scaling_of(result: Result) -> str:
    """How the samples of speech were scaled, for a title; nothing where that is not known (the authors' tensors)."""
    scaling = result["settings"].get("scaling")
    return f", scaled {scaling}" if scaling else ""


def table4(results: Sequence[Result], chunk: int) -> List[str]:
    """Parameters and accuracy on raw speech."""
    lines = [row("Table 4, test accuracy", ["parameters", "SC10"])]
    for name, paper in TABLE4.items():
        lines.append(row(f"{name}, paper", paper))
        if name.startswith("MEGA"):
            runs = select(results, task="speech", model=f"mega-{name.split()[-1]}", chunk=chunk)
            for scaling in sorted({scaling_of(run) for run in runs}) or [""]:
                found = [run for run in runs if scaling_of(run) == scaling]
                size = f"{found[0]['settings']['parameters']:,}" if found else "-"
                title = f"  measured, C = {chunk}{scaling}"
                lines.append(row(title, [size, cell(found) if found else "not yet"]))
                lines += [row("  runs that left chance", ["", learned(found)])] if found else []
    return lines


def name_of(result: Result) -> str:
    """Task and model of a result, without the seed."""
    settings = result["settings"]
    if settings["model"] == "transformer":
        return f"{settings['task']} transformer"
    chunk = "full" if settings["chunk"] < 0 else f"C={settings['chunk']}"
    name = f"{settings['task']} {settings['model']} {settings['attention']} N={settings['ema_dim']} {chunk}"
    return name + scaling_of(result)


def run_lines(results: Sequence[Result]) -> List[str]:
    """What was spent on each setting, and where it stood early."""
    titles = ["seeds", "updates", "of", "early valid.", "at epoch", "s per epoch", "peak GiB", "parameters"]
    lines = ["", row("Runs", titles, 14).replace("Runs".ljust(30), "Runs".ljust(42))]
    groups: Dict[str, List[Result]] = {}
    for result in results:
        groups.setdefault(name_of(result), []).append(result)
    for name, group in groups.items():
        cells = [",".join(str(result["seed"]) for result in group)]
        for key in ("updates", "published_updates"):
            cells.append("/".join(f"{value:,}" for value in sorted({result["settings"][key] for result in group})))
        cells.append(f"{statistics.mean(result['scores']['early_valid_accuracy'] for result in group):.2f}")
        cells.append("/".join(map(str, sorted({result["settings"]["early_epoch"] for result in group}))))
        for key, digits in (("seconds_per_epoch", 1), ("peak_memory_gib", 2)):
            values = [result["scores"][key] for result in group if key in result["scores"]]
            cells.append(f"{statistics.mean(values):,.{digits}f}" if values else "-")
        cells.append(f"{group[0]['settings']['parameters']:,}")
        where = group[0]["settings"]["trained_on"]
        place = group[0]["hardware"]["processor"] if where == "cpu" else f"{len(where)} x {where[0]}"
        lines.append(name.ljust(42) + "".join(text.rjust(14) for text in cells) + f"  on {place}")
    return lines


def notes(results: Sequence[Result]) -> List[str]:
    """What must be said of the runs: those stuck at chance, and those that were short."""
    lines = []
    for result in filter(stuck, results):
        accuracy = result["scores"]["best_valid_accuracy"]
        text = f"STUCK AT CHANCE: {name_of(result)}, seed {result['seed']}: best validation accuracy {accuracy:.2f} %"
        settings = result["settings"]
        short = f" (after {settings['updates']:,} of {settings['published_updates']:,} updates: too early to tell)"
        lines.append(text + (short if partial(result) else ""))
    if lines:
        lines.append(REMEDY)
    if any(map(partial, results)):
        lines.append("* fewer updates than in the paper, see the runs: not comparable with the paper's numbers")
    return lines


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="lra_tables", description=__doc__)
    add = parser.add_argument
    add("table", type=int, choices=(2, 3, 4), help="number of the table")
    add("results", type=Path, help="folder of result files")
    add("--speed", type=Path, help="result file of python -m fairseq_mega.benchmarks lra-speed, for Table 2")
    add("--chunk", type=int, help="chunk of Tables 3 (default: -1, full attention) and 4 (default: 1000)")
    add("--smoke", action="store_true", help="read the results of a --smoke run")
    options = parser.parse_args(arguments)
    try:
        results = read_results(options.results, BENCHMARK + ("-smoke" if options.smoke else ""))
        speed = None if options.speed is None else read_result(options.speed)
    except (OSError, ValueError) as error:
        print(f"lra_tables: error: {error}", file=sys.stderr)
        return 1
    if options.table == 2:
        lines, used = table2(results, speed), select(results, model="transformer")
        chunks = sorted({result["settings"]["chunk"] for result in results})
        used += [run for task in LRA for chunk in chunks for run in mega(results, task, chunk)]
    elif options.table == 3:
        chunk = -1 if options.chunk is None else options.chunk
        lines = table3(results, chunk)
        used = [run for task in ("text", "image") for kind in TABLE3 for run in mega(results, task, chunk, kind)]
    else:
        chunk = options.chunk or TASKS["speech"].chunk
        lines, used = table4(results, chunk), select(results, task="speech", chunk=chunk)
    print("\n".join([*lines, *(run_lines(used) if used else []), *notes(used)]))
    print("paper: mean of 5 seeds; measured: test accuracy of the checkpoint of best validation accuracy")
    if options.smoke:
        print("SMOKE RUN on made-up data: these numbers mean nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
