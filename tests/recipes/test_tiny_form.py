"""Models of the tiny form: presets of the models, in any recipe no larger than its own."""

import copy
from typing import Any

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.smoke import OF_DATA, shrink, toy


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
