"""The paper's values, from the recipes; only values without a recipe are elsewhere."""

from typing import List, Sequence

from .recipe import FOLDER, load

NEEDS_WEIGHTS = {  # the paper's values of its 7B model, which was trained on 2T tokens and never released
    "megalodon/table1/academic-benchmarks": "49.8",  # MMLU, the first column
    "megalodon/table2/long-context-qa": "23.9/28/13.1",
    "megalodon/table3/mt-bench": "6.27",
}


def row_title(name: str, trained: bool, values_from: str = "") -> str:
    """Return the title of a published row, of a model that a recipe trains or of one that is only quoted.

    Args:
        values_from: see Recipe.
    """
    return f"{name}, {(values_from or 'paper') if trained else 'quoted'}"


def paper_values(
    report: str, name: str, parts: Sequence[str], metric: str = "test_accuracy", paper: str = "mega"
) -> List[str]:
    """The published values of the recipes of one name in some folders of a table; "fails" where there is no recipe."""
    found = []
    for part in parts:
        path = FOLDER / paper / report / part / f"{name}.yaml"
        found.append(f"{load(path).paper[metric]:.2f}" if path.exists() else "fails")
    return found
