"""Models that were trained alike: small classifiers, language models and translators, as reports and for documents."""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS, Result
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.alike import PRECISIONS, check_alike
from fairseq_mega.lab.report.numbers import mean_and_deviation, pivot
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.plotting import COLOURS, DASHES, MARKERS, Line, Panel, draw_panels
from fairseq_mega.lab.runs.report import (
    Report,
    add_format,
    add_results,
    other_settings,
    selected_results,
    show,
    warn_of_smoke,
)
from fairseq_mega.lab.runs.results import ResultError, read_files, read_result, read_results, with_changes
from fairseq_mega.lab.runs.text_tables import Table, table_of

CLASSIFIERS, LANGUAGE_MODELS = "compare-classifiers", "compare-language-models"  # benchmarks of the scripts
TITLES = {  # of classifiers
    "mega": "MEGA",
    "mega-n0": "MEGA without EMA (N = 0)",
    "transformer": "Transformer, full attention",
    "megalodon": "MEGALODON (our interpretation)",
}
MINIATURE = {
    "transformer": "Transformer",
    "s4d": "S4D",
    "mega": "MEGA",
    "mega_chunk": "MEGA-chunk",
    "megalodon_chunk": "MEGALODON-chunk",
}
MODELS = {  # of language
    "transformer": "Transformer",
    "llama": "Llama-style",
    "mega": "MEGA",
    "megalodon": "MEGALODON",
    "megalodon_one_hop": "MEGALODON, one hop",
}
METRICS = {"sacrebleu": ("BLEU", 2), "perplexity": ("perplexity", 2), "bits_per_token": ("bits per token", 4)}
TEXTS = {"wikitext2": "WikiText-2", "gcide_bytes": "bytes of a dictionary"}
SCHEDULES = {"inverse_sqrt": "inverse square root", "linear_decay": "linear decay"}
KINDS = {"fp32": "float32", "bf16": "bfloat16"}  # precisions
QUICKSTART = {"sacrebleu": "sacreBLEU", "bits_per_token": "bits per byte"}  # metrics


def model_of(result: Result) -> str:
    """Return the model of a result, a key of its titles."""
    return str(result["settings"].get("model", result["label"]))


# The classifiers of scripts/compare_classifiers.sh.


def schedule(result: Result) -> Tuple[int, float]:
    """Return the updates and the peak learning rate of a training."""
    return result["settings"]["updates"], float(result["settings"]["lr"])


def order(result: Result) -> Tuple[int, int, Tuple[int, float], int]:
    """Sort key: tasks as in MEGA's Table 2, MEGA first, ascending updates, learning rates and seeds."""
    task = list(TASKS).index(result["settings"]["task"])
    return task, list(TITLES).index(model_of(result)), schedule(result), result["seed"]


def title(result: Result, name: str, with_chunk: bool = True) -> str:
    """Return the name of a classifier with its chunk, and the changes of its recipe."""
    chunk = f", chunk {result['settings']['chunk']}" if with_chunk and model_of(result) != "transformer" else ""
    return name + chunk + with_changes(result, "model.encoder_chunk_size")


def classifier_row(result: Result) -> Dict[str, str]:
    """Return the cells of a classifier, by the titles of their columns."""
    scores, settings = result["scores"], result["settings"]
    seconds, memory = scores.get("seconds_per_epoch"), scores.get("peak_memory_gib")
    best, batch = scores.get("best_valid_accuracy"), settings.get("batch")  # none for given weights
    return {
        "task": TASKS[settings["task"]].title,
        "model": title(result, TITLES[model_of(result)]),
        "learning rate": str(settings["lr"]),
        "seed": str(result["seed"]),
        "parameters": f"{settings['parameters']:,}",
        "updates x examples": f"{settings['updates']:,} x {batch}" if batch else f"{settings['updates']:,}",
        "test accuracy": f"{scores['test_accuracy']:.2f} % of {result['examples']:,}",
        "best validation accuracy": "-" if best is None else f"{best:.2f} %",
        "examples/s in training": "-" if seconds is None else f"{settings['train_examples'] / seconds:,.1f}",
        "peak GiB": "-" if memory is None else f"{memory:.2f}",
    }


