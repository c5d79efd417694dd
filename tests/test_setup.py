"""scripts/setup.sh before it downloads anything: which Python it takes, and what it says where something lacks."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from tests.support import helpers

TOOLS = ("bash", "basename", "date", "dirname", "grep", "ls", "uname")
# A Python of some version that lacks what it is told to; it makes no environment.
PYTHON = """#!/bin/bash
case "$*" in
*version_info*) echo {version} ;;
*ensurepip*) {venv} ;;
*Python.h*) {headers} ;;
"-m venv"*) echo "$0 makes it" >&2; exit 1 ;;
esac
"""


def set_up(folder: Path, pythons: Dict[str, str], lacking: Tuple[str, ...] = ()) -> str:
    """Run it with these commands and versions of Python alone; returns its last lines."""
    for name in (*TOOLS, "g++"):
        found = shutil.which(name)
        if name not in lacking and found:
            (folder / name).symlink_to(found)
    for name, version in pythons.items():
        fates = {part: "exit 1" if part in lacking else "true" for part in ("venv", "headers")}
        (folder / name).write_text(PYTHON.format(version=version, **fates))
        (folder / name).chmod(0o755)
    script = ["bash", str(helpers.REPOSITORY / "scripts" / "setup.sh"), "--venv", str(folder / "venv")]
    environment = {**os.environ, "PATH": str(folder)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and done.stdout == "", done
    assert not (folder / "venv").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("pythons", "expected"),
    [
        ({"python3": "3.13"}, "python3"),
        ({"python3": "3.11", "python3.13": "3.13"}, "python3"),
        ({"python3": "3.9", "python3.11": "3.11", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.15", "python3.13": "3.13"}, "python3.13"),
    ],
)
def test_the_systems_own_python_comes_first(pythons: Dict[str, str], expected: str, tmp_path: Path) -> None:
    assert f"{tmp_path / expected} makes it" in set_up(tmp_path, pythons)


@pytest.mark.parametrize(
    ("lacking", "packages"),
    [
        (("headers",), "python3.13-dev"),
        (("venv", "headers", "g++"), "python3.13-venv python3.13-dev g++"),
    ],
)
def test_what_lacks_is_named_at_once(lacking: Tuple[str, ...], packages: str, tmp_path: Path) -> None:
    message = set_up(tmp_path, {"python3": "3.13"}, lacking=lacking)
    assert f"apt-get install {packages})" in message and len(message.splitlines()) == 1
    assert "makes it" not in message


STEP = """#!/bin/bash
echo "$*" >>"{folder}/calls"
case "$*" in
*version_info*) echo 3.13 ;;
*hashlib*) cat >/dev/null; echo inputs ;;
{cases}
-I*) exit 1 ;;
esac
"""


def fake_environment(folder: Path, *cases: str) -> List[str]:
    """Write an environment whose Python answers so, beside noting its arguments in ``calls``; return the script."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STEP.format(folder=folder, cases="\n".join(cases)))
    python.chmod(0o755)
    return ["bash", str(helpers.REPOSITORY / "scripts" / "setup.sh"), "--venv", str(folder / "venv")]


@pytest.mark.parametrize("fate", ["exit 1", "exec sleep 600"])
def test_a_step_that_fails_or_is_interrupted(fate: str, tmp_path: Path) -> None:
    """The lines with errors are shown, all of them kept; nothing that it started goes on."""
    interrupted = "sleep" in fate
    step = f'*install*) echo $$ >"{tmp_path}/process"; echo "error: no room on the disk"; {fate} ;;'
    script = fake_environment(tmp_path, step)
    process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "venv" / "tools.log"
    while interrupted and not (log.exists() and "error" in log.read_text()):
        time.sleep(0.05)
    if interrupted:
        process.terminate()
    printed = process.communicate(timeout=60)[1]
    assert process.returncode != 0 and "error: no room on the disk" in log.read_text()
    assert interrupted or ("\nerror: no room on the disk\n" in printed and str(log) in printed)
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # the signal is on its way
            os.kill(int((tmp_path / "process").read_text()), 0)
            time.sleep(0.05)


@pytest.mark.parametrize(("extras", "also"), [("translation", ""), ("dev", "torchvision")])
def test_a_build_of_torch_is_installed_by_uv(extras: str, also: str, tmp_path: Path) -> None:
    script = fake_environment(tmp_path, "*install*torch==*) exit 1 ;;")
    done = subprocess.run([*script, "--torch", "cpu", "--extras", extras], capture_output=True, text=True)
    assert done.returncode == 1 and "--torch" not in done.stderr
    pip, uv = (tmp_path / "calls").read_text().splitlines()[-2:]
    assert re.search(r"-m pip .*install .* uv==[\d.]+$", pip)
    assert re.match(rf"-m uv pip install --python {tmp_path}/venv/bin/python --torch-backend cpu --constraint ", uv)
    assert re.search(rf" torch==[\d.]+{also and ' torchvision==[0-9.]+'}$", uv)


@pytest.mark.skipif(Path("/dev/nvidia0").exists() or bool(shutil.which("nvidia-smi")), reason="there is a GPU here")
def test_without_a_gpu_the_small_torch_is_offered(tmp_path: Path) -> None:
    """Before a download: the Python of the test has no torch and cannot install one."""
    done = subprocess.run(fake_environment(tmp_path, "*install*torch==*) exit 1 ;;"), capture_output=True, text=True)
    assert "--torch cpu" in done.stderr.partition("the step 'torch' failed")[0]
    assert " uv " not in (tmp_path / "calls").read_text()
