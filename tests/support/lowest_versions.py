"""Prints the lowest versions that pyproject.toml and setup.py allow, as requirements: of the packages named, or all."""

import ast
import re
import sys
from pathlib import Path
from typing import Dict

from pip._vendor.packaging.requirements import Requirement  # in every environment with pip

ROOT = Path(__file__).resolve().parents[2]


def lowest_versions() -> Dict[str, str]:
    """Return the lowest version of each package that the build and this Python require."""
    (assignment,) = (
        node
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INSTALL_REQUIRES"
    )
    stated = re.findall(r'"(setuptools>=[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    found = {}
    for entry in [*stated, *ast.literal_eval(assignment.value)]:
        requirement = Requirement(entry)
        if requirement.marker is None or requirement.marker.evaluate():
            (bound,) = requirement.specifier
            found[requirement.name] = bound.version
    return found


if __name__ == "__main__":
    versions = lowest_versions()
    for name in sys.argv[1:] or versions:
        print(f"{name}=={versions[name]}")
