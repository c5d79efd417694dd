"""The papers' tables and the state of their recipes, from the results of a checkout."""

from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.evaluate.lra_runs import TASKS
from fairseq_mega.lab.report import megalodon_speed, table6, table7
from fairseq_mega.lab.report.lra_tables import table4
from fairseq_mega.lab.report.recipe_states import Result, benchmark_table, find_results, states
from fairseq_mega.lab.runs.text_tables import Table


def benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """A row for each benchmark of the papers, with the results in some folders."""
    return benchmark_table(states([folder / word for word in words]))


def speech(folder: Path, words: Sequence[str]) -> Table:
    """MEGA's Table 4 with the results in some folders."""
    return table4(results_of("mega/table4/", folder, words), TASKS["speech"].chunk)


def images(folder: Path, words: Sequence[str]) -> Table:
    """MEGA's Table 6 with the results in some folders."""
    return table6.table(results_of("mega/table6/", folder, words))


def translation(folder: Path, words: Sequence[str]) -> Table:
    """MEGA's Table 7 with the results in some folders."""
    return table7.table(results_of("mega/table7/", folder, words))


def speed(folder: Path, words: Sequence[str]) -> Table:
    """MEGALODON's Figure 4 with the results in some folders."""
    return megalodon_speed.table(results_of("megalodon/figure4/", folder, words))


def results_of(recipes: str, folder: Path, words: Sequence[str]) -> List[Result]:
    """The results in some folders of the recipes whose names begin so."""
    found = find_results([folder / word for word in words])
    return [result for result in found if str(result["settings"]["recipe"]).startswith(recipes)]
