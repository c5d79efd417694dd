"""scripts/setup.sh --apex: a stand-in is built from its sources; other folders and the namesake are refused."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts import apex_source
from tests.support import helpers

STAND_IN = helpers.REPOSITORY / "tests" / "apex_stand_in"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment of its own that sees all packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "environment")], check=True)
    python = tmp_path / "environment" / "bin" / "python"
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(python), "-c", show], capture_output=True, text=True, check=True).stdout.strip()
    (Path(packages) / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def build(python: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), apex_source.__file__, folder.name, "--quiet"]  # not to be taken for a package's name
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder.parent)


def test_the_sources_are_built_with_their_kernels(tmp_path: Path, python: Path) -> None:
    """Once, until they change."""
    folder = tmp_path / "a b" / "apex"
    shutil.copytree(STAND_IN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    done = build(python, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    where = "import amp_C, fused_layer_norm_cuda, apex.optimizers; print(apex.__file__)"
    found = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.startswith(str(python.parent.parent))
    assert "is installed already" in build(python, folder).stderr
    without = tmp_path / "without" / "apex"
    shutil.copytree(STAND_IN, without, ignore=shutil.ignore_patterns("__pycache__"))
    setup = without / "setup.py"
    setup.write_text(setup.read_text().replace('["amp_C", "fused_layer_norm_cuda"] if complete else []', "[]"))
    done = build(python, without)
    assert done.returncode == 1 and "without its kernels: amp_C, fused_layer_norm_cuda" in done.stderr


def test_the_namesake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The web toolkit of the Python index, as a folder of sources and in the environment."""
    (tmp_path / "setup.py").write_text("setup(name='apex', description='Pyramid toolkit to add Velruse')\n")
    assert apex_source.main([str(tmp_path)]) == 1 and "not NVIDIA's" in capsys.readouterr().err
    information = tmp_path / "apex-0.9.10.dev0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: apex\nVersion: 0.9.10.dev0\n")
    (information / "RECORD").write_text("apex/__init__.py,,\napex/views.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert apex_source.main([str(STAND_IN)]) == 1 and "apex 0.9.10.dev0" in capsys.readouterr().err


@pytest.mark.parametrize("status", [0, 1])
def test_setup_builds_it_also_where_all_else_is_up_to_date(tmp_path: Path, status: int) -> None:
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    cases = (
        f'*hashlib*) cat >/dev/null; echo same ;;\n*apex_source.py*) echo "$*" >"{tmp_path}/calls"; exit {status} ;;'
    )
    (binaries / "python").write_text(f'#!/bin/bash\ncase "$*" in\n{cases}\n*) exec "{sys.executable}" "$@" ;;\nesac\n')
    (binaries / "python").chmod(0o755)
    (tmp_path / "environment" / ".fairseq_mega_setup-translation").write_text("same\n")
    script = ["bash", str(helpers.REPOSITORY / "scripts" / "setup.sh"), "--venv", str(binaries.parent), "--apex"]
    done = subprocess.run([*script, str(STAND_IN)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    constraints = helpers.REPOSITORY / "scripts" / "constraints.txt"
    called = (tmp_path / "calls").read_text()
    assert called.endswith(f"scripts/apex_source.py {STAND_IN} --quiet --constraint {constraints}\n")
