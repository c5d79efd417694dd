"""Command lines that forget something or are ill-typed: one line each, which says what to do."""

import pytest
import torch

from fairseq_mega.cli import console
from fairseq_mega.lab.prepare import command as prepare
from fairseq_mega.models import checkpoint_files
from fairseq_mega.models.checkpoint_files import origin_of
from tests.support import helpers

NOTHING = ["--cpu", "--max-update", "1", "--num-workers", "0", "--disable-validation"]


def error_of(capsys, monkeypatch, folder, command, *arguments):
    """The one line that a command prints on stderr, without its name."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FAIRSEQ_MEGA_TRACEBACK", raising=False)
    helpers.forget_earlier_runs()
    try:
        status = prepare.main(list(arguments)) if command == "prepare" else console.run(command, arguments)
    except SystemExit as exit_request:
        status = exit_request.code if isinstance(exit_request.code, int) else 1
    lines = capsys.readouterr().err.splitlines()
    assert status == console.VALUE_ERROR and len(lines) == 1, lines
    name, _, message = lines[0].partition(": error: ")
    assert name.startswith(f"fairseq-mega-{command}")
    return message


@pytest.mark.parametrize("given", [[], ["data"], ["data", "--max-tokens", "400", "--optimizer", "adam"]])
def test_a_missing_architecture(given, capsys, monkeypatch, tmp_path):
    assert error_of(capsys, monkeypatch, tmp_path, "train", *given).startswith("--arch")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--arch", "mega_tiny"], "data"),
        (["data", "--arch", "mega_tinny"], "mega_tinny"),
        (["data", "--arch", "mega_tiny", "--enc-layers=3"], "--enc-layers"),
        (["data", "--arch", "mega_tiny", "--chunk-size", "8"], "--chunk-size"),
        (["data", "--arch", "mega_tiny", "--max-tokens", "many"], "--max-tokens"),
        (["data", "--arch", "mega_tiny", "--task", "trnaslation"], "--task"),
        (["data", "--arch", "mega_lm_tiny"], "give --task mega_language_modeling (without --task it is translation)"),
        (["data", "--arch", "mega_lra_imdb"], "is a classifier: give --task lra-text, lra-image or speech_commands"),
        (["data", "--arch=mega_tiny", "--task=lra-image"], "a translator: give --task translation (found lra-image)"),
        (["data", "-a", "mega", "--task", "mega_language_modeling"], "mega is a translator: give --task translation"),
        (["data", "-a", "mega_lra", "--task", "language_modeling"], "mega_lra is a classifier: give --task lra-text"),
    ],
)  # fmt: skip
def test_training(arguments, expected, capsys, monkeypatch, tmp_path):
    message = error_of(capsys, monkeypatch, tmp_path, "train", *arguments, *NOTHING)
    assert expected in message and len(message) < 800


@pytest.mark.parametrize("command", ["generate", "interactive", "eval-lm", "validate"])
@pytest.mark.parametrize("given", [[], ["data", "--cpu"]])
def test_a_missing_checkpoint(command, given, capsys, monkeypatch, tmp_path):
    message = error_of(capsys, monkeypatch, tmp_path, command, *given)
    assert "--path is missing: give the checkpoint" in message


def run_quietly(capsys, command, *arguments):
    helpers.forget_earlier_runs()
    assert console.run(command, [str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_the_task_is_that_of_the_checkpoint(tiny_model, device_flags, capsys):
    found = run_quietly(
        capsys, "validate", tiny_model.data, "--path", tiny_model.checkpoint, "--max-tokens", 500, *device_flags
    )
    assert "valid on 'valid' subset" in found
    assert origin_of(str(tiny_model.checkpoint)) == ("mega_tiny", "translation")


def test_a_checkpoint_is_opened_once_before_fairseq_opens_it(tiny_model, device_flags, capsys, monkeypatch):
    opened, load = [], checkpoint_files.load

    def count(path, *args, **kwargs):
        opened.append(path)
        return load(path, *args, **kwargs)

    monkeypatch.setattr(checkpoint_files, "load", count)
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--max-tokens", 500, *device_flags]
    run_quietly(capsys, "validate", *given)
    assert opened == [str(tiny_model.checkpoint)]


def test_a_checkpoint_that_cannot_be_read_is_named_before_the_data(tmp_path, capsys):
    """Without its task, fairseq would look for the data of another one, and complain about that."""
    (tmp_path / "text.pt").write_text("no model")
    (tmp_path / "empty.pt").touch()
    wrong = {"none.pt": "none.pt does not exist", "text.pt": "text.pt cannot be read: it is truncated or not a check"}
    for name, expected in {**wrong, "empty.pt": "empty.pt cannot be read", ".": "is a folder"}.items():
        for command in ("generate", "interactive", "eval-lm", "validate"):
            assert console.run(command, [str(tmp_path), "--path", str(tmp_path / name), "--cpu"]) == 1
            said = capsys.readouterr().err
            assert expected in said and "Traceback" not in said, said
    for path in (None, "", "https://example.com/model.pt"):
        assert origin_of(path) == (None, None)


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("generate", ["--task=mega_language_modeling"], "is a translator: give --task translation (found mega_lang"),
        ("validate", ["--task", "lra-text"], "--path holds a model of --arch mega_tiny, which is a translator"),
        (
            "eval-lm",
            [],
            "--path holds a translator (--arch mega_tiny): run fairseq-mega-generate, interactive or",
        ),
    ],
)
def test_checkpoints_of_another_family(command, options, expected, tiny_model, capsys, monkeypatch, tmp_path):
    given = [str(tiny_model.data), "--path", str(tiny_model.checkpoint), *options]
    assert expected in error_of(capsys, monkeypatch, tmp_path, command, *given)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model-overrides", "{'dropuot': 0.1}"], "dropuot"),
        (["--bpe", "sentencepiece"], "MissingMandatoryValue: Missing mandatory value: sentencepiece_model"),
        (["--path", ""], "--path '': give the checkpoint"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "interactive"])
def test_generation(command, options, expected, tiny_model, capsys, monkeypatch, tmp_path):
    given = [str(tiny_model.data), "--path", str(tiny_model.checkpoint), "--cpu", *options]
    assert expected in error_of(capsys, monkeypatch, tmp_path, command, *given)


@pytest.mark.parametrize("command", ["eval-lm", "validate"])
def test_several_checkpoints_where_one_is_read(command, capsys, monkeypatch, tmp_path):
    for name in "ab":
        torch.save({"cfg": {}}, tmp_path / name)
    message = error_of(capsys, monkeypatch, tmp_path, command, "data", "--path", "a:b")
    assert message.startswith(f"--path a:b: fairseq-mega-{command} ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "DATASET"),
        (["listop", "--out", "x"], "listop"),
        (["listops"], "--out"),
        (["own-texts", "--train", "x", "--out", "x", "--workers", "1"], "--workers"),
        (["listops", "--out", "x", "--count", "many"], "--count"),
    ],
)
def test_preparation(arguments, expected, capsys, monkeypatch, tmp_path):
    assert expected in error_of(capsys, monkeypatch, tmp_path, "prepare", *arguments)
