"""scripts/setup.sh --apex: a stand-in is built from its sources with its kernels, once."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.helpers import REPOSITORY


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that sees all packages of this one, and in which all else is up to date."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "bin" / "python"
    real = python.rename(python.with_name("real"))
    program = f'case "$*" in *hashlib*) cat >/dev/null; echo same ;; *) exec "{real}" "$@" ;; esac'
    python.write_text(f"#!/bin/bash\n{program}\n")
    python.chmod(0o755)
    (folder / ".fairseq_mega_setup-translation-plots").write_text("same\n")
    return folder


def set_up(environment: Path, apex: Path) -> "subprocess.CompletedProcess[str]":
    script = ["bash", str(REPOSITORY / "scripts" / "setup.sh"), "--venv", str(environment), "--apex", apex.name]
    return subprocess.run(script, capture_output=True, text=True, cwd=apex.parent, env={"PATH": "/usr/bin:/bin"})


def test_apex_is_built_with_its_kernels(tmp_path: Path, environment: Path) -> None:
    complete, without = tmp_path / "a b" / "apex", tmp_path / "without" / "apex"
    for folder in (complete, without):
        shutil.copytree(REPOSITORY / "tests" / "apex_stand_in", folder, ignore=shutil.ignore_patterns("__pycache__"))
    setup = without / "setup.py"
    setup.write_text(setup.read_text().replace('["amp_C", "fused_layer_norm_cuda"] if complete else []', "[]"))
    done = set_up(environment, without)
    assert done.returncode == 1 and "without its kernels" in done.stderr, done.stderr
    done = set_up(environment, complete)
    assert done.returncode == 0, done.stderr
    assert list(environment.glob("lib/*/site-packages/amp_C.py"))
    again = set_up(environment, complete)
    assert again.returncode == 0 and "is installed already" in again.stderr


def test_the_web_toolkit_of_that_name_is_refused(tmp_path: Path, environment: Path) -> None:
    (tmp_path / "apex" / "apex").mkdir(parents=True)
    (tmp_path / "apex" / "setup.py").write_text("setup(name='apex', description='Pyramid toolkit to add Velruse')\n")
    done = set_up(environment, tmp_path / "apex")
    assert done.returncode == 1 and "--apex" in done.stderr
