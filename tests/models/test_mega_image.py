"""MEGA's image classifiers: sizes, and what decays."""

import pytest
import torch

from fairseq_mega.compat.features.no_weight_decay import has_no_weight_decay
from fairseq_mega.convert.tensors import publish_state_dict
from tests.support.tiny_images import build


@pytest.mark.parametrize(
    ("arch", "total", "layer"), [("mega_image_base", 90_734_140, 7_385_991), ("mega_image_tiny", 6_209_596, 482_823)]
)
def test_published_sizes(arch, total, layer):
    with torch.device("meta"):
        model = build(arch)
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert sum(parameter.numel() for parameter in model.encoder.layers[0].parameters()) == layer


@pytest.mark.parametrize("norm", ["layernorm", "batchnorm"])
def test_weight_decay_omits_what_the_published_training_omits(norm):
    """Parameters without weight decay have the published names and shapes; each of ours has a published name."""
    parameters = dict(build(normalization_type=norm).named_parameters())
    published = publish_state_dict(parameters, shared_output=False)
    assert len(published) == len(parameters)
    want = {
        name
        for name, tensor in published.items()
        if name.endswith(".bias") or (name.endswith(".weight") and tensor.dim() == 1) or name == "pos_embed"
    }
    marked = {name: parameter for name, parameter in parameters.items() if has_no_weight_decay(parameter)}
    assert set(publish_state_dict(marked, shared_output=False)) == want
    assert {"pos_embed", "head.bias", "blocks.2.mega_layer.norm.norm.weight", "patch_embed.pemb.proj.bias"} <= want
    assert not {"blocks.0.mega_layer.move.omega", "blocks.0.mega_layer.rel_pos_bias.rel_pos_bias"} & want
    assert all(name in published for name in ("blocks.0.mega_layer.move.omega", "blocks.0.nffn.fc1.weight"))
