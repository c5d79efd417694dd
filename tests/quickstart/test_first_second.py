"""Whatever stops a later stage of the quick start is said before the first one, and before anything is installed."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.quickstart import options, training, translation
from fairseq_mega.lab.runs.commands import StageError

GOOD = "".join(f"line {number}\n" for number in range(120))
TEXTS: Dict[str, Any] = {
    "unequal": ({"text.en": GOOD, "text.ja": GOOD + "one more\n"}, [], "text.en has 120 lines but"),
    "too few to hold some out": (
        {"text.en": "a\n" * 99, "text.ja": "b\n" * 99},
        [],
        "99 lines, and at least 100 are required",
    ),
    "empty": ({"text.en": GOOD, "text.ja": ""}, [], "text.ja is empty"),
    "unequal test": (
        {"text.en": GOOD, "text.ja": GOOD, "test.en": GOOD, "test.ja": "a\n"},
        ["--test", "test"],
        "test.en has 120 lines but",
    ),
    "small test": (
        {"text.en": GOOD, "text.ja": GOOD, "test.en": "a\n" * 4, "test.ja": "a\n" * 4},
        ["--test", "test"],
        "test.en has 4 lines, and at least 5 are required",
    ),
    "UTF-16": ({"text.en": GOOD, "text.ja": GOOD.encode("utf-16")}, [], "text.ja contains NUL bytes, like UTF-16 text"),
    "carriage returns": (
        {"text.en": GOOD.replace("\n", "\r"), "text.ja": GOOD},
        [],
        "text.en: its lines end in carriage returns, which do not end lines here: replace them by line feeds",
    ),
    "no time": ({"text.en": GOOD, "text.ja": GOOD}, ["--train-minutes", "0.004"], "give a number of minutes, 0.01 or"),
    "no valid": ({"text.en": GOOD, "text.ja": GOOD}, ["--valid", "valid"], "valid.en does not exist"),
    "work folder is a file": (
        {"text.en": GOOD, "text.ja": GOOD, "out": "x"},
        ["--work-dir", "out/here"],
        "out is a file",
    ),
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


@pytest.mark.parametrize(("free", "more"), [(299e6, []), (49e6, ["--smoke"])])
def test_a_full_disk(
    free: float, more: List[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    good_text(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert f"{free / 1e6:.0f} MB are free" in refused(more, capsys)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free + 1e6))
    options.parse(words(more))


def test_a_folder_that_may_not_be_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    good_text(folder)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "may not be written to" in refused([], capsys)


def test_a_missing_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_text(folder)
    monkeypatch.setattr(translation.shutil, "which", lambda name: None)
    work = translation.Translation(options.parse(words([])), "bash scripts/quickstart.sh")
    with pytest.raises(StageError, match="'fairseq-mega-interactive' .*scripts/setup.sh"):
        work.start()
    assert not (folder / "made" / ".done").exists()


def test_bleu_without_mecab_is_told_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Then the text is read, before the device is looked at."""
    good_text(folder)
    (folder / "text.ja").write_bytes(b"ab\xff\n" * 120)
    monkeypatch.setattr(translation, "tokenizer_for", lambda code: SimpleNamespace(reason=f"no words of {code}"))
    monkeypatch.setattr(translation.shutil, "which", lambda name: name)
    monkeypatch.setattr(training, "gpus_for", lambda cpu: pytest.fail("too early"))
    with pytest.raises(ValueError, match=r"text\.ja: line 1 is not UTF-8 .*0xff"):
        translation.Translation(options.parse(words([])), "bash scripts/quickstart.sh").start()
    assert "BLEU will count characters, not words: no words of ja" in capsys.readouterr().err
