"""Recipes of MEGALODON's Figure 4, which measure a speed: nothing is read or trained for them."""

from pathlib import Path
from typing import Any, List, Sequence

import pytest
import torch

from fairseq_mega.lab.benchmarks.models import build_recipe
from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.reproduce import tables
from fairseq_mega.lab.reproduce.evaluating import speed
from fairseq_mega.lab.reproduce.runner import jobs_of
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.runs.results import make_result, read_result, write_result

RECIPES = find("megalodon/figure4")
LLAMA2 = 6_738_415_616  # parameters of LLAMA2-7B


def parameters(name: str) -> int:
    recipe = catalogue()[name]
    with torch.device("meta"):
        assert torch.empty(0).is_meta, "28 GB would be asked for"
        model = build_recipe(name, recipe.evaluate["symbols"], 64)
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_llama_is_the_published_one() -> None:
    assert parameters("megalodon/figure4/7b/llama") == LLAMA2


def test_the_measurement(tmp_path: Path) -> None:
    """The command that is run, on one GPU of those there, and what becomes of its figures."""
    choices = Choices(tmp_path, gpus=8, precision="bf16", workers=3)
    (run,) = jobs_of(find("megalodon/figure4/7b/llama"), [], choices, {})
    assert run.gpus == 1
    given: List[str] = []

    def execute(words: Sequence[str], *_: Any, **__: Any) -> None:
        given.extend(words)
        figures = {"seconds": 2.0, "memory_mib": 5.0, "parameters": 7}
        scores = {f"{run.recipe.name} L={length} {key}": x for length in (4096, 32768) for key, x in figures.items()}
        write_result(Path(words[words.index("--json") + 1]), make_result("lm-length", "x", scores, 1, "measured"))

    speed(run, execute, {}, "the command")
    options = dict(zip(given[given.index("--models") :: 2], given[given.index("--models") + 1 :: 2]))
    assert options["--models"] == run.recipe.name and options["--lengths"] == "4096,32768"
    assert options["--device"] == "cuda" and options["--dtype"] == "bfloat16" and options["--threads"] == "3"
    (path,) = run.results.glob("*.json")
    result = read_result(path)
    assert result["benchmark"] == "megalodon-figure4" and result["command"] == "the command"
    assert result["scores"]["L=4096 tokens_per_second"] == 2048 and result["scores"]["L=32768 memory_mib"] == 5.0


def test_speed_beside_a_table_is_measured_with_the_recipes_that_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MEGA's Table 2 has the speed of trainings on Text."""
    columns, commands = PAPER_TABLES["table2"].speed, []
    assert columns is not None
    monkeypatch.setattr(tables, "execute", lambda words, *others: commands.append(words))
    for name, measured in (("listops/mega", 0), ("text/mega_chunk", 1), ("text/mega", 1)):
        tables.measure_speed(columns, Choices(tmp_path), find(f"mega/table2/{name}"))
        assert len(commands) == measured
    assert commands[0][-5:] == ["4096", "--json", str(tmp_path / "speed.json"), "--device", "cpu"]
