"""The order of the rooms: a file imports only from its own room and from those before it."""

import ast
import functools
import re
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

PACKAGE = Path(__file__).resolve().parent.parent / "fairseq_mega"
LIBRARY = ("ops", "modules", "compat", "data", "models", "convert", "criterions", "optim", "tasks")
LABORATORY = (
    *("lab.runs", "lab.recipes", "lab.prepare", "lab.benchmarks", "lab.evaluate", "lab.inspect", "lab.report"),
    *("lab.reproduce", "lab.quickstart"),
)
ROOMS = (*LIBRARY, "cli", *LABORATORY)  # the ground first
WITHOUT_PYTHON = ("csrc", "presets")
OF_SEVERAL_ROOMS = ("end_to_end", "simulator")  # folders of tests
WITHOUT_FAIRSEQ = ("ops", "modules")
FAIRSEQ_STACK = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}
NAMED = re.compile(r"fairseq_mega(?:\.\w+)+")  # a module in a string, such as that of python -m


def room_of(module: str) -> str:
    """The room of a module; "" of the package itself and of the laboratory as a whole."""
    parts = module.split(".")[1:]
    room = ".".join(parts[: 2 if parts[:1] == ["lab"] else 1])
    return room if room in ROOMS else ""


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


def named_modules(source: str) -> Iterator[Tuple[int, str]]:
    """Yield the line and name of each module of the package in a string that is no docstring."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield from ((node.lineno, name) for name in NAMED.findall(node.value) if room_of(name))


def violations(source: str, module: str) -> List[str]:
    """Imports and calls by name that the file `module` (dotted) may not make, as "line: reason"."""
    room, package = room_of(module), module.split(".")[:-1]
    if not room:  # __init__.py of the package
        return []
    found = []
    for line, name in [*imported_names(source, package), *named_modules(source)]:
        target, top = room_of(name), name.split(".")[0]
        if top in FAIRSEQ_STACK:
            if room in WITHOUT_FAIRSEQ:
                found.append(f"{line}: {name} in {room}, which knows no fairseq")
            elif room == "data" and top != "omegaconf" and name.split(".")[:2] != ["fairseq", "data"]:
                found.append(f"{line}: {name} in data, which may use fairseq.data only")
        elif top == "fairseq_mega" and not target and room in LIBRARY:
            found.append(f"{line}: {name}: the package itself imports every room")
        elif target and (ROOMS.index(target) > ROOMS.index(room) or (room == "compat" and target != room)):
            found.append(f"{line}: {name} from {room}")
    return found


@functools.lru_cache(maxsize=None)
def modules() -> Dict[str, Path]:
    """Every Python file of the package under its dotted name; a package counts as its __init__."""
    return {
        ".".join(["fairseq_mega", *path.relative_to(PACKAGE).with_suffix("").parts]): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_imports_go_downwards() -> None:
    found = {module: violations(path.read_text(encoding="utf-8"), module) for module, path in modules().items()}
    assert not {module: reasons for module, reasons in found.items() if reasons}


def test_ops_mirror_csrc() -> None:
    """Whoever reads a kernel finds its Python half under the same name, and the other way round."""
    kernels = {path.name for path in (PACKAGE / "csrc").iterdir() if path.is_dir()}
    functions = {path.stem for path in (PACKAGE / "ops").iterdir() if not path.name.startswith("__")}
    assert functions == kernels


def folders() -> Set[str]:
    """Folders of the package and of the laboratory with a file, of whatever kind, in them or below."""
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    depths = {file: 2 if file.parts[0] == "lab" else 1 for file in files}
    return {".".join(file.parts[:depth]) for file, depth in depths.items() if len(file.parts) > depth}


def test_every_folder_is_a_room() -> None:
    assert folders() == {*ROOMS, *WITHOUT_PYTHON}
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("| room | contents |")[2].partition("\n\n")[0].splitlines()
    named = [room.replace("/", ".") for row in rows for room in re.findall("`(.*?)`", row.split(" | ")[0])]
    assert [room for room in named if room not in WITHOUT_PYTHON] == list(ROOMS)
    assert set(named) == folders()
    outside = [module for module in modules() if not room_of(module)]
    assert outside == ["fairseq_mega.__init__", "fairseq_mega.lab.__init__"]


def test_tests_lie_in_folders_named_after_their_rooms() -> None:
    tests = PACKAGE.parent / "tests"
    found = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")} - {".", *OF_SEVERAL_ROOMS}
    assert found == {room.rpartition(".")[2] for room in ROOMS}


UPWARD = [
    ("ops.ema.fft", "from ...modules import ema"),
    ("ops.ema.__init__", "def f():\n    import fairseq.utils"),
    ("modules.ema", "from fairseq_mega import __version__"),
    ("data.blocks", "from fairseq.tasks import FairseqTask"),
    ("cli.console", "from ..lab.runs import results"),
    ("lab.runs.commands", "from ..prepare import splits"),
    ("lab.recipes.recipe", "COMMAND = 'python -m fairseq_mega.lab.reproduce.command'"),
    ("compat.processes.batches", "from ...data import sized"),
]
DOWNWARD = [
    ("modules.ema", "from ..ops.ema import damped_ema"),
    ("data.blocks", "from fairseq.data import data_utils\nimport numpy"),
    ("compat.processes.batches", "from .patching import wrap\nfrom fairseq.data import iterators"),
    ("lab.prepare.download", "import fairseq_mega\nfrom ..runs import plotting\nfrom ...tasks import x"),
    ("lab.recipes.recipe", 'def f():\n    """As fairseq_mega.lab.reproduce does."""'),
]


def test_upward_imports_are_found_and_downward_ones_pass() -> None:
    assert [case for case in UPWARD if len(violations(case[1], f"fairseq_mega.{case[0]}")) != 1] == []
    assert [case for case in DOWNWARD if violations(case[1], f"fairseq_mega.{case[0]}")] == []