def plot_classifiers(results: Sequence[Result], output: Path, source: Optional[str] = None) -> None:
    """Draw validation accuracies, a panel per task: colour and marker show the model, dashes the schedule."""
    chunks = {result["settings"]["chunk"] for result in results if model_of(result) != "transformer"}
    panels = []
    for task in TASKS:
        found = [result for result in results if result["settings"]["task"] == task and "curve" in result]
        schedules = sorted({schedule(result) for result in found})
        lines: List[Line] = []
        for result in found:
            updates, rate = schedule(result)
            name = title(result, re.split(r",| \(", TITLES[model_of(result)])[0], len(chunks) > 1)
            model = list(TITLES).index(model_of(result))
            dashes = DASHES[schedules.index((updates, rate)) % len(DASHES)]
            style = {"color": COLOURS[model], "marker": MARKERS[model], "linestyle": dashes}
            points = [(point["updates"], point["accuracy"]) for point in result["curve"]]
            lines.append(Line(points, f"{name}, {updates:,} updates, learning rate {rate:g}", style))
        axes = {"title": TASKS[task].title, "xlabel": "updates", "ylabel": "validation accuracy (%)"}
        panels += [Panel(lines, axes)] if lines else []
    draw_panels(panels, output, source=source)


def add_classifiers(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``classifiers``."""
    parser.add_argument("results", type=Path, nargs="+", help="folders of result files")
    parser.add_argument("--benchmark", default=CLASSIFIERS, help="name in the result files (default: %(default)s)")
    add_format(parser, "markdown")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the validation accuracies")


def print_classifiers(options: argparse.Namespace) -> None:
    """Print the table of classifiers, and draw the plot."""
    results = sorted(
        (result for folder in options.results for result in read_results(folder, options.benchmark)), key=order
    )
    if not results:
        where = ", ".join(map(str, options.results))
        raise ResultError(f"no result of {options.benchmark} in {where}: run scripts/compare_classifiers.sh")
    show(options, [table_of(list(map(classifier_row, results)))])
    warn_of_smoke(options.benchmark.endswith("-smoke"))
    if options.plot and not any("curve" in result for result in results):
        print(f"{options.plot} is not drawn: given weights have no curve of a training", file=sys.stderr)
    elif options.plot:
        plot_classifiers(results, options.plot, digest(results) if options.plot.suffix == ".png" else None)


def classifiers(folder: Path, words: Sequence[str]) -> List[Result]:
    """Return the results of classifiers in some folders, whose names may contain wildcards."""
    places = [place for word in words for place in sorted(folder.glob(word))]
    return sorted((result for place in places for result in read_results(place, CLASSIFIERS)), key=order)


def miniature_classifiers(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each task, schedule and seed below a folder, and a column for each model with results."""
    (name,) = words
    places = sorted({path.parent for path in (folder / name).rglob("*.json")})
    found = [result for place in places for result in read_results(place, CLASSIFIERS)]
    models = [model for model in TITLES if model in map(model_of, found)]

    def key(result: Result) -> Tuple[Any, ...]:
        (updates, rate), batch = schedule(result), result["settings"]["batch"]
        return order(result)[0], updates, batch, rate, result["seed"], result["examples"]

    cells: List[Tuple[Dict[str, str], str, Any]] = []
    for result in sorted(found, key=key):
        task, (updates, rate) = result["settings"]["task"], schedule(result)
        head = {
            "task": f"{TASKS[task].title}, the paper, fully trained",
            **dict.fromkeys(("updates x examples", "learning rate", "test examples"), ""),
        }
        papers = {"mega": "mega_chunk", "transformer": "transformer"}
        for model, recipe in papers.items():
            (value,) = paper_values("table2", recipe, [task])
            cells += [(head, TITLES[model], value)] if model in models else []
        head = {
            "task": f"{TASKS[task].title}, seed {result['seed']}",
            "updates x examples": f"{updates:,} x {result['settings']['batch']}",
            "learning rate": f"{rate:g}",
            "test examples": f"{result['examples']:,}",
        }
        cells.append((head, TITLES[model_of(result)], result["scores"]["test_accuracy"]))
    return pivot(cells, [TITLES[model] for model in models], best=max, last=1)


# The Long Range Arena in miniature, from the files of the cells.


def cells_in(folder: Path) -> List[Result]:
    """Return the cells of the miniature in a folder.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ResultError: if there is no cell, a cell is damaged, or two files of one cell have different settings.
    """
    files = read_files(folder, "cell")
    files = {path: result for path, result in files.items() if result["settings"]["report"] == "miniature"}
    if not files:
        raise ResultError(f"no cell of the miniature in {folder}: run fairseq-mega-reproduce miniature")
    check_alike(files)
    return list(files.values())


def miniature_table(results: Sequence[Result]) -> Table:
    """Return a row for each model and each recipe of a user's own, a column for each task: accuracy, learning rate."""
    by_model: Dict[str, Dict[str, Result]] = {}
    for result in results:
        recipe = str(result["settings"]["recipe"])
        model = recipe.rpartition("/")[2] if recipe in catalogue() else recipe
        by_model.setdefault(model, {})[result["settings"]["task"]] = result
    tasks = [task for task in TASKS if any(task in own for own in by_model.values())]
    rows = []
    for model in [*filter(by_model.get, MINIATURE), *sorted(by_model.keys() - MINIATURE.keys())]:
        sizes = [result["settings"]["parameters"] for result in by_model[model].values()]  # differ by tasks' tokens
        extremes = " to ".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)}))
        row = {"model": MINIATURE.get(model, model), "parameters": extremes}
        for task in tasks:
            cell = by_model[model].get(task, {"scores": {}})
            spread = f" ± {cell['scores']['deviation']:.2f}" if "deviation" in cell["scores"] else ""
            row[TASKS[task].title] = (
                f"{cell['scores']['test_accuracy']:.2f}{spread} ({cell['settings']['lr']:g})" if cell["scores"] else "-"
            )
        rows.append(row)
    return table_of(rows)


