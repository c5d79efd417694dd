"""Command lines that are wrong take one line; the task of a command is that of the checkpoint."""

import pytest

from fairseq_mega.cli import console
from fairseq_mega.lab.prepare import command as prepare
from fairseq_mega.models import checkpoint_files
from fairseq_mega.models.checkpoint_files import origin_of
from tests.support import helpers

TRAINING = ["--cpu", "--max-update", "1", "--num-workers", "0", "--disable-validation", "--optimizer", "adam"]
TRAINING += ["--max-tokens", "100"]


def error_of(capsys, monkeypatch, folder, command, *arguments):
    """The one line that a command prints on stderr, without its name."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FAIRSEQ_MEGA_TRACEBACK", raising=False)
    helpers.forget_earlier_runs()
    try:
        status = prepare.main(list(arguments)) if command == "prepare" else console.run(command, arguments)
    except SystemExit as exit_request:
        status = exit_request.code if isinstance(exit_request.code, int) else 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert status == console.VALUE_ERROR and len(lines) == 1, lines
    name, _, message = lines[0].partition(": error: ")
    assert name.startswith(f"fairseq-mega-{command}")
    return message


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("train", ["data", "--arch", "mega_tinny"], "mega_tinny"),
        ("train", ["data", "--arch", "mega_tiny", "--chunk-size", "8"], "--chunk-size"),
        ("generate", ["data", "--cpu"], "--path"),
        ("prepare", ["listops", "--out", "x", "--count", "many"], "--count"),
    ],
)
def test_an_option_is_named(command, arguments, expected, capsys, monkeypatch, tmp_path):
    given = TRAINING if command == "train" else []
    message = error_of(capsys, monkeypatch, tmp_path, command, *arguments, *given)
    assert expected in message and len(message) < 800


def run_quietly(capsys, command, *arguments):
    helpers.forget_earlier_runs()
    assert console.run(command, [str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_the_task_is_that_of_the_checkpoint(tiny_model, device_flags, capsys, monkeypatch):
    """The checkpoint is opened once before fairseq opens it."""
    opened, load = [], checkpoint_files.load

    def count(path, *args, **kwargs):
        opened.append(path)
        return load(path, *args, **kwargs)

    monkeypatch.setattr(checkpoint_files, "load", count)
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--max-tokens", 500, *device_flags]
    assert "valid on 'valid' subset" in run_quietly(capsys, "validate", *given)
    assert opened == [str(tiny_model.checkpoint)]
    assert origin_of(str(tiny_model.checkpoint)) == ("mega_tiny", "translation")
    assert origin_of(None) == origin_of("https://example.com/model.pt") == (None, None)


@pytest.mark.parametrize("name", ["none.pt", "text.pt"])
def test_a_checkpoint_that_cannot_be_read_is_named_before_the_data(name, tmp_path, capsys):
    """Without its task, fairseq would look for the data of another one, and complain about that."""
    (tmp_path / "text.pt").write_text("no model")
    assert console.run("generate", [str(tmp_path), "--path", str(tmp_path / name), "--cpu"]) == console.FILE_ERROR
    assert name in capsys.readouterr().err
