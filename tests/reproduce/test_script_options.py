"""Scripts of the tables: options are checked before there is an environment, and --help describes the recipes."""

import re
import shlex
import subprocess
import sys
from typing import List

import pytest

from fairseq_mega.lab.recipes.catalogue import find_all
from fairseq_mega.lab.recipes.describing import description, notes
from fairseq_mega.lab.reproduce import options
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.settings import choose
from fairseq_mega.lab.runs.options import ROOT
from tests.support.helpers import REPOSITORY
from tests.support.in_process import words_of

SCRIPTS = sorted(path.name for pattern in ("mega*", "compare_*") for path in (REPOSITORY / "scripts").glob(pattern))


def check(script: str, *words: str, python: List[str]) -> "subprocess.CompletedProcess[str]":
    """Check a command line as scripts/lib.sh does."""
    module = [str(REPOSITORY / "scripts" / "check_options.py"), "fairseq_mega.lab.reproduce"]
    command = [*python, *module, str(REPOSITORY / "scripts" / script), *words_of(script), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_lists_what_where_accepts(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.main([str(REPOSITORY / "scripts" / script), *words_of(script), "--help"])
    printed = capsys.readouterr().out
    recipes = find_all([word for word in words_of(script)[1:] if "/" in word])
    listed = dict(re.findall(r"^  --where ([a-z_]+)=LIST +(\S.*)$", printed, re.MULTILINE))
    for key, values in listed.items():
        assert sum(len(choose(recipes, f"{key}={value}")) for value in values.split(", ")) >= len(recipes) > 1
    if len({recipe.name.rpartition("/")[2] for recipe in recipes}) > 1:
        assert set(listed["name"].split(", ")) == {recipe.name.rpartition("/")[2] for recipe in recipes}
    assert printed.startswith(f"usage: bash scripts/{script} ") and "--venv" in printed and "--max-update" in printed
    for recipe in recipes:
        assert ",".join(map(str, recipe.seeds)) in printed and recipe.notes.split(" ")[0] in printed


def test_recipes_are_described_by_the_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    for word, described in (("megalodon/table8", True), ("--list", False)):
        with pytest.raises(SystemExit):
            main([word, "--help"])
        printed = capsys.readouterr().out
        assert ("recipes of megalodon/table8" in printed, "our interpretation" in printed) == (described, described)


def test_notes_name_their_recipes() -> None:
    """By the parts of the names that differ; a note of all has none."""
    text = " ".join(notes(find_all(["mega/table7"])).split())
    assert "en-de/transformer, de-en/transformer: The heads of the base model" in text
    assert notes(find_all(["megalodon/table8"])).split()[:2] == ["notes:", "our"]
    assert notes(find_all(["mega/table4"])) == "" and "--where" not in description(find_all(["megalodon/table8"]))


@pytest.mark.parametrize("python", [[sys.executable, "-I", "-S"], [sys.executable]], ids=["bare", "environment"])
def test_nothing_has_to_be_installed(python: List[str]) -> None:
    """Without PyYAML the help has the names of the recipes; errors and words of the runner are the same."""
    done = check("mega_table2_lra.sh", "--help", python=python)
    assert done.returncode == 0 and "--max-update N" in done.stdout and "Long Range Arena" in done.stdout
    (names,) = re.findall(r"^  --where name=LIST +(\S.*)$", done.stdout, re.MULTILINE)
    assert set(names.split(", ")) == {"mega", "mega_chunk", "transformer", "s4d"}
    for words, message in (
        (["--nonsense"], "mega_table2_lra.sh: error: unknown option '--nonsense'"),
        (["--seeds"], "mega_table2_lra.sh: error: --seeds needs a value"),
    ):
        refused = check("mega_table2_lra.sh", *words, python=python)
        assert refused.returncode == 1 and message in refused.stderr and not refused.stdout
    printed = check("mega_table2_lra.sh", "--venv", "a b", "--smoke", "--", "--lr", "3", python=python).stdout
    out = ROOT / "outputs" / "lra-smoke"
    words = ["mega/table2", "--smoke", "--out", str(out), "--root", str(ROOT), "--", "--lr", "3"]
    assert printed == f"venv='a b' skip_setup= words=({shlex.join(words)})\n"


@pytest.mark.parametrize(
    ("given", "out"),
    [
        ([], ["--out", str(ROOT / "outputs" / "lra")]),
        (["--work-dir", "x"], []),
        (["--print"], []),
        (["--yaml"], []),
    ],
)
def test_results_lie_in_the_checkout(given: List[str], out: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unless an option names another folder, or nothing is written."""
    options.main([str(REPOSITORY / "scripts" / "mega_table2_lra.sh"), "lra", "mega/table2", "--skip-setup", *given])
    words = ["mega/table2", *given, *out, "--root", str(ROOT)]
    assert capsys.readouterr().out == f"venv='' skip_setup=yes words=({shlex.join(words)})\n"
