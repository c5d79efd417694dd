"""The yaml presets for fairseq-hydra-train are the architectures of the command line."""

from argparse import Namespace
from dataclasses import fields

import pytest
import yaml
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

from fairseq_mega.models import presets
from tests.support import tiny_lm

CLASSIFIERS = ("mega_image", "mega_lra", "megalodon_image", "megalodon_lra", "s4d_lra", "transformer_lra", "vit_image")
MODELS = ("llama_lm", "mega", "mega_lm", "mega_masked_lm", "megalodon_lm", "s4d_lm", *CLASSIFIERS)
ALL = [name for model in MODELS for name in presets.preset_names(model)]


def test_each_architecture_has_its_preset():
    ours = {arch for arch, model in ARCH_MODEL_NAME_REGISTRY.items() if model in MODELS}
    assert {path.stem for path in presets.FOLDER.glob("*.yaml")} == set(ALL) == ours - set(MODELS)
    assert all(map(presets.preset_names, MODELS))


def test_presets_equal_architectures():
    for name in ALL:
        options = Namespace()
        ARCH_CONFIG_REGISTRY[name](options)
        model, values = ARCH_MODEL_NAME_REGISTRY[name], vars(options)
        text = (presets.FOLDER / f"{name}.yaml").read_text()
        assert text.startswith("# @package model\n"), name
        assert yaml.safe_load(text) == {"_name": model, **values}
        assert presets.preset(name) == values, name
        assert values.keys() <= {option.name for option in fields(MODEL_DATACLASS_REGISTRY[model])}, name


TABLES = ["adaptive_input", "adaptive_softmax_cutoff", "tie_adaptive_weights", "tie_adaptive_proj"]
SHARED = "share_decoder_input_output_embed"


@pytest.mark.parametrize(
    "arch, given, dropped",
    [
        ("mega_lm_tiny", {"adaptive_softmax_cutoff": "6,12"}, [SHARED]),
        ("megalodon_lm_tiny", {"adaptive_input": True, "adaptive_input_cutoff": "6,12"}, [SHARED]),
        ("mega_lm_tiny", {"decoder_input_dim": 4}, [SHARED]),
        ("mega_lm_tiny", {"decoder_input_dim": 4, "decoder_embed_dim": 4}, []),
        ("megalodon_lm_wiki103", {SHARED: True}, TABLES),
        ("mega_lm_adaptive_base", {"decoder_embed_path": "words.txt"}, ["adaptive_input", *TABLES[2:]]),
    ],
)
def test_what_is_given_removes_what_contradicts_it_from_a_preset(arch, given, dropped):
    options = Namespace(**given)
    ARCH_CONFIG_REGISTRY[arch](options)
    left = {option: value for option, value in presets.preset(arch).items() if option not in dropped}
    assert vars(options) == {**left, **given}


def test_a_tied_adaptive_model_by_a_preset_with_one_plain_table():
    model = tiny_lm.build(arch="mega_lm_tiny", **{**tiny_lm.ADAPTIVE, SHARED: None})
    assert model.decoder.adaptive_softmax is not None and not model.decoder.shared_output
