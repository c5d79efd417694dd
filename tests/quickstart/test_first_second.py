"""Whatever stops a later stage of the quick start is said before the first one, and before anything is installed."""

from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.quickstart import options, training, translation
from fairseq_mega.lab.runs.commands import StageError

GOOD = "".join(f"line {number}\n" for number in range(120))
TEXTS: Dict[str, Any] = {
    "empty": ({"text.en": GOOD, "text.ja": ""}, [], "text.ja is empty"),
    "no time": ({"text.en": GOOD, "text.ja": GOOD}, ["--train-minutes", "0.004"], "--train-minutes"),
    "no valid": ({"text.en": GOOD, "text.ja": GOOD}, ["--valid", "valid"], "valid.en does not exist"),
}


def words(more: List[str]) -> List[str]:
    return ["--text", "text", "--source-lang", "en", "--target-lang", "ja", "--work-dir", "made", *more]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(more: List[str], capsys: pytest.CaptureFixture) -> str:
    with pytest.raises(SystemExit) as ended:
        options.parse(words(more))
    assert ended.value.code == 1 and not Path("made").exists()
    message = capsys.readouterr().err
    assert message.startswith("quickstart.sh: error: ") and message.count("\n") == 1
    return message


@pytest.mark.parametrize(("files", "more", "message"), TEXTS.values(), ids=TEXTS)
def test_texts_that_cannot_do(
    files: Dict[str, Any], more: List[str], message: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in refused(more, capsys)


def good_text(folder: Path) -> None:
    for language in ("en", "ja"):
        (folder / f"text.{language}").write_text(GOOD)


def test_a_missing_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_text(folder)
    monkeypatch.setattr(translation.shutil, "which", lambda name: None)
    work = translation.Translation(options.parse(words([])), "bash scripts/quickstart.sh")
    with pytest.raises(StageError, match="'fairseq-mega-interactive' .*scripts/setup.sh"):
        work.start()
    assert not (folder / "made" / ".done").exists()


def test_the_text_is_read_before_the_device_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_text(folder)
    (folder / "text.ja").write_bytes(b"ab\xff\n" * 120)
    monkeypatch.setattr(translation.shutil, "which", lambda name: name)
    monkeypatch.setattr(training, "gpus_for", lambda cpu: pytest.fail("too early"))
    with pytest.raises(ValueError, match=r"text\.ja: line 1"):
        translation.Translation(options.parse(words([])), "bash scripts/quickstart.sh").start()
