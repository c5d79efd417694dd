"""The floors of the package: a file imports only from its own floor or from one below."""

import ast
import functools
import re
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import graphlib
import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fairseq_mega"
FLOORS = {
    "cli": 7,
    **dict.fromkeys(("recipes", "quickstart", "comparisons", "work", "reports", "benchmarks", "corpora"), 6),
    **dict.fromkeys(("tasks", "criterions", "optim"), 5),
    "models": 4,
    "data": 3,
    "modules": 2,
    "ops": 1,
}
WHOLE_PACKAGE_FROM = 6  # fairseq_mega itself imports the floors below, so that they may not import it
COMPAT_FROM = 3  # compat imports fairseq, so the floors that may not do that may not import compat either
WITHOUT_FLAGS = ("modules", "ops")  # floors that know no command line: their errors name fields
FAIRSEQ_STACK = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}


def imported_names(source: str, package: List[str]) -> Iterator[Tuple[int, str]]:
    """Yield the line and full dotted name of each import anywhere in `source`, a module of `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                yield node.lineno, ".".join([*prefix, alias.name])


def violations(source: str, module: str) -> List[str]:
    """Imports that the file `module` (dotted, within fairseq_mega) may not make, as "line: reason"."""
    parts = module.split(".")
    floor = FLOORS.get(parts[1]) if len(parts) > 1 else None
    if parts[1:2] == ["compat"]:  # under every floor: it may import none of them
        return [
            f"{line}: {name} from compat"
            for line, name in imported_names(source, parts[:-1])
            if name.split(".")[0] == "fairseq_mega" and name.split(".")[1:2] != ["compat"]
        ]
    if floor is None:  # __init__.py
        return []
    found = []
    for line, name in imported_names(source, parts[:-1]):
        target = name.split(".")
        if target[0] in FAIRSEQ_STACK:
            if floor < 3:
                found.append(f"{line}: {name} in {parts[1]}, which knows no fairseq")
            elif floor == 3 and target[0] != "omegaconf" and target[:2] != ["fairseq", "data"]:
                found.append(f"{line}: {name} in data, which may use fairseq.data only")
        elif target[0] == "fairseq_mega":
            folder = target[1] if len(target) > 1 else ""
            if folder in FLOORS and FLOORS[folder] > floor:
                found.append(f"{line}: {name} (floor {FLOORS[folder]}) from floor {floor}")
            elif folder == "compat" and floor < COMPAT_FROM:
                found.append(f"{line}: {name} from floor {floor}")
            elif folder not in FLOORS and folder != "compat" and floor < WHOLE_PACKAGE_FROM:
                found.append(f"{line}: {name}: the package itself imports every floor")
    return found


@functools.lru_cache(maxsize=None)
def modules() -> Dict[str, Path]:
    """Every Python file of the package under its dotted name; a package counts as its __init__."""
    return {
        ".".join(["fairseq_mega", *path.relative_to(PACKAGE).with_suffix("").parts]): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@pytest.mark.parametrize("module", modules())
def test_imports_go_downwards(module: str) -> None:
    path = modules()[module]
    found = violations(path.read_text(encoding="utf-8"), module)
    assert not found, f"{path}: " + "; ".join(found)


def imports_of(module: str) -> Set[str]:
    """Modules of the package that a module imports when it is imported itself."""
    files = {name[: -len(".__init__")] if name.endswith(".__init__") else name: name for name in modules()}
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    at_once = ast.Module([node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))], [])
    found = set()
    for _, name in imported_names(ast.unparse(at_once), module.split(".")[:-1]):
        while name and name not in files:
            name = name.rpartition(".")[0]  # a function of a module
        found.add(files.get(name, module))
    return found - {module}


def test_there_is_no_circle() -> None:
    graphlib.TopologicalSorter({module: imports_of(module) for module in modules()}).prepare()  # raises CycleError
    assert "fairseq_mega.ops.dispatch" in imports_of("fairseq_mega.ops.gate")


@pytest.mark.parametrize("module", [name for name in modules() if name.startswith("fairseq_mega.ops.")])
def test_ops_define_no_modules(module: str) -> None:
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            assert "Module" not in bases, f"{module}:{node.lineno}: {node.name} is an nn.Module"


def flags(source: str) -> List[str]:
    """Flags of a command line in the strings of a file, as "line: flag"; those of pip may stand in a remedy."""
    return [
        f"{node.lineno}: {flag}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "pip install" not in node.value
        for flag in re.findall(r"(?<![\w-])--(?:[a-z][\w-]*|$)", node.value)
    ]


@pytest.mark.parametrize("module", [name for name in modules() if name.split(".")[1] in WITHOUT_FLAGS])
def test_no_command_line_words(module: str) -> None:
    assert not flags(modules()[module].read_text(encoding="utf-8")), module


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise ValueError("--chunk-size 0: give 1")', ["1: --chunk-size"]),
        ('raise ValueError(f"--{prefix}chunk-size {size}")', ["1: --"]),
        ('def f():\n    """As (``--shift``) says."""', ["2: --shift"]),
        ('REMEDY = "pip install --editable ."', []),
        ('x = "a -- b, a---b, c--d"', []),
    ],
)
def test_flags_are_found(source: str, found: List[str]) -> None:
    assert flags(source) == found


def test_every_folder_has_a_floor() -> None:
    with_code = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert with_code <= {*FLOORS, "compat"}, f"no floor for {with_code - set(FLOORS)}"
    assert {"ops", "modules", "models", "cli"} <= with_code


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fairseq_mega.ops.ema.fft", "from ...modules import ema"),
        ("fairseq_mega.ops.ema.fft", "from fairseq_mega.modules.ema import MultiHeadEMA"),
        ("fairseq_mega.ops.ema.__init__", "def f():\n    import fairseq.utils"),
        ("fairseq_mega.modules.ema", "from fairseq import utils"),
        ("fairseq_mega.modules.ema", "from omegaconf import II"),
        ("fairseq_mega.modules.ema", "from .. import compat"),
        ("fairseq_mega.modules.ema", "from fairseq_mega import __version__"),
        ("fairseq_mega.data.blocks", "from fairseq.tasks import FairseqTask"),
        ("fairseq_mega.data.blocks", "from ..models.mega import MegaModel"),
        ("fairseq_mega.models.mega", "from ..cli.console import run"),
        ("fairseq_mega.models.mega", "from ..optim import x"),
        ("fairseq_mega.tasks.lra_text", "from ..corpora.splits import SPLITS"),
        ("fairseq_mega.tasks.lra_text", "from .. import __version__"),
        ("fairseq_mega.corpora.download", "from fairseq_mega.cli import usage"),
        ("fairseq_mega.compat.batches", "from ..data import sized"),
    ],
)
def test_upward_imports_are_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fairseq_mega.ops.ema.fft", "from .reference import ema\nfrom ..attention import laplace\nimport torch"),
        ("fairseq_mega.ops.ema.__init__", "from .fft import ema"),
        ("fairseq_mega.modules.ema", "from ..ops.ema import damped_ema"),
        ("fairseq_mega.data.blocks", "from fairseq.data import data_utils\nimport numpy"),
        ("fairseq_mega.compat.batches", "from .patching import replace_in_fairseq\nfrom fairseq.data import iterators"),
        ("fairseq_mega.models.mega", "from fairseq import utils\nfrom . import mega_encoder"),
        ("fairseq_mega.tasks.lra_text", "from ..optim import x\nfrom ..models import mega"),
        ("fairseq_mega.corpora.download", "import fairseq_mega\nfrom ..reports import plotting\nfrom ..tasks import x"),
        ("fairseq_mega.cli.console", "import fairseq_mega\nfrom ..models import mega\nimport fairseq_cli.train"),
    ],
)
def test_downward_imports_pass(module: str, source: str) -> None:
    assert violations(source, module) == []
