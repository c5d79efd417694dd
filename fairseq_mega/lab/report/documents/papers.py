"""The papers' tables and the state of their recipes, from the results of a checkout."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.report import megalodon_figure4
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.recipe_states import benchmark_table, find_results, states
from fairseq_mega.lab.runs.text_tables import Table


def benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """A row for each benchmark of the papers, with the results in some folders."""
    return benchmark_table(states([folder / word for word in words]))


def of_paper(folder: Path, words: Sequence[str], name: str) -> Table:
    """A table of a paper, by the name of its report, with the results in some folders."""
    return PAPER_TABLES[name].of_recipes(find_results([folder / word for word in words]))


def speed(folder: Path, words: Sequence[str]) -> Table:
    """MEGALODON's Figure 4 with the results in some folders."""
    found = find_results([folder / word for word in words])
    return megalodon_figure4.table([one for one in found if one["benchmark"] == megalodon_figure4.BENCHMARK])
