"""Models that were trained alike: small classifiers, language models and translators, as reports and for documents."""

import argparse
import re
import shlex
import statistics
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.report.alike import PRECISIONS, Contents, check_alike, report_of, scores_of
from fairseq_mega.lab.report.numbers import FORMS, mean_and_deviation, pivot, record_of
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.plotting import Line, Panel, look
from fairseq_mega.lab.runs.report import other_settings
from fairseq_mega.lab.runs.results import Result, chosen_runs, read_files, read_result, read_results, with_changes
from fairseq_mega.lab.runs.text_tables import Table

CLASSIFIERS, LANGUAGE_MODELS = "compare-classifiers", "compare-language-models"  # benchmarks of the scripts
TITLES = FORMS["classifiers"].titles
MODELS = FORMS["language-models-of"].titles
METRICS = {"sacrebleu": ("BLEU", 2), "perplexity": ("perplexity", 2), "bits_per_token": ("bits per token", 4)}
TEXTS = {"wikitext2": "WikiText-2", "gcide_bytes": "bytes of a dictionary"}
SCHEDULES = {"inverse_sqrt": "inverse square root", "linear_decay": "linear decay"}
KINDS = {"fp32": "float32", "bf16": "bfloat16"}  # precisions


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
    return name + chunk + with_changes(result, "optimization.lr", "model.encoder_chunk_size")


def classifier_panels(results: Sequence[Result]) -> List[Panel]:
    """Return validation accuracies, a panel per task: colour and marker show the model, dashes the schedule."""
    chunks = {result["settings"]["chunk"] for result in results if model_of(result) != "transformer"}
    panels = []
    for task in TASKS:
        found = [result for result in results if result["settings"]["task"] == task and "curve" in result]
        schedules = sorted({schedule(result) for result in found})
        lines = []
        for result in found:
            updates, rate = schedule(result)
            name = title(result, re.split(r",| \(", TITLES[model_of(result)])[0], len(chunks) > 1)
            dashes = look(schedules.index((updates, rate)))["linestyle"]
            style = {**look(list(TITLES).index(model_of(result))), "linestyle": dashes}
            points = [(point["updates"], point["accuracy"]) for point in result["curve"]]
            lines.append(Line(points, f"{name}, {updates:,} updates, learning rate {rate:g}", style))
        axes = {"title": TASKS[task].title, "xlabel": "updates", "ylabel": "validation accuracy (%)"}
        panels += [Panel(lines, axes)] if lines else []
    return panels


def training_panels(results: Sequence[Result]) -> List[Panel]:
    """Return validation accuracies over updates, and over hours where they were recorded."""
    heights = [point["accuracy"] for result in results for point in result["curve"]]
    limits = {"ylim": (min(heights) - 2, max(heights) + 2)}
    panels = []
    for key, label in {"updates": "updates", "hours": "hours of training"}.items():
        lines = []
        for number, result in enumerate(results):
            settings = result["settings"]
            model = catalogue()[settings["recipe"]].number.rpartition(", ")[2]
            on = "CPU" if settings["trained_on"] == "cpu" else "GPU"
            name = f"{model}, learning rate {settings['lr']:g}, seed {result['seed']}, {on}"
            points = [(point[key], point["accuracy"]) for point in result["curve"] if key in point]
            lines += [Line(points, name, look(number))] if points else []
        panels += [Panel(lines, {"xlabel": label, "ylabel": "validation accuracy (%)", **limits})] if lines else []
    return panels


def classifiers(folder: Path, words: Sequence[str]) -> List[Result]:
    """Return the results of classifiers in some folders, whose names may contain wildcards."""
    places = [place for word in words for place in sorted(folder.glob(word))]
    return sorted((result for place in places for result in read_results(place, CLASSIFIERS)), key=order)


