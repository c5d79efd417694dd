"""MEGA classifiers against the published code: its outputs, its names of tensors."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from fairseq_mega.convert import convert_checkpoint
from fairseq_mega.models.mega_classifier import MegaClassifier
from tests.support.tiny_classifier import build, task

GOLDENS = Path(__file__).parent.parent / "goldens"


def close(got, want):
    assert (got - want).abs().max() <= 2e-5 + 1e-4 * want.abs().max()


@pytest.fixture(scope="module")
def published():
    """The converted published classifier."""
    converted = convert_checkpoint(torch.load(GOLDENS / "lra_classifier.official.pt"), "lra_classifier.official.pt")
    text = task(symbols=26)
    model = MegaClassifier.build_model(converted["args"], text)
    model.load_state_dict(converted["model"])
    return model.eval()


def test_published_outputs(published):
    expected = torch.load(GOLDENS / "lra_classifier.expected.pt")
    inputs, outputs = expected["inputs"], expected["outputs"]
    close(published(**inputs), outputs["logits"])
    close(published.represent(inputs["src_tokens"]), outputs["sentence_rep"])
    hidden, padding_mask = published.encoder(inputs["src_tokens"])
    close(hidden.transpose(0, 1), outputs["last_state"][: hidden.size(1)])
    assert padding_mask.equal(inputs["src_tokens"].eq(1))


def test_published_names_of_images():
    names = {"encoder.encoder.embed_tokens.weight": torch.ones(4), "encoder.encoder.embed_tokens.bias": torch.ones(4)}
    names["encoder.encoder.final_norm.norm.weight"] = torch.ones(4)
    names["encoder.encoder.layers.0.mega_layer.move.alpha"] = torch.ones(8, 3, 1)
    names["classifier.0.0.weight"] = torch.ones(6, 4)
    names["sentence_projection_layer.weight"] = torch.ones(2, 6)
    args = Namespace(arch="mega_lra_cifar10", n_dim=3, norm_type="batchnorm", encoder_normalize_before=True)
    converted = convert_checkpoint({"args": args, "model": names}, "x.pt")
    assert set(converted["model"]) == {
        *("encoder.embedding.tokens.weight", "encoder.embedding.tokens.bias", "encoder.final_norm.weight"),
        *("encoder.layers.0.attention.ema.delta", "head.hidden.0.weight", "head.output.weight"),
    }
    assert set(converted["model"]) <= set(build(kind="image", normalize_before=True).state_dict())
    assert converted["args"].encoder_n_dim == 3 and converted["args"].normalize_before is True
    assert converted["args"].normalization_type == "batchnorm" and not hasattr(converted["args"], "norm_type")
