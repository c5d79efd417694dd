"""The wheel: what it holds, and that it works away from the checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Dict

import fairseq
import pytest

import fairseq_mega
from tests import helpers

SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md")


def run(*command: object, cwd: Path, path: Path) -> str:
    """Run a program with `path` as its only extra import folder; returns stdout."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that no build folder is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(helpers.REPOSITORY / "fairseq_mega", sources / "fairseq_mega", ignore=ignore)
    (sources / "fairseq_mega" / "csrc" / "cpu").mkdir(parents=True, exist_ok=True)
    (sources / "fairseq_mega" / "csrc" / "cpu" / "probe.cpp").write_text("// a source that must come along\n")
    for name in SOURCES:
        if (helpers.REPOSITORY / name).exists():
            shutil.copy(helpers.REPOSITORY / name, sources)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources, cwd=folder, path=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the wheel and, beside it as in any environment, fairseq."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--target", folder, wheel, cwd=folder, path=folder)
    installed = Path(next(iter(fairseq.__path__))).parent
    for name in ("fairseq", "fairseq_cli"):
        shutil.copytree(installed / name, folder / name, ignore=shutil.ignore_patterns("examples"))
    return folder


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {entry for entry in top if not entry.endswith(".dist-info")} == {"fairseq_mega"}
    ours = helpers.REPOSITORY / "fairseq_mega"
    modules = {f"fairseq_mega/{path.relative_to(ours).as_posix()}" for path in ours.rglob("*.py")}
    assert modules <= set(names), modules - set(names)
    assert {"fairseq_mega/py.typed", "fairseq_mega/csrc/cpu/probe.cpp"} <= set(names)
    presets = {f"fairseq_mega/{path.relative_to(ours).as_posix()}" for path in ours.rglob("*.yaml")}
    assert presets <= set(names), presets - set(names)


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == fairseq_mega.__version__
    required = metadata.get_all("Requires-Dist") or []
    assert any(re.match(r'fairseq-fixed>=[\d.]+; python_version >= "3.11"', line) for line in required)
    assert any(re.match(r'fairseq>=[\d.]+; python_version < "3.11"', line) for line in required)
    assert set(metadata.get_all("Provides-Extra") or []) == {"translation", "plots", "dev"}


def test_build_needs_no_torch() -> None:
    text = (helpers.REPOSITORY / "pyproject.toml").read_text()
    (requires,) = re.findall(r"^requires = \[(.*)\]$", text, re.M)
    assert requires == '"setuptools>=70.1"'


def test_pinned_versions_are_within_the_ranges() -> None:
    from packaging.requirements import Requirement

    pins: Dict[str, str] = {}
    for line in (helpers.REPOSITORY / "scripts" / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert re.fullmatch(r"[\d.]+(post\d+)?", version), f"{line}: a local or vague version"
            pins[name.lower().replace("_", "-")] = version
    text = (helpers.REPOSITORY / "setup.py").read_text()
    found = [Requirement(entry) for entry in re.findall(r"""['"]([\w-]+>=[^'"]*(?:"[^"]*")?)['"]""", text)]
    requirements = [entry for entry in found if entry.name not in ("fairseq", "setuptools")]
    assert len(requirements) > 8, requirements
    for requirement in requirements:
        assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement


@pytest.mark.slow
def test_user_dir_by_name_from_any_folder(site: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "fairseq_cli.train", "--user-dir", "fairseq_mega", "--help"]
    assert "linear_decay" in run(*program, cwd=tmp_path, path=site)  # a choice of --lr-scheduler


@pytest.mark.slow
def test_commands_from_any_folder(site: Path, tiny_model, tmp_path: Path) -> None:
    commands = ("train", "generate", "interactive", "eval-lm", "validate")
    scripts = [site / "bin" / f"fairseq-mega-{command}" for command in commands]
    assert all(script.exists() for script in scripts)
    options = ["--cpu", "--beam", "1", "--max-len-b", "3", "--max-tokens", "1000"]
    output = run(scripts[1], tiny_model.data, "--path", tiny_model.checkpoint, *options, cwd=tmp_path, path=site)
    assert f"'user_dir': '{site / 'fairseq_mega'}'" in output
    assert len(helpers.hypotheses(output)) == 461