def miniature_classifiers(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each task, schedule and seed below a folder, and a column for each model with results."""
    (name,) = words
    found = classifiers(folder, [f"{name}/**/"])
    models = [model for model in TITLES if model in map(model_of, found)]

    def key(result: Result) -> Tuple[Any, ...]:
        (updates, rate), batch = schedule(result), result["settings"]["batch"]
        return order(result)[0], updates, batch, rate, result["seed"], result["examples"]

    paper = PAPER_TABLES["table2"]
    titles = [column.title for column in paper.columns]
    cells: List[Tuple[Dict[str, str], str, Any]] = []
    for result in sorted(found, key=key):
        task, (updates, rate) = result["settings"]["task"], schedule(result)
        columns = ("updates x examples", "learning rate", "test examples")
        head = {"task": f"{TASKS[task].title}, the paper, fully trained", **dict.fromkeys(columns, "")}
        for model, row in {"mega": "MEGA-chunk", "transformer": "Transformer"}.items():
            value = paper.rows[row][titles.index(TASKS[task].title)]
            cells += [(head, TITLES[model], value)] if model in models else []
        texts = (f"{updates:,} x {result['settings']['batch']}", f"{rate:g}", f"{result['examples']:,}")
        head = {"task": f"{TASKS[task].title}, seed {result['seed']}", **dict(zip(columns, texts))}
        cells.append((head, TITLES[model_of(result)], result["scores"]["test_accuracy"]))
    return pivot(cells, [TITLES[model] for model in models], best=max, last=1)


# The Long Range Arena in miniature, from the files of the cells.


def miniature_table(results: Sequence[Result]) -> Table:
    """Return a row for each model and each recipe of a user's own, a column for each task: accuracy, learning rate."""
    form = FORMS["miniature"]
    by_model: Dict[str, Dict[str, Result]] = {}
    for result in results:
        recipe = str(result["settings"]["recipe"])
        model = recipe.rpartition("/")[2] if recipe in catalogue() else recipe
        by_model.setdefault(model, {})[result["settings"]["task"]] = result
    tasks = [task for task in TASKS if any(task in own for own in by_model.values())]
    cells = []
    for model in [*filter(by_model.get, form.titles), *sorted(by_model.keys() - form.titles.keys())]:
        own = by_model[model]
        sizes = [result["settings"]["parameters"] for result in own.values()]  # differ by tasks' tokens
        extremes = " to ".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)}))
        head = {"model": form.title(model), "parameters": extremes}
        for task, result in own.items():
            scores, rate = result["scores"], result["settings"]["lr"]
            spread = f" ± {scores['deviation']:.2f}" if "deviation" in scores else ""
            cells.append((head, TASKS[task].title, f"{scores['test_accuracy']:.2f}{spread} ({rate:g})"))
    return pivot(cells, [TASKS[task].title for task in tasks], missing="-")


def cells_in(place: Path) -> List[Result]:
    """Return the cells of the miniature in a folder.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ResultError: if a cell is damaged, or two files of one cell have different settings.
    """
    files = read_files(place, "cell")
    check_alike(files)
    return list(files.values())


def cells_read(options: argparse.Namespace, _: str) -> List[Result]:
    """Read the cells that the options of a report select."""
    return cells_in(options.results)


def miniature_contents(results: Sequence[Result]) -> Contents:
    """Return the table of the miniature, with the meaning of its numbers and the missing runs."""
    runs = [run for result in results for run in result["runs"]]
    seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))
    rates = ", ".join(f"{rate:g}" for rate in sorted({run["lr"] for run in runs}))
    missing = ", ".join(name for result in results for name in result["missing"])
    notes = [
        f"Test accuracy, mean and standard deviation over the seeds {seeds}, at the learning rate (in parentheses, of "
        f"{rates}) of the best mean accuracy on the validation set.",
        *([f"Missing: {missing}"] if missing else []),
    ]
    return Contents([miniature_table(results)], (), [*notes, *other_settings(results)])


# Models on Text that read the same number of texts, from the files of the cells.


def budget(result: Result) -> Dict[str, Any]:
    """Return the record of a cell, with the accuracies that chose its learning rate."""
    settings = result["settings"]
    runs = chosen_runs(result)
    accuracies = settings["rate_choice"]["accuracies"] if "rate_choice" in settings else {}
    tried = [f"{rate}: {accuracies[rate]:.2f}" for rate in sorted(accuracies, key=float)]
    hours = [run["core_hours"] for run in runs if "core_hours" in run]
    return {
        **record_of(result),
        "title": FORMS["miniature"].title(str(settings["recipe"]).rpartition("/")[2]),
        "texts": settings["updates"] * settings["batch"],
        "tried": ", ".join(tried) or None,
        "seeds": ", ".join(str(run["seed"]) for run in runs),
        "hours": f"{statistics.mean(hours):.2f}" if hours else None,
        "accuracy": mean_and_deviation([run["scores"]["test_accuracy"] for run in runs]),
    }


def budget_table(results: Sequence[Result]) -> Table:
    """Return a row for each model, those of the miniature in its order."""
    titles = list(FORMS["miniature"].titles.values())
    records = sorted(map(budget, results), key=lambda one: [*titles, one["title"]].index(one["title"]))
    return FORMS["text-budget"].table(records)


# Language models.


def context_of(settings: Dict[str, Any]) -> Tuple[int, str]:
    """Return the context of a token, as a number for sorting and in words."""
    block, window = settings["trained_chunk_or_block"], settings.get("context_window") or 0
    exact, mean = settings.get("exact_context"), settings.get("mean_segment", 0.0)
    if exact is not None:
        return exact, f"{exact:,} tokens"
    if settings.get("segments") == 1:
        return 10**12, "the whole text"
    if settings.get("longest_segment") is not None:
        return int(mean), f"segments of {mean:,.0f} tokens on average, all seen"
    return window, f"at least {window} of {block}" if window else f"blocks of {block}"


