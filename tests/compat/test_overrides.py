"""Options for the settings of a checkpoint: those that nothing has are refused, all others act."""

import pytest

from fairseq_mega.models.mega import MegaModel
from tests.support import helpers


def load(tiny_model, **options):
    where = tiny_model.checkpoint.parent, tiny_model.checkpoint.name, tiny_model.data
    return MegaModel.from_pretrained(*map(str, where), **options)


@pytest.mark.parametrize("name", ["dropuot", "sentencepiece_modle"])
def test_unknown_ones_of_the_hub(name, tiny_model):
    with pytest.raises(ValueError, match=name):
        load(tiny_model, **{name: 1})


def test_another_criterion_than_that_of_the_training(tiny_model):
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--cpu", "--max-tokens", 200]
    given += ["--task", "translation", "--criterion"]
    with pytest.raises(ValueError, match="--criterion cross_entropy"):
        helpers.run_fairseq("validate", [*given, "cross_entropy"])
    assert "valid on 'valid'" in helpers.run_fairseq("validate", [*given, "label_smoothed_cross_entropy"])


@pytest.mark.parametrize(
    "options", [{"dropout": 0.2}, {"tokenizer": "space"}, {"moses_no_escape": True}, {"generation_args": {"beam": 2}}]
)
def test_known_ones(options, tiny_model):
    hub = load(tiny_model, **options)
    assert options.get("dropout") is None or hub.cfg.model.dropout == 0.2
