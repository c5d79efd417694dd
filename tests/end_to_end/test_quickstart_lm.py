"""scripts/quickstart.sh --task lm: a whole run on a little text, its end, and its errors."""

import json
import subprocess
from pathlib import Path
from typing import Tuple

import pytest

from fairseq_mega.lab.prepare import binarised
from fairseq_mega.lab.runs import commands
from tests.end_to_end.test_quickstart import quickstart
from tests.support import in_process

WORDS = ["the sea", "a ship", "of old", "and then", "the wind", "came home", "in May"]


def start(text: Path, work: Path) -> in_process.Done:
    options = ["--task", "lm", "--smoke", "--skip-setup", "--cpu", "--precision", "bf16"]
    with pytest.MonkeyPatch.context() as patch:
        for module in (commands, binarised):
            patch.setattr(module, "run_command", in_process.run_command)
        return quickstart(*options, "--text", str(text), "--work-dir", str(work))


@pytest.fixture(scope="module")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Tuple[Path, Path, str]:
    """The text, the work folder and what was printed."""
    folder = tmp_path_factory.mktemp("quick lm")
    text, work = folder / "my text.txt", folder / "work"
    text.write_text("".join(f"{WORDS[n % 7]} {WORDS[n * n % 7]} {WORDS[n // 7 % 7]}.\n" for n in range(900)))
    done = start(text, work)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "update 20 of 20" in done.stderr and "precision: bf16 (requested)" in done.stderr
    return text, work, done.stdout


@pytest.mark.slow
def test_a_run_scores_every_byte_and_writes_a_text(smoke_run: Tuple[Path, Path, str]) -> None:
    _, work, out = smoke_run
    (file,) = (work / "results").rglob("*.json")
    result = json.loads(file.read_text())
    assert result["examples"] == (work / "text" / "test").read_text().count("\n") + sum(
        len(line.split()) for line in (work / "text" / "test").read_text().splitlines()
    )
    assert f"bits per byte: {result['scores']['bits_per_token']:.3f}" in out
    assert len(out.split("held-out text\n\n")[1].split("\ncheckpoint: ")[0]) > 300


@pytest.mark.slow
def test_the_lines_printed_write_more(smoke_run: Tuple[Path, Path, str], tmp_path: Path) -> None:
    code, _, shell = smoke_run[2].split("to write more:\n")[1].partition("\nin the shell, ")
    lines = code.replace("beginning = ''", "beginning = 'the sea, '")
    done = subprocess.run(["bash", "-c", lines], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("the sea, ") and len(done.stdout) > 200
    typed, scored = shell.splitlines()[2:]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run(["bash", "-c", typed], input="the sea\n", **options)  # type: ignore[call-overload]
    assert "\nD-0\t" in done.stdout, done.stderr[-3000:]
    done = subprocess.run(["bash", "-c", scored], **options)  # type: ignore[call-overload]
    assert "Perplexity: " in done.stdout, done.stderr[-3000:]


@pytest.mark.slow
def test_a_second_run_only_shows(smoke_run: Tuple[Path, Path, str]) -> None:
    text, work, out = smoke_run
    again = start(text, work)
    assert again.returncode == 0 and again.stderr.count("done before, skipped") == 4
    assert again.stdout.splitlines()[0] == out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "poem"], "--task is 'poem': choose from translation, lm"),
        (["--task", "lm", "--text", "{tmp}/none"], "{tmp}/none does not exist: give --text FILE"),
        (["--task", "lm", "--text", "{tmp}"], "{tmp} is a folder where a file is needed"),
        (["--task", "lm", "--valid", "{tmp}/none"], "--valid and --test are options of --task translation"),
        (["--precision", "fp16"], "--precision is 'fp16': choose from auto, fp32, bf16"),
    ],
)
def test_impossible_options(arguments: "list[str]", message: str, tmp_path: Path) -> None:
    refused = quickstart("--work-dir", str(tmp_path / "work"), *(a.format(tmp=tmp_path) for a in arguments))
    assert refused.returncode == 1
    assert message.format(tmp=tmp_path) in refused.stderr
    assert not (tmp_path / "work").exists()
