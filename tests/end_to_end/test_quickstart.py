"""scripts/quickstart.sh, for both tasks: a whole run on a little text, and its resumption."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, NamedTuple

import pytest

from fairseq_mega.lab.prepare import binarised
from fairseq_mega.lab.prepare.translation.parallel_text import Pair, read_sentences, write_pairs
from fairseq_mega.lab.quickstart import command
from fairseq_mega.lab.runs import commands
from tests.support import in_process
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401
from tests.support.terminal import dialogue

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_processes")]
SMOKE = ["--smoke", "--skip-setup", "--cpu"]


def quickstart(*arguments: object) -> in_process.Done:
    """Run the script in this process and return its status and output."""
    return in_process.call(command.main, *SMOKE, *arguments)


class Smoke(NamedTuple):
    """A finished run in its tiny form."""

    text: Path
    work: Path
    out: str  # what it printed


def sentences() -> List[Pair]:
    """300 sentence pairs, with an empty, an odd and a repeated one among them."""
    nouns, verbs = ["dog", "cat", "house", "tree", "river", "book"], ["sees", "finds", "likes", "hears", "knows"]
    words = list(itertools.product(nouns, verbs, nouns, nouns[:2]))[:297]
    pairs = [Pair(f"the {a} {verb} the {b} {c} .", f"der {a} {verb} den {b} {c} .") for a, verb, b, c in words]
    return [Pair("", "leer"), Pair("tab\tand … “quotes”", "Tab\tund … „Anführung“"), pairs[4], *pairs]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """A run by bash in a folder with a space in its path."""
    text, work = tmp_path_factory.mktemp("text") / "own text", tmp_path_factory.mktemp("quick start") / "work"
    write_pairs(str(text), "en", "de", sentences())
    script = ["bash", REPOSITORY / "scripts" / "quickstart.sh", *SMOKE, "--text", text, "--work-dir", work]
    environment = {**os.environ, "FAIRSEQ_MEGA_VENV": sys.prefix}
    done = subprocess.run([*map(str, script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "pairs read: 300" in done.stderr and "1 empty side" in done.stderr
    assert "update 20 of 20" in done.stderr
    return Smoke(text, work, done.stdout)


def test_a_run_scores_every_sentence_and_tells_what_was_made(translator: Smoke) -> None:
    _, work, out = translator
    references = read_sentences(work / "text" / "test.de")
    assert f"sentences scored: {len(references)} of {len(references)}" in out
    assert "sacreBLEU = " in out and "nrefs:1|case:mixed" in out
    shown = [line.split(":", 1)[1].strip() for line in out.splitlines() if line.startswith("  reference:")]
    assert len(shown) == 5 and set(shown) <= set(references)
    checkpoint = work / "checkpoints" / "checkpoint_best.pt"
    assert str(checkpoint) in out and checkpoint.is_file() and (work / "result.json").is_file()


def test_the_lines_printed_translate_what_is_typed_and_draw(translator: Smoke) -> None:
    *lines, line = translator.out.rstrip().splitlines()
    shown = dialogue(["bash", "-c", line], "the dog sees the tree cat .\n", "\n", "unknown Ωmega words\n", "\x04")
    assert shown.count("\n> ") == 4 and "\u2581" not in shown, shown
    (drawn,) = [line for line in lines if line.endswith("--attention TEXT")]
    subprocess.run(["bash", "-c", f"{drawn[:-4]} 'the dog sees the tree .'"], check=True)
    assert (translator.work / "checkpoints" / "attention.png").stat().st_size > 1000


def test_a_second_run_skips_what_is_done(translator: Smoke) -> None:
    text, work, out = translator
    checkpoint = work / "checkpoints" / "checkpoint_best.pt"
    written = checkpoint.stat().st_mtime_ns
    again = quickstart("--text", text, "--work-dir", work)
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stderr.count("done before, skipped") == 3 and checkpoint.stat().st_mtime_ns == written
    assert again.stdout.split("sacreBLEU = ")[1].split()[0] == out.split("sacreBLEU = ")[1].split()[0]
    other = quickstart("--updates", "21", "--text", text, "--work-dir", work)
    assert other.returncode == 1 and "> updates 21" in other.stderr


def test_a_failing_stage_shows_its_log_and_is_not_marked_as_done(translator: Smoke, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(translator.work, work)
    for stage in ("train", "translate"):
        (work / ".done" / stage).unlink()
    (work / "checkpoints" / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    failed = quickstart("--text", translator.text, "--work-dir", work)
    assert failed.returncode == 1 and "sacreBLEU" not in failed.stdout
    assert f"{work}/train.log" in failed.stderr and not (work / ".done" / "train").exists()


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    folder, words = tmp_path_factory.mktemp("quick lm"), ["the sea", "a ship", "of old", "and then", "in May"]
    text, work = folder / "my text.txt", folder / "work"
    text.write_text("".join(f"{words[n % 5]} {words[n * n % 5]} {words[n // 7 % 5]}.\n" for n in range(900)))
    with pytest.MonkeyPatch.context() as patch:
        for module in (commands, binarised):
            patch.setattr(module, "run_command", in_process.run_command)
        done = quickstart("--task", "lm", "--precision", "bf16", "--text", text, "--work-dir", work)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "update 20 of 20" in done.stderr and "precision: bf16 (requested)" in done.stderr
    return Smoke(text, work, done.stdout)


def test_a_run_scores_every_byte_and_writes_a_text(language_model: Smoke) -> None:
    _, work, out = language_model
    (file,) = (work / "results").rglob("*.json")
    result, text = json.loads(file.read_text()), (work / "text" / "test").read_text()
    assert result["examples"] == text.count("\n") + sum(len(line.split()) for line in text.splitlines())
    assert f"bits per byte: {result['scores']['bits_per_token']:.3f}" in out
    assert len(out.split("held-out text\n\n")[1].split("\ncheckpoint: ")[0]) > 300


def test_the_lines_printed_write_more(language_model: Smoke, tmp_path: Path) -> None:
    code, _, shell = language_model.out.split("to write more:\n")[1].partition("\nin the shell, ")
    (typed,) = shell.splitlines()[2:]
    for line, stdin, begins, holds in (
        (code.replace("beginning = ''", "beginning = 'the sea, '"), "", "the sea, ", ""),
        (typed, "the sea\n", "", "\nD-0\t"),
    ):
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.startswith(begins) and holds in done.stdout and len(done.stdout) > 200, done.stdout


def test_sides_of_unequal_lengths_are_refused(tmp_path: Path) -> None:
    for lang, content in (("en", "a\nb\n"), ("de", "a\n")):
        (tmp_path / f"own.{lang}").write_text(content)
    refused = quickstart("--text", tmp_path / "own", "--work-dir", tmp_path / "work")
    assert refused.returncode == 1 and f"{tmp_path}/own.de" in refused.stderr
    assert not (tmp_path / "work" / ".done" / "data").exists()
