"""Folders that an earlier version began, which made the data in stages of its own, go on."""

from pathlib import Path
from typing import Any, List, Tuple

import pytest

from fairseq_mega.lab.quickstart import training, translation
from fairseq_mega.lab.quickstart.options import parse
from fairseq_mega.lab.runs.stages import stage


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task whose data, training and evaluation are told of in ``calls``."""
    (tmp_path / "logs").mkdir()
    found: Any = translation.Translation(
        parse(["--cpu", "--precision", "fp32", "--work-dir", str(tmp_path)]), "command"
    )
    found.calls = []

    def prepare(words: List[str], leaves: Tuple[str, ...]) -> None:
        assert not any((tmp_path / name).exists() for name in leaves)
        (tmp_path / "SOURCE.json").write_text('{"inputs": {}}')
        found.calls.append("data")

    monkeypatch.setattr(training, "prepare", prepare)
    monkeypatch.setattr(found, "train_planned", lambda: found.calls.append("train"))
    monkeypatch.setattr(translation, "translate", lambda *given: found.calls.append("translate"))
    monkeypatch.setattr(found, "data_words", list)
    monkeypatch.setattr(found, "show", lambda: None)
    monkeypatch.setattr(translation.shutil, "which", lambda name: name)
    (tmp_path / "SOURCE.json").write_text("{}")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test.en").write_text("one\n")
    return found


def finish(folder: Path, *names: str) -> None:
    for name in names:
        stage(folder, name, lambda: None)


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (["binarise"], ["train", "translate"]),
        (["binarise", "plan", "train"], ["translate"]),
        (["binarise", "plan", "train", "translate"], []),
    ],
)
def test_stages_that_were_done_are_kept(
    done: List[str], left: List[str], made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minutes").write_text("15.00\n")
    (tmp_path / "logs" / "generate.log").write_text("translations")
    scored: List[str] = []
    monkeypatch.setattr(translation, "report", lambda words: scored.append(Path(words[1]).read_text()))
    finish(tmp_path, "text", "subwords", *done)
    made.start()
    assert made.calls == left and scored == ["translations"]


def test_data_that_were_not_done_are_made_anew(made: Any, tmp_path: Path) -> None:
    finish(tmp_path, "text")
    (tmp_path / "pieces").mkdir()
    with pytest.raises(OSError):  # for want of the text
        made.start()
    assert made.calls == ["data", "train", "translate"]
    assert not any((tmp_path / name).exists() for name in ("text", "pieces", "logs"))