def miniature_notes(results: Sequence[Result]) -> List[str]:
    """Return lines that explain the numbers of the miniature and list the missing runs."""
    runs = [run for result in results for run in result["runs"]]
    seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))
    rates = ", ".join(f"{rate:g}" for rate in sorted({run["lr"] for run in runs}))
    missing = ", ".join(name for result in results for name in result["missing"])
    return [
        f"Test accuracy, mean and standard deviation over the seeds {seeds}, at the learning rate (in parentheses, of "
        f"{rates}) of the best mean accuracy on the validation set.",
        *([f"Missing: {missing}"] if missing else []),
    ]


def add_miniature(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``miniature``."""
    add_results(parser)
    parser.set_defaults(format="markdown")


def print_miniature(options: argparse.Namespace) -> None:
    """Print the miniature."""
    results = cells_in(options.results)
    show(options, [miniature_table(results)], (), [*miniature_notes(results), *other_settings(results)])
    warn_of_smoke(any(result["settings"]["data"] == "invented" for result in results))


def miniature(folder: Path, words: Sequence[str]) -> Table:
    """Return the table of the miniature, from a folder with a file for each cell."""
    (name,) = words
    return miniature_table(cells_in(folder / name))


# Language models.


def context_of(settings: Dict[str, Any]) -> str:
    """Return the context of a token, in words."""
    if settings.get("longest_segment") is not None:
        mean = f"{settings['mean_segment']:,.0f}"
        return f"segments of {mean} tokens, all of them seen" if settings.get("segments") != 1 else "the whole text"
    block, window = settings["trained_chunk_or_block"], settings.get("context_window")
    return f"blocks of {block}" if window is None else f"the last {window} to {block}"


def language_model_row(result: Result) -> Dict[str, str]:
    """Return the cells of a language model, by titles of columns; a recipe's with text, learning rate, seed."""
    settings, scores = result["settings"], result["scores"]
    name = str(result["label"])
    if "recipe" in settings:
        name = f"{settings['task']}: {settings['model']}, learning rate {settings['lr']:g}, seed {result['seed']}"
        name += with_changes(result)
    streamed = settings.get("longest_segment") is not None
    return {
        "model": name,
        "parameters": f"{settings['parameters']:,}",
        "context": context_of(settings),
        "chunk": str(settings.get("chunk_size", settings["trained_chunk_or_block"])) if streamed else "-",
        "tokens scored": f"{result['examples']:,}",
        "perplexity": f"{scores['perplexity']:.2f}",
        "bits per token": f"{scores['bits_per_token']:.4f}",
        "tokens/s": f"{scores['tokens_per_second']:,.0f}",
    }


def add_language_models(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``language-models``."""
    parser.add_argument("results", type=Path, help="folder of result files")
    parser.add_argument("--benchmark", default="language-modeling", help="name in the result files")
    add_format(parser, "markdown")


def print_language_models(options: argparse.Namespace) -> None:
    """Print a row for each result: models by name, contexts from short to long."""
    results = read_results(options.results, options.benchmark)
    if not results:
        raise ValueError(f"{options.results} contains no result of {options.benchmark!r}")

    def key(result: Result) -> Tuple[str, float]:
        settings = result["settings"]
        return language_model_row(result)["model"], settings.get("mean_segment") or settings.get("context_window") or 0

    show(options, [table_of(list(map(language_model_row, sorted(results, key=key))))])
    warn_of_smoke(options.benchmark.endswith("-smoke"))


def context(result: Result) -> Tuple[int, str]:
    """Return the context of a token, as a number for sorting and in words."""
    settings = result["settings"]
    block, window = settings["trained_chunk_or_block"], settings.get("context_window") or 0
    if settings.get("segments") == 1:
        return 10**12, "the whole text"
    if settings.get("context") is not None:
        chunks, mean = settings["context"] // block, settings["mean_segment"]
        plural = "" if chunks == 1 else "s"
        return settings["context"], f"segments of whole lines, up to {chunks} chunk{plural} ({mean:,.0f} on average)"
    return window, f"at least {window} of {block}" if window else f"blocks of {block}"


def rate_of(folder: Path) -> str:
    """Return the peak learning rate of a folder of results."""
    return folder.name.partition("lr")[2]


def language_models(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model and context, and a column for each learning rate; the better one is bold."""
    name, metric = words
    rates = sorted((folder / name).glob("lr*"), key=lambda rate: float(rate_of(rate)))
    found = [
        ((list(MODELS).index(model_of(result)), *context(result)), f"learning rate {rate_of(rate)}", result)
        for rate in rates
        for result in read_results(rate, LANGUAGE_MODELS)
        if result["settings"].get("exact_context") is None
    ]
    cells = []
    for (model, _, seen), rate, result in sorted(found, key=lambda one: one[0]):
        size = f"{result['settings']['parameters']:,}"
        head = {"model": list(MODELS.values())[model], "parameters": size, "context": seen}
        cells.append((head, rate, result["scores"][metric]))
    digits = METRICS[metric][1]
    return pivot(cells, [f"learning rate {rate_of(rate)}" for rate in rates], f"{{:.{digits}f}}".format, min)


def remembered(folder: Path, words: Sequence[str]) -> Table:
    """Return the score over the tokens remembered, with a row for each model of each FOLDER METRIC."""
    cells, limits = [], set()
    for name, metric in zip(words[::2], words[1::2]):
        place, (unit, digits) = folder / name, METRICS[metric]
        text = TEXTS.get(place.parent.name, place.parent.name)
        for result in sorted(read_results(place, LANGUAGE_MODELS), key=lambda one: list(MODELS).index(model_of(one))):
            limit = result["settings"].get("exact_context")
            if limit is not None or result["settings"].get("segments") == 1:
                row = f"{text}, {MODELS[model_of(result)]}, learning rate {rate_of(place)}: {unit}"
                score = f"{result['scores'][metric]:.{digits}f}"
                cells.append(({"tokens remembered at most": row}, "all" if limit is None else f"{limit:,}", score))
                limits.add(limit)
    return pivot(cells, [f"{limit:,}" for limit in sorted(limits - {None})] + ["all"])


def rates(folder: Path, words: Sequence[str]) -> Table:
    """Return the losses of a model's learning rates, MODEL RATE among a file's scores; the lowest loss is bold."""
    (name,) = words
    losses = [(*key.split(), loss) for key, loss in read_result(folder / name)["scores"].items()]
    losses.sort(key=lambda one: list(MODELS).index(one[0]))
    cells = (({"model": MODELS[model]}, f"learning rate {float(rate):g}", loss) for model, rate, loss in losses)
    return pivot(cells, text="{:.3f}".format, best=min)


# Translations, and models of all kinds.


def option_of(command: str, name: str) -> str:
    """Return the value of an option in a command line; empty without the option."""
    words = shlex.split(command)
    return words[words.index(name) + 1] if name in words[:-1] else ""


def test_sets(folder: Path, words: Sequence[str]) -> Table:
    """Return BLEU of each training of a benchmark, with a column for each test set; a set's best score is bold."""
    name, benchmark = words
    found = read_results(folder / name, benchmark)
    found.sort(key=lambda result: (result["label"].startswith("mega"), result["label"]))
    scores = [(result, result["settings"]["test"], result["scores"]["sacrebleu"]) for result in found]
    best = {test: max(score for _, of_set, score in scores if of_set == test) for _, test, _ in scores}
    cells = []
    for result, test, score in scores:
        options = ("--lr", "--lr-scheduler", "--warmup-updates")
        rate, scheduler, warmup = (option_of(result["command"], option) for option in options)
        head = {
            "model": f"{'MEGA' if result['label'].startswith('mega') else 'Transformer'}, seed {result['seed']}",
            "learning rate": f"{float(rate):g}, {SCHEDULES.get(scheduler, scheduler)}, {warmup} warm-up updates",
        }
        cells.append((head, test, f"**{score:.1f}**" if score == best[test] else f"{score:.1f}"))
    return pivot(cells, sorted(best))


def precisions(folder: Path, words: Sequence[str]) -> Table:
    """Return mean and deviation over seeds of each model and test set below a folder, with a column per precision."""
    (name,) = words
    found: Dict[Tuple[str, ...], Dict[str, List[float]]] = {}
    results = [read_result(path) for path in sorted((folder / name).rglob("*.json"))]
    for result in results:
        settings = result["settings"]
        metric = next(metric for metric in METRICS if metric in result["scores"])
        row = (MODELS.get(result["label"], result["label"]), settings.get("test", settings.get("subset", "")), metric)
        found.setdefault(row, {}).setdefault(settings["precision"], []).append(result["scores"][metric])
    cells = []
    for (model, test, metric), values in sorted(found.items()):
        unit, digits = METRICS[metric]
        head = {"model": model, "text": test, f"score, {len({one['seed'] for one in results})} seeds": unit}
        cells += [
            (head, KINDS.get(kind, kind), mean_and_deviation(values[kind], digits))
            for kind in PRECISIONS
            if kind in values
        ]
    return pivot(cells)


# The quick start.


def print_quickstart(options: argparse.Namespace) -> None:
    """Print a row for each result of the quick start."""
    results = selected_results(options, "quickstart")
    if not results:
        raise ResultError(f"{options.results} has no result of the quick start")
    rows = [
        {
            "task": result["settings"]["task"],
            "seed": str(result["seed"]),
            "scored": f"{result['examples']:,}",
            "score": ", ".join(
                f"{result['scores'][metric]:.3f} {unit}"
                for metric, unit in QUICKSTART.items()
                if metric in result["scores"]
            ),
        }
        for result in results
    ]
    show(options, [table_of(rows)], results)
    warn_of_smoke(options.smoke)


REPORTS = {
    "miniature": Report("Print the Long Range Arena in miniature.", add_miniature, print_miniature),
    "classifiers": Report(
        "Print the classifiers of scripts/compare_classifiers.sh as a table.", add_classifiers, print_classifiers
    ),
    "language-models": Report(
        "Print the scores of language models over contexts and chunks.", add_language_models, print_language_models
    ),
    "quickstart": Report("Print the scores of the quick start's recipes.", add_results, print_quickstart),
}
TABLES = {
    "megalodon-figure1-rates": rates,
    "language-models": language_models,
    "remembered-tokens": remembered,
    "miniature": miniature,
    "miniature-classifiers": miniature_classifiers,
    "test-sets": test_sets,
    "precisions": precisions,
}
