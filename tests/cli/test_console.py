"""The commands fairseq-mega-*: their --user-dir, their help, their errors."""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import List

import pytest
import torch
from fairseq.data import ConcatDataset
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import build_optimizer

import fairseq_mega
from fairseq_mega.cli import console
from fairseq_mega.cli.usage import plugin_flags
from fairseq_mega.compat import errors
from fairseq_mega.compat.processes import cpu_process
from tests.support.documented_commands import OPTION, OURS, PARSERS


class TestUserDir:
    ours = next(iter(fairseq_mega.__path__))

    @pytest.mark.parametrize(
        ("given", "added"),
        [
            ([], True),
            (["--user-dir", "fairseq_mega"], True),  # by name, where no such folder is
            (["--user-dir", "other"], False),
        ],
    )
    def test_is_added(self, given: List[str], added: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert console.with_user_dir(["data", *given]) == [
            "data",
            *given,
            *(["--user-dir", self.ours] if added else []),
        ]


class TestErrors:
    def raising(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        import fairseq_cli.train

        def cli_main() -> None:
            raise error

        monkeypatch.setattr(fairseq_cli.train, "cli_main", cli_main)
        monkeypatch.delenv("FAIRSEQ_MEGA_TRACEBACK", raising=False)

    @pytest.mark.parametrize(
        ("error", "status", "expected"),
        [
            (ValueError("--encoder-chunk-size is 0"), 2, "--encoder-chunk-size is 0"),
            (FileNotFoundError(2, "No such file or directory", "data-bin"), 1, "data-bin"),
            (Exception("Could not infer language pair"), 2, "Could not infer language pair"),
            (FloatingPointError("Minimum loss scale\nreached"), 2, "Minimum loss scale reached"),
        ],
    )
    def test_of_the_user_take_one_line(self, error, status, expected, monkeypatch, capsys) -> None:
        self.raising(monkeypatch, error)
        assert console.run("train", ["data", "--arch", "mega_tiny"]) == status
        message = capsys.readouterr().err
        assert message.startswith("fairseq-mega-train: error: ") and message.count("\n") == 1
        assert expected in message

    @pytest.mark.parametrize(
        ("call", "expected"),
        [
            (lambda: ConcatDataset([]), "AssertionError: datasets should not be an empty iterable"),
            (lambda: build_optimizer(argparse.Namespace(optimizer="adan"), []), "KeyError: 'adan'"),
        ],
    )
    def test_of_fairseq_take_one_line(self, call, expected) -> None:
        with pytest.raises((KeyError, AssertionError)) as raised:
            call()
        assert errors.in_one_line("x", raised.value) == f"x: error: {expected} (traceback: FAIRSEQ_MEGA_TRACEBACK=1)"

    def test_tensors_of_another_model(self, monkeypatch, capsys) -> None:
        """Torch names all of them; the first of hundreds are enough."""
        missing = '"decoder.layers.1.x", ' * 500
        text = f"Error(s) in loading state_dict for Model:\n\tMissing key(s) in state_dict: {missing}"
        cause = Exception("Cannot load model parameters from checkpoint a.pt")
        cause.__context__ = RuntimeError(text)
        self.raising(monkeypatch, cause)
        assert console.run("train", ["data", "--arch", "mega_tiny"]) != 0
        message = capsys.readouterr().err
        assert "decoder.layers.1.x" in message and message.count("\n") == 1 and len(message) < 800
        with pytest.raises(RuntimeError) as raised:
            torch.nn.Linear(1, 1).load_state_dict({})
        assert errors.is_users_error(raised.value)

    def test_of_ours_keep_the_traceback(self, monkeypatch) -> None:
        self.raising(monkeypatch, KeyError("bug"))
        with pytest.raises(KeyError):
            console.run("train", ["data", "--arch", "mega_tiny"])

    def test_traceback_on_request(self, monkeypatch) -> None:
        self.raising(monkeypatch, ValueError("bad"))
        monkeypatch.setenv("FAIRSEQ_MEGA_TRACEBACK", "1")
        with pytest.raises(ValueError, match="bad"):
            console.run("train", ["data", "--arch", "mega_tiny"])


class TestHelp:
    @pytest.mark.parametrize("command", console.COMMANDS)
    def test_the_first_page_has_options_of_the_command(self, command: str, capsys: pytest.CaptureFixture) -> None:
        assert console.run(command, ["--help"]) == 0
        page = capsys.readouterr().out
        known = {
            *PARSERS[command]()._option_string_actions,
            *OPTION.findall(plugin_flags({"--task": None, "--lr-scheduler": None})),
        }
        found = {*OPTION.findall(page)} - {"--help-all"}
        assert found <= {*known, *OURS} and {"--cpu", "--precision"} <= found
        assert "--help-all" in page and len(page.splitlines()) < 50

    def test_train_lists_the_registered_architectures(self, capsys: pytest.CaptureFixture) -> None:
        assert console.run("train", ["--help"]) == 0
        names = capsys.readouterr().out.partition("of this package: ")[2].partition(";")[0].replace("\n", " ")
        registered = {
            name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_mega.")
        }
        assert set(names.split(", ")) == registered and "mega_lm_tiny" in registered

    def test_train_shows_the_options_of_one_model(self, capsys: pytest.CaptureFixture) -> None:
        assert console.run("train", ["--arch", "mega_lm_tiny", "--task", "mega_language_modeling", "--help"]) == 0
        page = capsys.readouterr().out
        assert "with --arch mega_lm:" in page and "--decoder-chunk-size" in page and "--chunk-nums" in page
        assert "with --arch mega:" not in page and "--save-dir" not in page

    @pytest.mark.parametrize(
        ("command", "given", "flags"),
        [
            ("train", ["--help-all"], ("--save-dir", "--warmup-power", "--chunk-nums")),
            ("train", ["--arch", "transformer", "--help"], ("--save-dir", "--warmup-power", "--chunk-nums")),
            ("generate", ["--help-all"], ("--user-dir", "--valid-block")),
        ],
    )
    def test_all_options(self, command: str, given: List[str], flags: List[str], capsys: pytest.CaptureFixture) -> None:
        assert console.run(command, given) == 0
        page = capsys.readouterr().out
        for flag in flags:
            assert flag in page, flag


@pytest.mark.parametrize("command", console.COMMANDS)
def test_processes_that_train_or_generate_are_configured(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a process of its own is: other code that calls a command keeps its memory and its numbers."""
    configured: List[str] = []
    monkeypatch.setattr(cpu_process, "configure_process", lambda: configured.append(command))
    monkeypatch.setitem(sys.modules, "stand_in", SimpleNamespace(cli_main=lambda: None))
    monkeypatch.setitem(console.COMMANDS, command, "stand_in")
    monkeypatch.setattr(sys, "argv", [f"fairseq-mega-{command}", "data"])
    assert console.run(command, ["data"]) == 0 and not configured
    assert getattr(console, command.replace("-", "_"))() == 0
    assert bool(configured) == (command in ("train", "generate", "interactive"))
