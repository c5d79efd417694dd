"""Input that is missing, broken or odd: one clear line, nothing lost, every sentence translated."""

import io
import re
import shutil
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.cli import console
from tests.support import helpers


@pytest.fixture(autouse=True)
def scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq makes its default --save-dir even for a command that fails at once: keep it out of the checkout."""
    monkeypatch.chdir(tmp_path)


def error_of(capsys: pytest.CaptureFixture, command: str, *argv: object) -> str:
    """Run a command that must fail and return its one line of error."""
    helpers.forget_earlier_runs()
    try:
        status = console.run(command, [str(argument) for argument in argv])
    except SystemExit as exit_request:  # a value that the parser refuses
        status = exit_request.code if isinstance(exit_request.code, int) else 1
    finally:
        helpers.forget_earlier_runs()
    captured = capsys.readouterr()
    assert status in (console.FILE_ERROR, console.VALUE_ERROR), captured.err
    assert "Traceback" not in captured.err, captured.err
    (error,) = [line for line in captured.err.splitlines() if f"fairseq-mega-{command}: error: " in line]
    return error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--max-tokens"),
        ([*helpers.TINY_TRAINING, "--restore-file", "gone.pt"], "--restore-file"),
        ([*helpers.TINY_TRAINING, "--encoder-n-dim", "-1"], "encoder-n-dim"),
    ],
)
def test_a_training_that_cannot_begin(options: List[str], named: str, capsys, tiny_corpus, device_flags) -> None:
    arguments = [tiny_corpus, *helpers.TINY_MODEL, *options, *device_flags, "--max-update", 1, "--save-dir", "save"]
    assert named in error_of(capsys, "train", *arguments)
    assert not list(Path("save").glob("*.pt"))


def test_a_truncated_checkpoint_is_named_and_kept(capsys, tiny_model, device_flags) -> None:
    contents, path = tiny_model.checkpoint.read_bytes(), Path("checkpoint_last.pt")
    path.write_bytes(contents[: len(contents) // 2])
    arguments = [tiny_model.data, *helpers.TINY_TRAINING, *device_flags, "--max-update", 1, "--save-dir", "."]
    assert str(path) in error_of(capsys, "train", *arguments)
    assert str(path) in error_of(capsys, "generate", tiny_model.data, "--path", path, *device_flags)
    assert path.read_bytes() == contents[: len(contents) // 2]


def test_a_sentence_that_is_too_long(capsys, monkeypatch, tiny_model, device_flags) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("w1 w2\n" + "w3 " * 1500 + "\n"))
    options = ["--source-lang", "en", "--target-lang", "de", *device_flags]
    message = error_of(capsys, "interactive", tiny_model.data, "--path", tiny_model.checkpoint, *options)
    assert "1501" in message and "1024" in message, message


@pytest.mark.parametrize("way", ["pipe", "file"])
def test_each_line_feed_has_its_answer(way: str, tiny_model, device_flags, monkeypatch, capsys) -> None:
    """A carriage return ends no line, or later answers would belong to other lines; a byte-order mark is no word."""
    Path("input").write_bytes("\ufeffw1\rw2\r\n\ufeffw3\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path("input").read_bytes()), "utf-8"))
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
    arguments += ["--input", "input"] if way == "file" else []
    assert console.run("interactive", [str(argument) for argument in arguments]) == 0
    assert re.findall(r"^S-\d+\t(.*)$", capsys.readouterr().out, re.M) == ["w1 w2", "w3"]


def test_stdin_that_is_no_utf8(tiny_model, device_flags, monkeypatch, capsys) -> None:
    """Bytes of stdin are refused also under LANG=C.UTF-8, where Python accepts all bytes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", "surrogateescape"))
    found = error_of(capsys, "interactive", tiny_model.data, "--path", tiny_model.checkpoint, *device_flags)
    assert "utf-8" in found and "0xe9" in found


def test_tokens_that_a_model_does_not_know_are_logged(tiny_model, device_flags) -> None:
    """Not where somebody wrote the word for them."""
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
    printed = helpers.run_fairseq("interactive", arguments, stdin="w1 nothing known\nw1 <unk> w2\nw1 w2\n")
    (told,) = [line for line in printed.splitlines() if "tokens of the text" in line]
    assert "2 of the 3 tokens of the text 'w1 nothing known'" in told


LINES = ("w1 w2", "", "w3", "", "", "w4 w5 w6", "")


@pytest.mark.parametrize("buffer", [[], ["--buffer-size", "3", "--batch-size", "3"]])
def test_interactive_answers_empty_lines_in_order(buffer, tiny_model, device_flags) -> None:
    text = "".join(f"{line}\n" for line in (*LINES, "  \t "))
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 2, *buffer, *device_flags]
    output = helpers.run_fairseq("interactive", arguments, stdin=text)
    assert list(helpers.hypotheses(output)) == list(range(len(LINES) + 1))


def test_generate_answers_empty_lines(tiny_model, device_flags, tmp_path) -> None:
    data = helpers.make_parallel_corpus(tmp_path, sentences=len(LINES), valid=4, train=200, test_source=LINES)
    for language in ("en", "de"):
        shutil.copy(tiny_model.data / f"dict.{language}.txt", data)
    output = helpers.run_fairseq("generate", [data, "--path", tiny_model.checkpoint, "--beam", 2, *device_flags])
    assert sorted(helpers.hypotheses(output)) == list(range(len(LINES)))
