"""Tables of the classifiers of long sequences: comparisons of small models, and the speed of the paper's."""

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from fairseq_mega.lab.evaluate.lra_runs import TASKS
from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report import miniature
from fairseq_mega.lab.report.classifiers import BENCHMARK, TITLES, model_of
from fairseq_mega.lab.report.lra_tables import SPEED_NAMES, TABLE2
from fairseq_mega.lab.runs.results import Result, read_result, read_results
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import amount, bold_best

SPEED_TITLES = {
    "transformer-explicit": "Transformer, attention written out",
    "transformer": "Transformer, fused attention",
    "mega": "MEGA, full attention",
    "mega-chunk": "MEGA-chunk, C = {chunk}",
}


def cells(folder: Path, words: Sequence[str]) -> Table:
    """Table of the Long Range Arena in miniature, from a folder with a file for each cell."""
    (name,) = words
    return miniature.table(miniature.results_in(folder / name))


def miniatures(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each task, schedule and seed below a folder, and a column for each model with results."""
    (name,) = words
    found: Dict[Tuple[Any, ...], Dict[str, Result]] = {}
    for place in sorted({path.parent for path in (folder / name).rglob("*.json")}):
        for result in read_results(place, BENCHMARK):
            settings = result["settings"]
            schedule = (settings["updates"], settings["batch"], float(settings["lr"]), result["seed"])
            key = (list(TASKS).index(settings["task"]), *schedule, result["examples"])
            found.setdefault(key, {})[model_of(result)] = result
    labels = [label for label in TITLES if any(label in models for models in found.values())]
    rows: List[Dict[str, str]] = []
    tasks: List[str] = []

    def row(title: str, accuracies: Sequence[str], schedule: str = "", rate: str = "", examples: str = "") -> Any:
        cells = dict(zip((TITLES[label] for label in labels), accuracies))
        return {"task": title, "updates x examples": schedule, "rate": rate, **cells, "test examples": examples}

    for (index, updates, batch, rate, seed, examples), models in sorted(found.items()):
        task = list(TASKS)[index]
        if task not in tasks:
            tasks.append(task)
            paper = {"mega": "mega_chunk", "transformer": "transformer"}
            values = [paper_values("table2", paper[label], [task])[0] if label in paper else "" for label in labels]
            rows.append(row(f"{TASKS[task].title}, the paper, fully trained", values))
        accuracies = [models[label]["scores"]["test_accuracy"] if label in models else None for label in labels]
        texts = bold_best(["" if value is None else f"{value:.2f}" for value in accuracies], accuracies, max)
        about = (f"{updates:,} x {batch}", f"{rate:g}", f"{examples:,}")
        rows.append(row(f"{TASKS[task].title}, seed {seed}", texts, *about))
    return table_of(rows)


def speed(folder: Path, words: Sequence[str]) -> Table:
    """Table of speed and memory: the measurements of the benchmark ``lra-speed``, and the paper's."""
    (name,) = words
    result = read_result(folder / name)
    scores, settings = result["scores"], result["settings"]
    papers = {model: " / ".join(TABLE2.rows[title][-2:]) for title, model in SPEED_NAMES.items()}
    rows = []
    for model in settings["models"].split(","):
        texts = settings["batch"] / scores[f"{model} seconds"]
        title = SPEED_TITLES.get(model, model).format(chunk=settings["chunk"])
        arch = settings.get("architectures", {}).get(model)  # older files do not record it
        title += f" (`{arch}`)" if arch else ""
        # The paper's Transformer has explicit attention weights.
        paper = papers.get(
            "transformer" if model == "transformer-explicit" else model if model != "transformer" else ""
        )
        rows.append(
            {
                "model": title,
                "parameters": f"{scores[f'{model} parameters']:,.0f}",
                "texts/s": amount(texts),
                "peak MiB": f"{scores[f'{model} memory_mib']:,.0f}",
                "speed / memory": f"{scores[f'{model} speed']:.2f}x / {scores[f'{model} memory']:.2f}x",
                "in the paper's Table 2": paper or "",
            }
        )
    return table_of(rows)
