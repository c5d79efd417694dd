"""Models of the tiny form: presets of the models, in any recipe no larger than its own."""

import copy
from typing import Any

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import preset
from fairseq_mega.lab.recipes.smoke import FAIRSEQS, OF_DATA, shrink, toy


def is_number(value: Any) -> bool:
    return type(value) is int


def test_it_has_the_options_of_the_recipe() -> None:
    for name, recipe in catalogue().items():
        tiny = copy.deepcopy(recipe.config)
        shrink(tiny, recipe.evaluate["kind"])
        model, own = tiny["model"], recipe.config["model"]
        assert model.keys() == own.keys(), name
        assert not [option for option in model if is_number(own[option]) and model[option] > own[option]], name
        for option, value in toy(own["_name"]).items():
            if own.get(option) is not None and option not in (*OF_DATA, "encoder_layers"):
                assert model[option] == min(value, own[option]), name
        assert model.get("encoder_layers", 1) <= 2 and model.get("decoder_layers", 1) <= 2, name


def test_widths_are_those_of_presets() -> None:
    """The tiny model of images is the miniature: the preset with this ending has 6.2 million parameters."""
    for model, name in (("mega_image", "mega_image_miniature"), ("llama_lm", "llama_lm_tiny")):
        assert toy(model) == {option: value for option, value in preset(name).items() if is_number(value)}
    assert set(FAIRSEQS) == {"transformer", "transformer_lm"}


def test_settings_of_the_user_are_kept() -> None:
    config = copy.deepcopy(catalogue()["mega/table2/text/mega"].config)
    shrink(config, "classifier", {"model.encoder_layers"})
    assert config["model"]["encoder_layers"] == 4 and config["model"]["encoder_embed_dim"] == 32
