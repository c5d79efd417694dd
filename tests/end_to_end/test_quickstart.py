"""scripts/quickstart.sh: a whole run on a little text, its resumption, and its errors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

import pytest

from fairseq_mega.lab.prepare.translation.parallel_files import read_sentences, write_pairs
from fairseq_mega.lab.prepare.translation.parallel_text import Pair
from fairseq_mega.lab.quickstart import command
from tests.support import in_process
from tests.support.in_process import in_process as no_processes  # noqa: F401
from tests.support.stand_ins import commands_in
from tests.support.terminal import dialogue

pytestmark = pytest.mark.usefixtures("no_processes")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "quickstart.sh"


def quickstart(*arguments: str, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Run the script in this process and return its status and output."""
    return in_process.call(command.main, *arguments, environment=environment)


def quickstart_by_bash(*arguments: str, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Run the script in the environment of this Python."""
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env={**os.environ, "FAIRSEQ_MEGA_VENV": sys.prefix, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=900,
    )
    return in_process.Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prefix of 300 sentence pairs, with an empty, an odd and a repeated one among them."""
    nouns = ["dog", "cat", "house", "tree", "river", "book"]
    verbs = ["sees", "finds", "likes", "hears", "knows"]
    pairs = [
        Pair(f"the {a} {verb} the {b} {c} .", f"der {a} {verb} den {b} {c} .")
        for a in nouns
        for verb in verbs
        for b in nouns
        for c in nouns
        if a < b
    ][:297]
    assert len(pairs) == 297
    pairs[5:5] = [Pair("", "leer"), Pair("tab\tand … “quotes”", "Tab\tund … „Anführung“"), pairs[4]]
    prefix = tmp_path_factory.mktemp("text") / "own text"
    write_pairs(str(prefix), "en", "de", pairs)
    return str(prefix)


@pytest.fixture(scope="module")
def smoke_run(text: str, tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, str]":
    """A finished smoke run: its work folder (with a space in its path) and what it printed."""
    work = tmp_path_factory.mktemp("quick start") / "work"
    done = quickstart_by_bash("--smoke", "--skip-setup", "--cpu", "--text", text, "--work-dir", str(work))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "pairs read: 300" in done.stderr
    assert "1 empty side" in done.stderr
    assert "update 20 of 20" in done.stderr
    return work, done.stdout


@pytest.mark.slow
def test_a_run_scores_every_sentence_and_tells_what_was_made(smoke_run: "tuple[Path, str]") -> None:
    work, out = smoke_run
    references = read_sentences(work / "text" / "test.de")
    assert len(references) == 14
    assert f"sentences scored: {len(references)} of {len(references)}" in out
    assert "sacreBLEU = " in out
    assert "nrefs:1|case:mixed" in out
    assert out.count("reference:   ") == 5
    shown = [line.split(":", 1)[1].strip() for line in out.splitlines() if line.startswith("  reference:")]
    assert set(shown) <= set(references)
    assert str(work / "checkpoints" / "checkpoint_best.pt") in out
    assert (work / "checkpoints" / "checkpoint_best.pt").is_file()
    assert (work / "result.json").is_file()


@pytest.mark.slow
def test_the_line_printed_translates_what_is_typed(smoke_run: "tuple[Path, str]") -> None:
    line = smoke_run[1].rstrip().splitlines()[-1]
    shown = dialogue(["bash", "-c", line], "the dog sees the tree cat .\n", "\n", "unknown Ωmega words\n", "\x04")
    assert shown.count("\n> ") == 4 and "\u2581" not in shown, shown


@pytest.mark.slow
def test_a_second_run_skips_what_is_done(smoke_run: "tuple[Path, str]", text: str) -> None:
    work, out = smoke_run
    checkpoint = work / "checkpoints" / "checkpoint_best.pt"
    written = checkpoint.stat().st_mtime_ns
    again = quickstart("--smoke", "--skip-setup", "--cpu", "--text", text, "--work-dir", str(work))
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stderr.count("done before, skipped") == 4
    assert checkpoint.stat().st_mtime_ns == written
    assert again.stdout.split("sacreBLEU = ")[1].split()[0] == out.split("sacreBLEU = ")[1].split()[0]


def test_other_settings_do_not_mix_with_a_folder_begun(smoke_run: "tuple[Path, str]", text: str) -> None:
    work, _ = smoke_run
    other = quickstart("--smoke", "--skip-setup", "--updates", "21", "--text", text, "--work-dir", str(work))
    assert other.returncode == 1
    assert "begun with other settings" in other.stderr
    assert "> updates 21" in other.stderr


@pytest.mark.slow
def test_a_failing_stage_shows_its_log_and_is_not_marked_as_done(
    smoke_run: "tuple[Path, str]", text: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(smoke_run[0], work)
    for stage in ("train", "translate"):
        (work / ".done" / stage).unlink()
    (work / "checkpoints" / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    failed = quickstart("--smoke", "--skip-setup", "--cpu", "--text", text, "--work-dir", str(work))
    assert failed.returncode == 1
    assert f"train ended with status 1; the end of {work}/train.log" in failed.stderr
    assert "Run the same command again to continue from here" in failed.stderr
    assert "sacreBLEU" not in failed.stdout
    assert not (work / ".done" / "train").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "{tmp}/none"], "{tmp}/none.en does not exist: a prefix P names"),
        (["--updates", "0"], "--updates is '0'; give a whole number above 0"),
        (["--train-minutes", "soon"], "--train-minutes is 'soon'"),
        (["--target-lang", "en"], "--source-lang and --target-lang are both 'en'"),
        (["--target-lang", "fr"], "give your own text with --text PREFIX"),
        (["--test", "{tmp}/none"], "--valid and --test require --text"),
        (["--text"], "--text needs a value"),
        (["--fast"], "unknown option '--fast'; see --help"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_made(
    arguments: "list[str]", message: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    refused = quickstart_by_bash("--work-dir", str(work), *(a.format(tmp=tmp_path) for a in arguments))
    assert refused.returncode == 1
    assert message.format(tmp=tmp_path) in refused.stderr
    assert not work.exists()


@pytest.mark.parametrize(
    ("english", "german", "message"),
    [
        ("a\nb\n", "a\n", "own.en has 2 lines but {tmp}/own.de has 1"),
        ("a\n\xff\n" * 50, "a\nb\n" * 50, "own.en: line 2: "),
        ("a\n" * 100, "b\n" * 100, "too few train pairs: 1 left, at least 50 needed"),
    ],
)
def test_bad_text_is_refused_by_name_and_line(english: str, german: str, message: str, tmp_path: Path) -> None:
    for lang, content in (("en", english), ("de", german)):
        (tmp_path / f"own.{lang}").write_bytes(content.encode("latin-1"))
    work = tmp_path / "work"
    refused = quickstart("--skip-setup", "--cpu", "--text", str(tmp_path / "own"), "--work-dir", str(work))
    assert refused.returncode == 1
    assert message.format(tmp=tmp_path) in refused.stderr
    assert not (work / ".done" / "data").exists()


@pytest.mark.parametrize(
    ("user", "messages"),
    [
        (1000, ["run 'apt-get update' as root", "--text PREFIX"]),
        (0, ["updating the package list", "--text PREFIX"]),
    ],
)
def test_without_the_packages_the_remedy_is_printed(
    user: int, messages: "list[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    environment = commands_in(
        tmp_path / "bin",
        apt_get=f'echo "$*" >>"{calls}"; echo "E: Unable to locate package" >&2; exit 100',
        dpkg_deb="exit 1",
    )
    monkeypatch.setattr(os, "geteuid", lambda: user)
    failed = quickstart("--skip-setup", "--work-dir", str(tmp_path / "work"), environment=environment)
    assert failed.returncode == 1
    assert "E: Unable to locate package" in failed.stderr
    for message in messages:
        assert message in failed.stderr
    updates = [line for line in calls.read_text().splitlines() if line == "update"]
    assert len(updates) == (user == 0)


def test_a_damaged_package_is_named(tmp_path: Path) -> None:
    environment = commands_in(tmp_path / "bin", dpkg_deb="exit 2")
    packages = tmp_path / "packages"
    packages.mkdir()
    broken = packages / "libreoffice-help-en-us_7_all.deb"
    broken.write_bytes(b"cut off")
    (packages / "libreoffice-help-de_7_all.deb").write_bytes(b"whole")
    failed = quickstart(
        "--skip-setup",
        "--work-dir",
        str(tmp_path / "work"),
        "--packages",
        str(packages),
        environment=environment,
    )
    assert failed.returncode == 1
    assert f"{broken} " in failed.stderr
