"""Options for the settings of a checkpoint: those that nothing has are refused, all others act."""

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_mega.models.mega import MegaModel
from tests.support import helpers


def load(tiny_model, **options):
    where = tiny_model.checkpoint.parent, tiny_model.checkpoint.name, tiny_model.data
    return MegaModel.from_pretrained(*map(str, where), **options)


@pytest.mark.parametrize("name", ["dropuot", "sentencepiece_modle"])
def test_unknown_ones_of_the_hub(name, tiny_model):
    with pytest.raises(ValueError, match=name):
        load(tiny_model, **{name: 1})


@pytest.mark.parametrize("name", ["cross_entropy", "adaptive_loss"])
def test_another_criterion_than_that_of_the_training(name, tiny_model):
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--cpu", "--max-tokens", 200]
    given += ["--task", "translation", "--criterion"]
    with pytest.raises(ValueError, match=f"--criterion {name}"):
        helpers.run_fairseq("validate", [*given, name])
    assert "valid on 'valid'" in helpers.run_fairseq("validate", [*given, "label_smoothed_cross_entropy"])


@pytest.mark.parametrize(
    "options", [{"dropout": 0.2}, {"tokenizer": "space"}, {"moses_no_escape": True}, {"generation_args": {"beam": 2}}]
)
def test_known_ones(options, tiny_model):
    hub = load(tiny_model, **options)
    assert options.get("dropout") is None or hub.cfg.model.dropout == 0.2


def test_a_classifier_is_scored_by_the_criterion_of_its_task(trainings, tmp_path) -> None:
    """Whatever it was trained with: earlier versions took every criterion; a converted checkpoint may name none."""
    options = ["--cpu", "--num-workers", 0, "--max-update", 2, "--no-epoch-checkpoints", "--disable-validation"]
    helpers.run_fairseq("train", trainings.arguments("text", *options, "--save-dir", tmp_path))
    first = tmp_path / "checkpoint_last.pt"
    data = trainings.arguments("text")[0]
    given = [data, "--task", "lra-text", "--cpu", "--batch-size", 8, "--path"]
    wanted = [line for line in helpers.run_fairseq("validate", [*given, first]).splitlines() if " correct " in line]
    checkpoint = torch.load(first, weights_only=False)
    for criterion in (OmegaConf.create({"_name": "cross_entropy", "sentence_avg": False}), None):
        checkpoint["cfg"]["criterion"] = criterion
        torch.save(checkpoint, tmp_path / "earlier.pt")
        found = helpers.run_fairseq("validate", [*given, tmp_path / "earlier.pt"])
        scores = [line.split(" | ", 1)[1] for line in found.splitlines() if " correct " in line]
        assert scores == [line.split(" | ", 1)[1] for line in wanted] and scores
        assert ("--task lra-text scores it with lra_cross_entropy" in found) == (criterion is not None)
