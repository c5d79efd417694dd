"""--list: a golden of all recipes, and the counts of their models that it reads."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce import counts
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.counts import counted, counts_of
from fairseq_mega.lab.reproduce.listing import duration, row
from fairseq_mega.lab.reproduce.settings import Choices, parse_setting, revise
from tests.support.jobs import TEXT, run_of

GOLDEN = Path(__file__).parent.parent / "goldens" / "list.txt"
PUBLISHED = {  # parameters: MEGA, Table 5; the README of its code; counts of models that were built
    "mega/table5/wikitext103/mega": 252e6,
    "mega/table5/wikitext103/transformer": 247e6,
    "mega/table5/enwik8/mega": 39e6,
    "mega/table7/en-de/mega_softmax": 67e6,
    "comparison/wikitext2/mega": 1_581_440,
    "comparison/wikitext2/transformer": 1_579_136,
    "mega/table4/speech/base": 343_134,
    "mega/table4/speech/big": 475_890,
}


def test_the_list_of_a_bare_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recipes for a first try come first, those of more than a year are behind --all, and lines have 100 columns."""
    words = ["--list", "--gpus", "0", "--workers", "2", "--root", str(tmp_path), "--out", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == GOLDEN.read_text(encoding="utf-8")
    assert main([*words, "--all"]) == 0
    everything = capsys.readouterr().out
    assert max(map(len, everything.splitlines())) <= 100
    for text, has_all in ((printed, False), (everything, True)):
        names = {line.split()[0] for line in text.splitlines() if line}
        assert (catalogue().keys() <= names) == has_all == ("megalodon/table3/mt-bench" in text)
    assert "mega/table7/en-de/transformer" not in printed and main([*words, "mega/table7"]) == 0
    assert "mega/table7/en-de/transformer" in capsys.readouterr().out


def test_the_counts_are_those_of_the_models() -> None:
    """``counts.write()`` writes them again."""
    assert counts.FILE.read_text(encoding="utf-8") == counts.text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_about_the_published(name: str) -> None:
    found, published = counts_of(catalogue()[name]).parameters, PUBLISHED[name]
    assert abs(found - published) < (0.01 if published > 2e8 else 0.15) * published


def test_a_changed_recipe_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = catalogue()["mega/table2/text/mega"]
    halved = revise(recipe, [parse_setting("model.encoder_layers=2")])
    assert counts_of(halved) == counted(halved) and counts_of(halved).parameters < counts_of(recipe).parameters
    monkeypatch.setattr(counts, "counted", lambda changed: pytest.fail("a model was built"))
    assert counts_of(revise(recipe, [parse_setting("optimization.lr=0.1")])) == counts_of(recipe)


def test_the_time_that_is_left(tmp_path: Path) -> None:
    """The time follows the speed in the log where there is one, else the operations."""
    run = run_of(TEXT, tmp_path, workers=2)
    run.folder.mkdir(parents=True)
    (run.folder / "train.log").write_text('x | train_inner | {"ups": "2", "num_updates": "1000"}\n' * 3)
    recipe, cpu, gpu = run.recipe, run.choices, Choices(tmp_path, gpus=1)
    work = counts_of(recipe)
    assert row(recipe, [run], cpu).cells[1:5] == ["0 of 1 seeds", "90.43", "-", "3.3 h"]
    half = 12500 * work.operations
    assert duration(recipe, work, 12500, 25000, None, gpu) == half / 40e12
    assert duration(recipe, work, 12500, 25000, None, cpu) == half / 50e9


HEAVY = """
import sys
from fairseq_mega.lab.reproduce.command import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
found = [name for name in ("torch", "fairseq", "numpy", "fairseq_mega.lab.prepare") if name in sys.modules]
print(found, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--list", "--gpus", "0"], ["--print"], ["--yaml"]], ids=" ".join)
def test_neither_torch_nor_data_sets_are_imported(words: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HEAVY, "mega/table2", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout and done.stderr.splitlines()[-1] == "[]"
