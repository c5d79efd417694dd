"""The result files of the examples: each is quoted by a document, and each new one can be repeated."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from fairseq_mega.lab.runs.environment import git_revision

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("examples/*/results/**/*.json"))
COMPLETE_SINCE = "2026-11-29"  # older files have what the code of their revision recorded
TRAININGS = {"lra", "translation", "quickstart", "quickstart-lm", "megalodon-figure1", "cell", "compare-classifiers"}
TRAININGS |= {"compare-language-models", "multi30k", "multi30k-precision"}


def in_history(commit):
    """Return whether ``commit`` is an ancestor of the checked out one; None outside a whole clone and without git."""
    if shutil.which("git") is None:
        return None
    git = ["git", "-C", str(ROOT)]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    if shallow.stdout.strip() != "false":
        return None
    return subprocess.run([*git, "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True).returncode == 0


def command_exists(command):
    words = shlex.split(command) or [""]
    if words[:2] == ["python", "-m"]:
        return importlib.util.find_spec(words[2]) is not None
    if words[0] in ("python", "bash"):
        return (ROOT / words[1]).is_file()
    return Path(sys.executable).with_name(words[0]).is_file()  # a command of this package or of fairseq


def lacks_of(result):
    """Return the names of the fields that a result lacks to be repeated."""
    revision = str(result.get("git_revision"))
    good = {
        "command": command_exists(result.get("command", "")),
        "git_revision": re.fullmatch("[0-9a-f]{40}", revision) and in_history(revision) is not False,
        "versions": result.get("versions"),
        "hardware": result.get("hardware"),
    }
    if result["benchmark"] in TRAININGS:
        runs = result.get("runs", [result])  # of a cell
        good["seed"] = all(isinstance(run.get("seed"), int) for run in runs)
        good["training_hours"] = all(run.get("training_hours") for run in runs)
        good["data"] = result.get("settings", {}).get("data")
    return sorted(name for name, is_good in good.items() if not is_good)


def test_new_results_can_be_repeated():
    results = {path: json.loads(path.read_text()) for path in FILES}
    new = {path: result for path, result in results.items() if result.get("date", "") >= COMPLETE_SINCE}
    lacks = {str(path): lacks_of(result) for path, result in new.items()}
    assert not {path: names for path, names in lacks.items() if names}


def test_what_a_result_lacks_is_noticed():
    whole = {
        "benchmark": "lra",
        "command": "fairseq-mega-reproduce mega/table2/text/mega_chunk",
        "git_revision": str(git_revision(ROOT)).partition("-")[0] if in_history("HEAD") else "0" * 40,
        "versions": {"torch": "2.13.0"},
        "hardware": {"cores": 2},
        "seed": 1,
        "training_hours": 2.5,
        "settings": {"data": "sha256:0"},
    }
    assert lacks_of(whole) == []
    assert lacks_of({**whole, "command": "python -m fairseq_mega.benchmarks layer"}) == ["command"]
    assert lacks_of({**whole, "git_revision": "1" * 39}) == ["git_revision"]
    for name in ("versions", "hardware", "seed", "training_hours"):
        assert lacks_of({**whole, name: None}) == [name]
    cell = {**whole, "seed": None, "training_hours": None}
    assert lacks_of({**cell, "runs": [{"seed": 1, "training_hours": 0.1}]}) == []
    assert lacks_of({**cell, "runs": [{"seed": 1, "training_hours": 0.1}, {"seed": 2}]}) == ["training_hours"]


def quoted_paths():
    """Return the files and folders that marks and links of the documents name; a mark may have a pattern."""
    for document in [ROOT / "README.md", *ROOT.glob("examples/**/*.md")]:
        text = document.read_text(encoding="utf-8")
        marks = re.findall(r"<!-- (?:table|n|picture): (.*?) -->", text)
        for word in [*" ".join(marks).split(), *re.findall(r"\]\(([^)#\s]+)", text)]:
            if "results" in word:
                yield from document.parent.glob(word.rstrip("/"))


def test_every_result_is_quoted_by_a_document():
    quoted = {path.resolve() for path in quoted_paths()}
    assert FILES and not [str(path) for path in FILES if not quoted & {path, *path.parents}]
