"""Starting again: one quick start at a time in a folder, and stages whose markers are removed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from fairseq_mega.lab.quickstart import command, language_model, translation
from fairseq_mega.lab.reproduce.evaluating import generated


def test_a_folder_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second quick start waits; it would move the unfinished files of the first."""
    found: List[str] = []

    class Stub:
        folder = tmp_path

        def __init__(self, *given: object) -> None:
            pass

        def start(self) -> None:
            found.append((tmp_path / "run.lock").read_text())

    monkeypatch.setattr(language_model, "LanguageModel", Stub)
    assert command.main(["--task", "lm", "--work-dir", str(tmp_path), "--cpu", "--smoke"]) == 0
    assert len(found) == 1 and found[0]


def test_translations_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever removes .done/translate wants new ones, also of the same checkpoint."""
    job: Any = SimpleNamespace(folder=tmp_path, evaluation="x", recipe=SimpleNamespace(report="x"))
    checkpoint = tmp_path / "checkpoint_best.pt"
    checkpoint.touch()
    generated(job, "best").write_text("old")
    kept: List[bool] = []
    monkeypatch.setattr(translation, "translate", lambda job, name, *given: kept.append(generated(job, name).exists()))
    stub: Any = SimpleNamespace(job=job, checkpoint=checkpoint)
    translation.Translation.translate(stub)
    assert kept == [False]
