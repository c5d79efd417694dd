"""The checkout in a folder called like the package, in a path with a space, without write access; both test passes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest

from fairseq_mega.ops.common import native
from tests.support.helpers import REPOSITORY

READ_ONLY = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def tracked_files() -> List[str]:
    """Paths of the files that belong to the project, as git sees them; skips without git."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed: it lists the files of the checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no git checkout: {done.stderr.strip()}")
    return [name for name in done.stdout.split("\0") if name and (REPOSITORY / name).exists()]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A copy of the project as a clone would be, read-only."""
    clone = tmp_path / "a b" / "fairseq_mega"
    for name in tracked_files():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, clone / name, follow_symlinks=False)
    if native.PROBLEM is None:
        shutil.copy(native.LIBRARY, clone / "fairseq_mega")
    paths = [path for path in (clone, *clone.rglob("*")) if not path.is_symlink()]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield clone
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)


def without_privileges() -> List[str]:
    """The words to put before a command so that even root respects the rights of files."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and setpriv (util-linux) is not here to prevent it")
    return ["setpriv", *READ_ONLY]


@pytest.mark.slow
def test_tests_pass_in_a_clone(clone: Path, tmp_path: Path) -> None:
    """A fast part of the suite: imports, scripts, the installation's files, an operator with its kernels."""
    files = ["tests/compat/test_imports.py", "tests/ops/test_rows.py"]
    scripts = "tests/end_to_end/test_checkout.py::test_both_passes_run_and_count"
    script = ["bash", clone / "scripts" / "test.sh", "--skip-setup", "--skip-lint", "--jobs", 1, "-q"]
    command = [*without_privileges(), *script, *files, scripts, "-k", "not simulator"]
    variables = {"FAIRSEQ_MEGA_VENV": sys.prefix, "PYTHONPATH": "", "PYTEST_ADDOPTS": "", "HOME": str(tmp_path)}
    environment = {**os.environ, **variables, "FAIRSEQ_MEGA_NATIVE": "off" if native.PROBLEM else "require"}
    done = subprocess.run([*map(str, command)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("script", ["quickstart.sh", "mega_table2_lra.sh"])
def test_options_are_read_before_anything_is_installed(script: str, tmp_path: Path) -> None:
    """By a Python without packages, as on a machine that has nothing; one script of each kind."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "FAIRSEQ_MEGA_VENV": str(tmp_path), "PYTHONPATH": ""}
    for word, refused in (("--help", False), ("--nonsense", True)):
        command = ["bash", str(REPOSITORY / "scripts" / script), word]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert "Traceback" not in done.stderr and (done.returncode != 0) == refused, done.stderr
        assert ("--nonsense" if refused else "usage: ") in done.stdout + done.stderr


@pytest.mark.parametrize("first, second", [(1, 0), (0, 1)])
def test_both_passes_run_and_count(tmp_path: Path, first: int, second: int) -> None:
    """The tests without kernels run whatever the first ones said, and the exit status tells of either."""
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    fate = f"if [[ $FAIRSEQ_MEGA_NATIVE == off ]]; then exit {second}; else exit {first}; fi"
    (binaries / "python").write_text(f'#!/bin/bash\necho "$FAIRSEQ_MEGA_NATIVE: $*" >>"{tmp_path}/calls"\n{fate}\n')
    (binaries / "python").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRSEQ_MEGA")}
    environment["FAIRSEQ_MEGA_VENV"] = str(binaries.parent)
    command = ["bash", str(REPOSITORY / "scripts" / "test.sh"), "--skip-setup", "--skip-lint", "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["require: -m pytest", "off: -m pytest -q tests/ops tests/modules"]
    assert done.returncode == 1 and "the tests without the compiled kernels" * second in done.stderr


@pytest.mark.parametrize(("level", "others"), [("baseline", "default SSE41 SSE4_2"), ("avx3", "")])
def test_tests_run_as_on_another_cpu(tmp_path: Path, level: str, others: str) -> None:
    """The kernels of ours, PyTorch, oneDNN and MKL all get the level, once ours have said that the processor has it."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    program = f"""#!/bin/bash
others="${{ATEN_CPU_CAPABILITY-no}} ${{ONEDNN_MAX_CPU_ISA-no}} ${{MKL_ENABLE_INSTRUCTIONS-no}}"
echo "$FAIRSEQ_MEGA_CPU_LEVEL $others $*" >>"{tmp_path}/calls"
[[ $FAIRSEQ_MEGA_CPU_LEVEL != avx3 ]]
"""
    (binaries / "python").write_text(program)
    (binaries / "python").chmod(0o755)
    of_others = ("_ISA", "_CAPABILITY", "_INSTRUCTIONS")
    environment = {name: value for name, value in os.environ.items() if not name.endswith(of_others)}
    environment["FAIRSEQ_MEGA_VENV"] = str(tmp_path)
    options = ["--skip-setup", "--skip-lint", "--jobs", "1", "--cpu-level", level, "tests/ops"]
    command = ["bash", str(REPOSITORY / "scripts" / "test.sh"), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    first, *rest = (tmp_path / "calls").read_text().splitlines()
    assert first == f"{level} no no no -c import fairseq_mega.ops.common.native"
    assert rest == ([f"{level} {others} -m pytest tests/ops"] if others else [])
    assert done.returncode == (0 if others else 1), done.stderr
