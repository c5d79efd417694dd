"""The table of checks: each row refuses its option before anything is done, and nothing else."""

import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from fairseq import options

from fairseq_mega.cli import console
from fairseq_mega.compat import checks
from fairseq_mega.compat.hooks import run_with
from tests.support import helpers

PARSERS = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": options.get_interactive_generation_parser,
    "eval-lm": options.get_eval_lm_parser,
    "validate": options.get_validation_parser,
}
OF_TRAINING = ["--arch", "mega_tiny", "--optimizer", "adam", "--max-update", "100"]
CLASSES = ["--arch", "mega_lra_listop", "--task", "lra-text", "--optimizer", "adam"]
SHARDED = ["--ddp-backend", "fully_sharded"]
REFUSED: List[Tuple[str, str, List[str]]] = [  # command, option that the message begins with, words
    ("train", "--criterion", CLASSES),
    ("train", "--criterion", [*CLASSES, "--criterion", "label_smoothed_cross_entropy"]),
    ("train", "--criterion", ["--arch", "mega_masked_lm_tiny", "--task", "masked_lm"]),
    ("train", "--maximize-best-checkpoint-metric", ["--eval-bleu", "--best-checkpoint-metric", "bleu"]),
    ("train", "--maximize-best-checkpoint-metric", ["--maximize-best-checkpoint-metric"]),
    ("train", "--restore-file", ["--restore-file", "missing/checkpoint_last.pt"]),
    ("train", "--ddp-backend", [*SHARDED, "--store-ema"]),
    ("train", "--ddp-backend", [*SHARDED, "--optimizer", "adam_selective_decay"]),
    ("validate", "--gen-subset", ["--gen-subset", "valid"]),
    ("eval-lm", "--valid-subset", ["--valid-subset", "test"]),
    ("generate", "--valid-subset", ["--valid-subset", "test"]),
    ("eval-lm", "--context", ["--task", "mega_language_modeling", "--context", "a.safetensors"]),
    ("interactive", "--skip-invalid-size-inputs-valid-test", ["--skip-invalid-size-inputs-valid-test"]),
    *((command, "--source-lang", ["--source-lang", "en"]) for command in ("train", "generate", "interactive")),
    *((command, "--target-lang", ["--target-lang", "de"]) for command in ("train", "generate", "interactive")),
]
ACCEPTED: List[Tuple[str, List[str]]] = [
    *((command, []) for command in PARSERS),
    ("train", [*CLASSES, "--criterion", "lra_cross_entropy"]),
    ("train", ["--best-checkpoint-metric", "ppl"]),
    ("train", ["--eval-bleu", "--best-checkpoint-metric", "bleu", "--max"]),
    ("train", SHARDED),
    ("train", ["--source-lang", "en", "--target-lang", "de"]),
    ("train", ["--restore-file", "there/checkpoint.pt"]),
    ("validate", ["--valid-subset", "test"]),
    ("generate", ["--gen-subset", "valid"]),
    ("generate", ["--task", "mega_language_modeling", "--context", "a.safetensors"]),
    ("generate", ["--skip-invalid-size-inputs-valid-test"]),
]


def parse(command: str, words: List[str], data: str) -> Namespace:
    words = [word if word != "--max" else "--maximize-best-checkpoint-metric" for word in words]
    needed = [data, *(["--path", "x.pt"] if command != "train" else OF_TRAINING)]
    task = {"eval-lm": ["--task", "language_modeling"], "validate": ["--task", "translation"]}.get(command, [])
    parsed: Namespace = options.parse_args_and_arch(PARSERS[command](), [*needed, *task, *words])
    return parsed


@pytest.mark.parametrize(("command", "option", "words"), REFUSED)
def test_an_option_is_refused_by_name(
    command: str, option: str, words: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(command, words, str(tmp_path))
    assert f"error: {option}" in capsys.readouterr().err


def test_every_row_is_tested() -> None:
    assert {option for _, option, _ in REFUSED} == {f"--{check.option.replace('_', '-')}" for check in checks.CHECKS}


@pytest.mark.parametrize(("command", "words"), ACCEPTED)
def test_other_options_are_accepted(
    command: str, words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "checkpoint.pt").touch()
    parse(command, words, str(tmp_path))


def test_the_page_on_fairseq_names_every_row() -> None:
    page = (helpers.REPOSITORY / "examples" / "fairseq_notes.md").read_text(encoding="utf-8")
    table = page.partition("## What is refused")[2].partition("## ")[0]
    assert set(re.findall(r"`(--[a-z-]+)`", table)) >= {option for _, option, _ in REFUSED}


def test_nothing_is_done_after_a_refusal(tiny_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path / "saved"]
    assert console.run("train", list(map(str, [*given, "--restore-file", tmp_path / "missing.pt"]))) != 0
    assert "--restore-file" in capsys.readouterr().err and not (tmp_path / "saved").exists()


@pytest.mark.parametrize("program", ["fairseq_cli/hydra_train.py", "fairseq-train"])
def test_settings_of_hydra_are_checked_before_the_training(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Dict[str, Any] = {group: {} for group in (*checks.IN_GROUPS, *checks.NAMED_GROUPS)}
    groups.update(model={"_name": "mega"}, task={"_name": "lra-text"}, criterion={"_name": "cross_entropy"})
    groups["optimization"] = {"max_update": 5}
    monkeypatch.setattr(sys, "argv", [program])
    built: List[object] = []

    def build(self: object, cfg: object) -> None:
        built.append(cfg)

    def checked(call: Any) -> Iterator[None]:
        return checks.check_settings(call)

    if program == "fairseq-train":
        run_with([checked], build, None, groups)  # its options were checked
        assert built == [groups]
    else:
        with pytest.raises(ValueError, match="--criterion cross_entropy"):
            run_with([checked], build, None, groups)
        assert not built
