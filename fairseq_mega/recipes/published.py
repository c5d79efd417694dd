"""The paper's values, from the recipes: they stand nowhere else."""

from typing import List, Sequence

from .recipe import FOLDER, load


def paper_values(report: str, name: str, parts: Sequence[str], metric: str = "test_accuracy") -> List[str]:
    """The published values of the recipes of one name in some folders of a report; "fails" where there is no recipe."""
    found = []
    for part in parts:
        path = FOLDER / "mega" / report / part / f"{name}.yaml"
        found.append(f"{load(path).paper[metric]:.2f}" if path.exists() else "fails")
    return found
