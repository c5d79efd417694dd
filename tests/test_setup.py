"""scripts/setup.sh before it downloads anything: which Python it takes, and what it says where something lacks."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Dict, Tuple

import pytest

from tests.support import helpers

TOOLS = ("bash", "basename", "date", "dirname", "ls", "uname")
# A Python of some version that lacks what it is told to; it makes no environment.
PYTHON = """#!/bin/bash
case "$*" in
*version_info*) echo {version} ;;
*ensurepip*) {venv} ;;
*Python.h*) {headers} ;;
"-m venv"*) echo "$0 makes it" >&2; exit 1 ;;
esac
"""


def set_up(folder: Path, pythons: Dict[str, str], *options: str, lacking: Tuple[str, ...] = ()) -> str:
    """Run it with these commands and versions of Python alone; returns its last lines."""
    for name in (*TOOLS, "g++"):
        found = shutil.which(name)
        if name not in lacking and found:
            (folder / name).symlink_to(found)
    for name, version in pythons.items():
        fates = {part: "exit 1" if part in lacking else "true" for part in ("venv", "headers")}
        (folder / name).write_text(PYTHON.format(version=version, **fates))
        (folder / name).chmod(0o755)
    script = ["bash", str(helpers.REPOSITORY / "scripts" / "setup.sh")]
    options = options or ("--venv", str(folder / "venv"))
    environment = {**os.environ, "PATH": str(folder)}
    done = subprocess.run([*script, *options], capture_output=True, text=True, env=environment)
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


def test_no_python_that_will_do(tmp_path: Path) -> None:
    message = set_up(tmp_path, {"python3": "3.15", "python": "2.7"})
    assert "found: python3 is 3.15, python is 2.7." in message and len(message.splitlines()) == 1


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
case "$*" in
*version_info*) echo 3.13 ;;
*hashlib*) cat >/dev/null; echo inputs ;;
*install*) echo $$ >"{folder}/process"; echo "error: no room on the disk"; {fate} ;;
-I*) exit 1 ;;
esac
"""


@pytest.mark.parametrize("fate", ["exit 1", "exec sleep 600"])
def test_a_step_that_fails_or_is_interrupted(fate: str, tmp_path: Path) -> None:
    """The lines with errors are shown, all of them kept; nothing that it started goes on."""
    interrupted = "sleep" in fate
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STEP.format(folder=tmp_path, fate=fate))
    python.chmod(0o755)
    script = ["bash", str(helpers.REPOSITORY / "scripts" / "setup.sh"), "--venv", str(tmp_path / "venv")]
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


def test_all_extras_of_the_package_are_accepted(tmp_path: Path) -> None:
    (extras,) = re.findall(r"extras_require=\{(.*?)\}", (helpers.REPOSITORY / "setup.py").read_text(), re.DOTALL)
    names = re.findall(r'"([\w-]+)":', extras)
    message = set_up(tmp_path, {"python3": "3.13"}, "--venv", str(tmp_path / "venv"), "--extras", ",".join(names))
    assert "makes it" in message, message
    assert "lm-eval" in names
