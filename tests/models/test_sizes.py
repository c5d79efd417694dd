"""Parameters and operations of models on paper."""

from typing import Any, Dict, List

import pytest
import torch
from torch import nn

from fairseq_mega.models.cost import language_model, operations, parameters
from fairseq_mega.models.on_paper import build

PIXELS: Dict[str, Any] = {"_name": "vit_image_deit_b", "image_size": 224, "patch_size": 16, "image_class_num": 1000}


@pytest.mark.parametrize("size", ["11m", "200m", "7b"])
def test_operations_are_those_of_the_matrices(size: str) -> None:
    """Two for each weight of a layer's matrices and of the output; the rest is the chunk's attention, and the EMA."""
    model = language_model({"_name": f"megalodon_lm_{size}"}, 1000)
    weights = sum(
        parameter.numel()
        for name, parameter in model.layers.named_parameters()
        if name.endswith("_proj.weight") and parameter.dim() == 2
    )
    layers: List[Any] = list(model.layers)
    embedding: Any = model.embedding
    attention, d = layers[0].attention, embedding.tokens.embedding_dim
    z, v, _ = attention.widths
    chunk: Any = model.chunk_size
    expected = 2 * (weights + 1000 * d) + len(layers) * chunk * (z + v)
    found = operations(model, model.chunk_size)
    assert 0 < found - expected < 0.02 * expected
    without = operations(nn.ModuleList(layer.attention.ema for layer in layers), model.chunk_size)
    assert found - without == pytest.approx(expected, rel=1e-12)


def test_attention_counts_what_it_looks_at() -> None:
    """A causal chunk half of it, a sequence shorter than a chunk no more than itself."""
    options = {
        "_name": "mega_lm",
        "decoder_layers": 1,
        "decoder_n_dim": 0,
        "decoder_z_dim": 8,
        "decoder_hidden_dim": 24,
    }
    whole, chunked = (language_model({**options, "decoder_chunk_size": chunk}, 100) for chunk in (-1, 128))
    assert operations(whole, 1024) - operations(whole, 512) == (8 + 24) * 512
    assert operations(whole, 128) == operations(chunked, 128) == operations(chunked, 4096)


def test_rare_bands_cost_their_share() -> None:
    options = {"_name": "mega_lm", "decoder_layers": 1, "decoder_embed_dim": 64}
    plain, adaptive = (language_model({**options, **more}, 2000) for more in ({}, {"adaptive_softmax_cutoff": "400"}))
    head, rare = 2 * 64 * 401, 2 * 0.2 * 16 * (64 + 1600)  # of 2000 entries the last 1600 are a fifth of a text
    saved = operations(plain, 64) - operations(adaptive, 64)
    assert saved == pytest.approx(2 * 64 * 2000 - head - rare, rel=0.02)


def test_parameters_without_timm() -> None:
    """Those of DeiT-B, whose layers are timm's; tests/models/test_image_contract.py counts the same with timm."""
    assert parameters(build(PIXELS, 4)) == 86_567_656
    assert all(parameter.is_meta for parameter in build(PIXELS, 4).parameters())


def test_nothing_is_drawn() -> None:
    """Random numbers that a program draws afterwards are those that it draws without a model on paper."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build({"_name": "mega_lm_tiny"}, 100)
    assert torch.equal(torch.rand(3), expected)
