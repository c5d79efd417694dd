"""Recipes of MEGALODON's Figure 1 scaled down: equal models, and the same bytes in the same order."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Sequence

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_mega  # noqa: F401
from fairseq_mega.lab.benchmarks.models import build_recipe
from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.reproduce.evaluating import language_model
from fairseq_mega.lab.runs.results import read_result
from tests.support.helpers import random_sentences, run_fairseq
from tests.support.jobs import run_of

RECIPES = find("megalodon/figure1")


def test_all_models_are_equal() -> None:
    with torch.device("meta"):
        models = [build_recipe(recipe.name, 104, 64) for recipe in RECIPES]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert len(sizes) == 3 and max(sizes) - min(sizes) < 0.001 * min(sizes)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised text of some dozen blocks."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in random_sentences(6000, 8)))
    run_fairseq("preprocess", ["--only-source", "--destdir", folder / "data-bin", "--trainpref", folder / "train.txt"])
    return folder / "data-bin"


def batches(name: str, text: Path, seed: int) -> List[torch.Tensor]:
    """The targets of an epoch, batch after batch, as fairseq's trainer reads them."""
    recipe = catalogue()[name]
    words = without_user_dir(arguments(recipe.config, recipe.preset))
    given = options.parse_args_and_arch(options.get_training_parser(), words)
    cfg = convert_namespace_to_omegaconf(given)
    cfg.task.data, cfg.task.seed = str(text), seed
    task = tasks.setup_task(cfg.task)
    task.build_model(cfg.model)
    dataset = task.load_dataset("train", data_selector=None)
    sizes = {"max_tokens": cfg.dataset.max_tokens, "max_sentences": 4, "seed": seed}
    epoch = task.get_batch_iterator(dataset, **sizes).next_epoch_itr(shuffle=True)
    return [batch["target"] for batch in epoch]


def test_all_models_read_the_same_bytes_in_the_same_order(text: Path) -> None:
    read = [batches(recipe.name, text, seed=2) for recipe in RECIPES]
    assert len(read[0]) > 5
    for other in read[1:]:
        assert len(other) == len(read[0]) and all(map(torch.equal, read[0], other))
    again = batches(RECIPES[0].name, text, seed=3)
    assert not all(map(torch.equal, read[0], again)), "the seed draws the order"


def test_a_training_leaves_its_losses_in_a_result_of_its_own(tmp_path: Path) -> None:
    """Before the scores, which take longer; of a recipe that wants no curve there is none."""
    run = run_of("megalodon/figure1/gcide/llama", tmp_path, seed=7)
    run.folder.mkdir(parents=True)
    (run.folder / "train.command").write_text("fairseq-mega-train DATA\n")
    lines = [{"loss": f"{9 - n / 100}", "wpb": "50", "ups": "2", "num_updates": str(n)} for n in range(1, 401)]
    lines[300]["loss"] = "20"
    lines.append({"valid_loss": "5.5", "valid_num_updates": "400"})
    (run.folder / "train.log").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "checkpoint_last.pt").write_bytes(b"weights")
    commands: List[Sequence[str]] = []

    def execute(words: Sequence[str], *_: Any, **__: Any) -> None:
        assert list(run.results.glob("*-train.json")) == [run.results / f"{run.name}-train.json"] * curve
        commands.append(words)

    for curve in (0, 1):
        wanted = {**run.recipe.evaluate, "curve": bool(curve)}
        one = replace(run, recipe=replace(run.recipe, evaluate=wanted))
        language_model(one, execute, {}, "the command")
    (result,) = map(read_result, run.results.glob("*.json"))
    assert len(commands) == 2 * len(run.recipe.evaluate["contexts"])
    assert (result["benchmark"], result["seed"], result["examples"]) == ("megalodon-figure1", 7, 20_000)
    assert result["scores"]["valid_bits_per_token"] == 5.5
    assert result["scores"]["train_bits_per_token"] == pytest.approx(9 - 3.985)
    assert result["curve"]["valid"] == {"tokens": [20_000], "bits_per_token": [5.5]}
    assert result["curve"]["train"]["tokens"] == [200 * n for n in range(1, 101)]
    assert result["spikes"] == [301]
    assert result["train_command"] == "fairseq-mega-train DATA"
