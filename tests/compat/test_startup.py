"""Modules of other packages that are repaired as they are imported."""

import argparse
import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, List, Optional, Union

import pytest
from fairseq.dataclass import utils

from fairseq_mega.compat import startup

NEW_UNION = getattr(types, "UnionType", None)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Optional[str], str),
        (Union[None, float], float),
        (List[str], List[str]),
        *([(eval("str | None"), str), (eval("None | int"), int)] if NEW_UNION else []),
    ],
)
def test_fairseq_reads_every_way_of_writing_an_optional_type(annotation: Any, expected: Any) -> None:
    module = types.ModuleType("utils")
    vars(module).update(interpret_dc_type=utils.interpret_dc_type)
    startup.read_unions(module)
    assert module.interpret_dc_type(annotation) == expected


def test_help_that_is_no_text_is_replaced() -> None:
    module = types.ModuleType("utils")
    startup.write_help_as_text(module)
    parser = module.argparse.ArgumentParser()
    parser.add_argument("--shell-completion", action="store_true", help=object())
    parser.add_argument("--other", help="as it is")
    assert startup.COMPLETION in parser.format_help() and "as it is" in parser.format_help()
    assert argparse.ArgumentParser is not module.argparse.ArgumentParser


def test_a_module_is_changed_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_for.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: List[int] = []
    finders = list(sys.meta_path)
    startup.when_imported("watched_for", lambda module: seen.append(module.value))
    watched_for = importlib.import_module("watched_for")
    startup.when_imported("watched_for", lambda module: seen.append(module.value + 1))
    monkeypatch.delitem(sys.modules, "watched_for")
    assert seen == [1, 2] and watched_for.value == 1 and sys.meta_path == finders


def test_the_file_is_loaded_alone(tmp_path: Path) -> None:
    """The startup file is imported by another name and without this package, as a .pth file of an environment does."""
    (tmp_path / "fairseq_mega_startup.py").symlink_to(startup.__file__)
    program = "import fairseq_mega_startup, sys; print('torch' in sys.modules, 'fairseq_mega' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("False False\n", "")
