"""Input that is broken or odd: nothing lost, every line answered in its place."""

import io
import re
import shutil
from pathlib import Path

import pytest

from fairseq_mega.cli import console
from tests.support import helpers

LINES = ("w1 w2", "", "w3", "", "", "w4 w5 w6", "")


def test_a_truncated_checkpoint_is_named_and_kept(capsys, tiny_model, device_flags, tmp_path) -> None:
    contents, path = tiny_model.checkpoint.read_bytes(), tmp_path / "checkpoint_last.pt"
    path.write_bytes(contents[: len(contents) // 2])
    training = [*helpers.TINY_TRAINING, "--max-update", 1, "--save-dir", tmp_path]
    for command, options in (("train", training), ("generate", ["--path", path])):
        helpers.forget_earlier_runs()
        given = [tiny_model.data, *options, *device_flags]
        assert console.run(command, [str(argument) for argument in given]) in (console.FILE_ERROR, console.VALUE_ERROR)
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
        assert str(path) in line
    helpers.forget_earlier_runs()
    assert path.read_bytes() == contents[: len(contents) // 2]


@pytest.mark.parametrize("way", ["pipe", "file"])
def test_each_line_feed_has_its_answer(way: str, tiny_model, device_flags, monkeypatch, capsys, tmp_path) -> None:
    """A carriage return ends no line, or later answers would belong to other lines; a byte-order mark is no word."""
    (tmp_path / "input").write_bytes("\ufeffw1\rw2\r\n\ufeffw3\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "input").read_bytes()), "utf-8"))
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
    arguments += ["--input", tmp_path / "input"] if way == "file" else []
    assert console.run("interactive", [str(argument) for argument in arguments]) == 0
    assert re.findall(r"^S-\d+\t(.*)$", capsys.readouterr().out, re.M) == ["w1 w2", "w3"]


def test_stdin_that_is_no_utf8(tiny_model, device_flags, monkeypatch, capsys) -> None:
    """Its bytes are refused also under LANG=C.UTF-8, where Python accepts all bytes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", "surrogateescape"))
    arguments = [str(part) for part in (tiny_model.data, "--path", tiny_model.checkpoint, *device_flags)]
    assert console.run("interactive", arguments) == console.VALUE_ERROR
    assert "0xe9" in capsys.readouterr().err


@pytest.mark.parametrize("buffer", [[], ["--buffer-size", "3", "--batch-size", "3"]])
def test_interactive_answers_empty_lines_in_order(buffer, tiny_model, device_flags) -> None:
    """And logs tokens that the model does not know."""
    text = "".join(f"{line}\n" for line in (*LINES, "  \t ", "w1 nothing known", "w1 <unk> w2"))
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 2, *buffer, *device_flags]
    output = helpers.run_fairseq("interactive", arguments, stdin=text)
    assert list(helpers.hypotheses(output)) == list(range(len(LINES) + 3))
    (told,) = [line for line in output.splitlines() if "tokens of the text" in line]
    assert "2 of the 3 tokens of the text 'w1 nothing known'" in told


def test_generate_answers_empty_lines(tiny_model, device_flags, tmp_path: Path) -> None:
    data = helpers.make_parallel_corpus(tmp_path, sentences=len(LINES), valid=4, train=200, test_source=LINES)
    for language in ("en", "de"):
        shutil.copy(tiny_model.data / f"dict.{language}.txt", data)
    output = helpers.run_fairseq("generate", [data, "--path", tiny_model.checkpoint, "--beam", 2, *device_flags])
    assert sorted(helpers.hypotheses(output)) == list(range(len(LINES)))
