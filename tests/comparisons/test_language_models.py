"""The comparison of language models trains as its recipes say."""

from pathlib import Path

import pytest

from fairseq_mega.lab.comparisons.language_models import LanguageModels
from fairseq_mega.lab.comparisons.options import LANGUAGE_MODEL_MODELS, parse
from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.runs.folder import Work


def comparison(tmp_path: Path, *more: str) -> LanguageModels:
    for name in ("dict.txt", "test.bin"):
        (tmp_path / name).write_text("x")
    words = ["language_models", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *more]
    return LanguageModels(parse(words), Work(tmp_path / "out", [], "--out"))


@pytest.mark.parametrize("model", LANGUAGE_MODEL_MODELS)
def test_the_training_is_the_recipe(model: str, tmp_path: Path) -> None:
    """But for folders and the machine; another rate, seed and number of updates are what the options say."""
    config = comparison(tmp_path).config(model)
    wanted = catalogue()[f"comparison/wikitext2/{model}"].config
    machine = {"user_dir", "cpu", "data", "save_dir", "distributed_world_size"}
    for group, options in wanted.items():
        found = {key: value for key, value in config[group].items() if key not in machine}
        assert found == {key: value for key, value in options.items() if key not in machine}, group
    other = comparison(tmp_path, "--lr", "5e-3", "--seed", "7", "--updates", "30", "--gpu").config(model)
    assert other["optimization"]["lr"] == [0.005] and other["common"] == {**config["common"], "seed": 7, "cpu": False}
    half = comparison(tmp_path, "--precision", "bf16").config(model)
    assert half["common"] == {**config["common"], "amp": True, "bf16": True}
    assert (other["lr_scheduler"]["warmup_updates"], other["lr_scheduler"]["total_num_update"]) == (3, 30)


def test_every_model_has_a_recipe() -> None:
    assert {recipe.cell["model"] for recipe in find("comparison/wikitext2")} == set(LANGUAGE_MODEL_MODELS)


def test_bytes_have_one_table(tmp_path: Path) -> None:
    config = comparison(tmp_path, "--unit", "bytes").config("mega")
    assert config["criterion"] == {"_name": "cross_entropy"} and config["model"]["share_decoder_input_output_embed"]
    assert not any("adaptive" in key for key in config["model"])


def test_contexts(tmp_path: Path) -> None:
    words, smoke = comparison(tmp_path), comparison(tmp_path, "--smoke", "--exact")
    assert words.contexts("mega") == [["--contexts", "128,256,1024,4096", "--segments", 1]]
    assert smoke.contexts("mega") == [["--exact-contexts", "16,32,128,512", "--segments", 1]]
    assert words.contexts("llama") == [[], ["--context-window", 240]]
    assert smoke.contexts("transformer") == [[], ["--context-window", 30]]
