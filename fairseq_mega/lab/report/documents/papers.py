"""The papers' tables and the state of their recipes, from the results of a checkout."""

from pathlib import Path
from typing import Dict, List, Sequence

import yaml

from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.report import megalodon_figure1, megalodon_figure4
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.recipe_states import benchmark_table, find_results, states
from fairseq_mega.lab.runs.results import Result, read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import bold_best


def benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each benchmark of the papers, with the results in some folders."""
    return benchmark_table(states([folder / word for word in words]))


def of_paper(folder: Path, words: Sequence[str], name: str) -> Table:
    """A table of a paper, by the name of its report, with the results in some folders."""
    return PAPER_TABLES[name].of_recipes(find_results([folder / word for word in words]))


def speed(folder: Path, words: Sequence[str]) -> Table:
    """MEGALODON's Figure 4 with the results in some folders."""
    return megalodon_figure4.table(of_benchmark(folder, words, megalodon_figure4.BENCHMARK))


def trainings(folder: Path, words: Sequence[str]) -> Table:
    """The trainings of MEGALODON's Figure 1 scaled down, with the results in some folders."""
    return megalodon_figure1.training_table(of_benchmark(folder, words, megalodon_figure1.BENCHMARK))


def contexts(folder: Path, words: Sequence[str]) -> Table:
    """The scores over contexts of MEGALODON's Figure 1 scaled down, with the results in some folders."""
    return megalodon_figure1.context_table(of_benchmark(folder, words, megalodon_figure1.BENCHMARK))


def rates(folder: Path, words: Sequence[str]) -> Table:
    """Table of the losses of a model's candidate rates, MODEL RATE among a file's scores; the lowest loss is bold."""
    (name,) = words
    losses: Dict[str, Dict[float, float]] = {}
    for key, loss in read_result(folder / name)["scores"].items():
        model, _, rate = key.partition(" ")
        losses.setdefault(model, {})[float(rate)] = loss
    rows = []
    for model, title in megalodon_figure1.MODELS.items():
        values = losses.get(model, {})
        texts = bold_best([f"{loss:.3f}" for loss in values.values()], list(values.values()), min)
        rows.append({"model": title, **dict(zip((f"rate {rate:g}" for rate in values), texts))})
    return table_of([row for row in rows if len(row) > 1])


def academic_benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """MEGALODON's Table 1: tasks, shots and metrics of a file of lm-evaluation-harness, and the paper's values."""
    (name,) = words
    number = without_recipe()["megalodon/table1/academic-benchmarks"]
    columns = {**number.peers, "MEGALODON 7B": number.paper}
    rows = []
    for entry in yaml.safe_load((folder / name).read_text(encoding="utf-8"))["task"]:
        task = entry.get("task") or entry["group"]
        (metric,) = (measured["metric"] for measured in entry["metric_list"])
        settings = {"task of the harness": f"`{task}`", "shots": str(entry["num_fewshot"]), "metric": metric}
        rows.append({**settings, **{f"{model}, paper": f"{values[task]:.1f}" for model, values in columns.items()}})
    return table_of(rows)


def of_benchmark(folder: Path, words: Sequence[str], benchmark: str) -> List[Result]:
    """Return the results of a benchmark in some folders."""
    return [result for result in find_results([folder / word for word in words]) if result["benchmark"] == benchmark]
