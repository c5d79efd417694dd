"""Parameters and operations of models on paper, and the published sizes."""

from typing import Any, Dict, List

import pytest
import torch
from torch import nn

from fairseq_mega.models.cost import language_model, operations, parameters
from fairseq_mega.models.on_paper import build

PIXELS: Dict[str, Any] = {"_name": "vit_image_deit_b", "image_size": 224, "patch_size": 16, "image_class_num": 1000}


# Architecture, entries of its dictionary, parameters: the published code's, or by hand from the paper's shapes.
PUBLISHED = [
    ("mega_lm_big", 208, 207_269_888),  # 16 layers of 12,927,744
    ("mega_lm_adaptive_base", 267_744, 149_591_552),
    ("mega_lm_wiki103", 267_744, 252_237_824),  # MEGA, Table 5: 252M
    ("mega_lm_enwik8_large", 208, 244_360_192),
    ("mega_wmt_en_de", 33_000, 97_047_534),  # a layer of the encoder: 3,287,167
    ("mega_wmt_en_de_big", 33_000, 285_284_334),
    ("mega_masked_lm_transformers", 20, 911_260),
    ("megalodon_lm_200m", 32_000, 220_627_968),
    ("megalodon_lm_1b3", 32_000, 1_342_832_640),
    ("megalodon_lm_1b3_pg19", 32_000, 1_327_628_288),
    ("megalodon_lm_7b", 32_000, 7_385_817_088),
    ("megalodon_lm_wiki103", 267_744, 252_182_528),  # MEGALODON, Table 8: 252M
    ("megalodon_sc_raw", 4, 304_560),  # MEGALODON, Table 7: 300K
    ("mega_image_base", 4, 90_734_140),
    ("mega_image_tiny", 4, 6_209_596),
    ("megalodon_image_base", 4, 90_711_016),  # MEGALODON, Table 4: 90M
    (PIXELS["_name"], 4, 86_567_656),  # DeiT-B (Touvron et al., ICML 2021, Table 5): 86M
    ("transformer_lra_listop", 24, 4_236_800),  # whose layers are one
    ("transformer_lra_imdb", 24, 3_430_912),
    ("transformer_lra_aan", 24, 929_024),
    ("transformer_lra_cifar10", 24, 43_328),
    ("transformer_lra_pf32", 24, 133_632),
]


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


@pytest.mark.parametrize(("arch", "symbols", "count"), PUBLISHED)
def test_published_sizes(arch: str, symbols: int, count: int) -> None:
    """Two texts are read by those of AAN; tests/models/test_published_commands.py counts MEGA's by their commands."""
    options = PIXELS if arch == PIXELS["_name"] else {"_name": arch}
    model = build(options, symbols, 2 if arch.endswith("aan") else 1)
    assert parameters(model) == count and all(parameter.is_meta for parameter in model.parameters())


def test_nothing_is_drawn() -> None:
    """Random numbers that a program draws afterwards are those that it draws without a model on paper."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build({"_name": "mega_lm_tiny"}, 100)
    assert torch.equal(torch.rand(3), expected)