def rate_of(folder: Path) -> str:
    """Return the peak learning rate of a folder of results."""
    return folder.name.partition("lr")[2]


def language_models(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model and context, and a column for each learning rate; the better one is bold."""
    name, metric = words
    rates = sorted((folder / name).glob("lr*"), key=lambda rate: float(rate_of(rate)))
    found = [
        (
            (list(MODELS).index(model_of(result)), *context_of(result["settings"])),
            f"learning rate {rate_of(rate)}",
            result,
        )
        for rate in rates
        for result in read_results(rate, LANGUAGE_MODELS)
        if result["settings"].get("exact_context") is None
    ]
    cells = []
    for (model, _, seen), rate, result in sorted(found, key=lambda one: one[0]):
        size = f"{result['settings']['parameters']:,}"
        head = {"model": list(MODELS.values())[model], "parameters": size, "context": seen}
        cells.append((head, rate, result["scores"][metric]))
    return pivot(cells, [f"learning rate {rate_of(rate)}" for rate in rates], METRICS[metric][1], min)


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
    return pivot(cells, digits=3, best=min)


# Translations, and models of all kinds.


def test_sets(folder: Path, words: Sequence[str]) -> Table:
    """Return BLEU of each training of a benchmark, with a column for each test set; a set's best score is bold."""
    name, benchmark = words
    found = read_results(folder / name, benchmark)
    found.sort(key=lambda result: (result["label"].startswith("mega"), result["label"]))
    scores = [(result, result["settings"]["test"], result["scores"]["sacrebleu"]) for result in found]
    best = {test: max(score for _, of_set, score in scores if of_set == test) for _, test, _ in scores}
    cells = []
    for result, test, score in scores:
        given = shlex.split(result["command"])
        options = ("--lr", "--lr-scheduler", "--warmup-updates")
        rate, scheduler, warmup = (given[given.index(option) + 1] for option in options)
        head = {
            "model": f"{'MEGA' if result['label'].startswith('mega') else 'Transformer'}, seed {result['seed']}",
            "learning rate": f"{float(rate):g}, {SCHEDULES.get(scheduler, scheduler)}, {warmup} warm-up updates",
        }
        cells.append((head, test, f"**{score:.1f}**" if score == best[test] else f"{score:.1f}"))
    return pivot(cells, sorted(best))


def precisions(folder: Path, words: Sequence[str]) -> Table:
    """Return mean and deviation over seeds of each model and test set below a folder, with a column per precision."""
    (name,) = words
    results = [read_result(path) for path in sorted((folder / name).rglob("*.json"))]
    seeds = len({result["seed"] for result in results})
    cells = []
    for result in results:
        settings = result["settings"]
        metric = next(metric for metric in METRICS if metric in result["scores"])
        head = {
            "model": MODELS.get(result["label"], result["label"]),
            "text": settings.get("test", settings.get("subset", "")),
            f"score, {seeds} seeds": METRICS[metric][0],
        }
        cells.append((head, KINDS.get(settings["precision"], settings["precision"]), result["scores"][metric]))
    cells.sort(key=lambda cell: tuple(cell[0].values()))
    return pivot(cells, [KINDS.get(kind, kind) for kind in PRECISIONS if kind in KINDS])


REPORTS = {
    "miniature": report_of("Print the Long Range Arena in miniature.", ["cell"], miniature_contents, cells_read),
    "recall": report_of(
        "Print the scores of recall and state tracking.",
        ["cell"],
        scores_of,
        lambda options, _: read_results(options.results, "cell"),
    ),
    "text-budget": report_of(
        "Print the models on Text that read the same number of texts.",
        ["cell"],
        lambda results: Contents([budget_table(results)], (), other_settings(results)),
        cells_read,
    ),
    "classifiers": report_of("Print the scores of classifiers.", [CLASSIFIERS], scores_of),
    "language-models": report_of(
        "Print the scores of language models over contexts and chunks.",
        [LANGUAGE_MODELS, "language-modeling"],
        scores_of,
    ),
    "quickstart": report_of("Print the scores of the quick start's recipes.", ["quickstart"], scores_of),
}
TABLES = {
    "megalodon-figure1-rates": rates,
    "language-models": language_models,
    "remembered-tokens": remembered,
    "miniature": lambda folder, words: miniature_table(cells_in(folder / words[0])),
    "text-budget": lambda folder, words: budget_table(cells_in(folder / words[0])),
    "miniature-classifiers": miniature_classifiers,
    "test-sets": test_sets,
    "precisions": precisions,
}
