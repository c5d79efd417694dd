"""The script that builds wheels and writes down what they need."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.helpers import REPOSITORY

SPEC = importlib.util.spec_from_file_location("build_wheels", REPOSITORY / "scripts" / "build_wheels.py")
assert SPEC is not None and SPEC.loader is not None
build_wheels: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_wheels)


@pytest.mark.slow
def test_a_wheel_and_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_wheels.main(["--out", str(tmp_path), "--kinds", "none"]) == 0
    (wheel,) = json.loads((tmp_path / "wheels.json").read_text())
    file = tmp_path / wheel["file"]
    assert file.parent.name == "none" and file.stat().st_size == wheel["bytes"]
    assert wheel["python"] == ">=3.11" and wheel["glibc"] is None and len(wheel["sha256"]) == 64
    assert any(package.startswith("torch>=") for package in wheel["packages"])
    page = (tmp_path / "WHEELS.md").read_text()
    assert f"pip install {wheel['file']}" in page and wheel["sha256"] in page
    monkeypatch.setattr(build_wheels.sys, "executable", "false")
    assert build_wheels.main(["--out", str(tmp_path / "dist"), "--kinds", "none"]) == 1
    assert not (tmp_path / "dist").exists()


def test_the_c_library_that_is_needed() -> None:
    library = b"\0GLIBC_2.2.5\0GLIBC_2.17\0memcpy\0GLIBC_2.4\0GLIBC_PRIVATE\0"
    assert build_wheels.newest_glibc(library) == "2.17"
