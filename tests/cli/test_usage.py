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
        (["--arch", "mega_tiny"], "the data folder is missing: give the folder as the first argument"),
        (["data", "--arch", "mega_tinny"], "--arch/-a mega_tinny is unknown: give mega_tiny, mega_lm_tiny or m"),
        (["data", "--arch", "xyz"], "--arch/-a xyz is unknown: give one of the names in --help"),
        (["data", "--arch", "mega_tiny", "--max-token", "4"], "unknown here: do you mean --max-"),
        (["data", "--arch", "mega_tiny", "--enc-layers=3"], "unknown here: do you mean --encoder-layers"),
        (["data", "--arch", "mega_tiny", "--chunk-size", "8"], "unknown here: it requires --arch mega_lra"),
        (["data", "--arch", "mega_tiny", "--qqqqqq"], "--qqqqqq is unknown here: omit it"),
        (["data", "--arch", "mega_tiny", "more"], "only the data folder is given without an option"),
        (["data", "--arch", "mega_tiny", "--max-tokens", "many"], "--max-tokens 'many': give a whole number"),
        (["data", "--arch", "mega_tiny", "--lr", "fast"], "--lr 'fast': give a number, or several"),
        (["data", "--arch", "mega_tiny", "--optimizer", "adamw"], "--optimizer adamw is unknown: give adam, "),
        (["data", "--arch", "mega_tiny", "--task", "trnaslation"], "--task trnaslation is unknown: give translation"),
        (["data", "--arch", "mega_lm_tiny"], "give --task mega_language_modeling (without --task it is translation)"),
        (["data", "--arch", "mega_lra_imdb"], "is a classifier: give --task lra-text, lra-image or speech_commands"),
        (["data", "--arch=mega_tiny", "--task=lra-image"], "a translator: give --task translation (found lra-image)"),
        (["data", "-a", "mega", "--task", "mega_language_modeling"], "mega is a translator: give --task translation"),
        (["data", "-a", "mega_lra", "--task", "language_modeling"], "mega_lra is a classifier: give --task lra-text"),
    ],
)  # fmt: skip
def test_training(arguments, expected, capsys, monkeypatch, tmp_path):
    assert expected in error_of(capsys, monkeypatch, tmp_path, "train", *arguments, *NOTHING)


@pytest.mark.parametrize("command", ["generate", "interactive", "eval-lm", "validate"])
@pytest.mark.parametrize("given", [[], ["data", "--cpu"]])
def test_a_missing_checkpoint(command, given, capsys, monkeypatch, tmp_path):
    message = error_of(capsys, monkeypatch, tmp_path, command, *given)
    assert "--path is missing: give the checkpoint" in message
    assert "do you mean --path" in error_of(
        capsys, monkeypatch, tmp_path, command, "data", "--task=translation", "--pathh=x"
    )


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
        (["--model-overrides", "{'dropuot': 0.1}"], "dropuot=0.1: the settings of "),
        (["--bpe", "sentencepiece"], "MissingMandatoryValue: Missing mandatory value: sentencepiece_model"),
        (["--path", ""], "--path '': give the checkpoint"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "interactive"])
def test_generation(command, options, expected, tiny_model, capsys, monkeypatch, tmp_path):
    given = [str(tiny_model.data), "--path", str(tiny_model.checkpoint), "--cpu", *options]
    assert error_of(capsys, monkeypatch, tmp_path, command, *given).startswith(expected)


@pytest.mark.parametrize("command", ["eval-lm", "validate"])
def test_several_checkpoints_where_one_is_read(command, capsys, monkeypatch, tmp_path):
    for name in "ab":
        torch.save({"cfg": {}}, tmp_path / name)
    message = error_of(capsys, monkeypatch, tmp_path, command, "data", "--path", "a:b")
    assert message.startswith(f"--path a:b: fairseq-mega-{command} ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "required: DATASET"),
        (["listop", "--out", "x"], "DATASET listop is unknown: give listops"),
        (["listops"], "required: --out"),
        (
            ["own-texts", "--train", "x", "--out", "x", "--workers", "1"],
            "--workers is unknown here: it is an option of ",
        ),
        (
            ["own-documents", "--texts", "x", "--out", "x", "--held-out", "1"],
            "--held-out is unknown here: it is an option of ",
        ),
        (["listops", "--out", "x", "--cout", "5"], "--cout is unknown here: do you mean --count"),
        (["listops", "--out", "x", "--count", "many"], "--count: 'many': a whole number"),
    ],
)
def test_preparation(arguments, expected, capsys, monkeypatch, tmp_path):
    assert expected in error_of(capsys, monkeypatch, tmp_path, "prepare", *arguments)


@pytest.mark.parametrize(
    ("names", "words", "expected"),
    [
        (["a.txt", "b c.txt"], ["--train", "{0}", "{1}", "--unit", "bytes"], "run `cat {0} '{1}' >all.txt`, then"),
        ([f"my books/{n}.txt" for n in range(13)], ["--train", "{*}"], "run `cat '{d}/my books'/*.txt >all.txt`, then"),
        (["my text.txt"], ["--valid", "{d}/my", "text.txt"], "give --valid '{0}'"),
        ([], ["--train", "x", "y"], "--train has one value, found 2 words"),
        ([], ["x", "--train", "y"], "x belongs to no option"),
    ],
)
def test_several_texts_where_one_is_read(names, words, expected, capsys, monkeypatch, tmp_path):
    files = [tmp_path / name for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("a text\n")

    def filled(text):
        return text.format(*files, d=tmp_path) if text != "{*}" else text

    given = [value for word in words for value in (map(str, files) if word == "{*}" else [filled(word)])]
    train = [] if "--train" in words else ["--train", __file__]
    assert filled(expected) in error_of(
        capsys, monkeypatch, tmp_path, "prepare", "text-lm", *train, *given, "--out", "x"
    )
