"""Logits and all gradients of an independent implementation, see goldens/README.md."""

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.tiny_megalodon import build

GOLDENS = Path(__file__).parents[1] / "goldens"
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2]])
# Theirs, by the names of ours; several stand side by side in one of ours.
LAYER = {
    "attention.norm.weight": ["attn.timenorm.weight"],
    "attention.norm.bias": ["attn.timenorm.bias"],
    "attention.ema.alpha": ["attn.cema.alpha"],
    "attention.ema.delta": ["attn.cema.delta"],
    "attention.ema.theta": ["attn.cema.theta"],
    "attention.ema.gamma": ["attn.cema.gamma_real", "attn.cema.gamma_imag"],
    "attention.ema.omega": ["attn.cema.omega"],
    "attention.ema_norm.weight": ["attn.rmsnorm.gamma"],
    "attention.value_proj.weight": ["attn.wv.weight"],
    "attention.value_proj.bias": ["attn.wv.bias"],
    "attention.gate_proj.weight": ["attn.wz.weight", "attn.wr.weight", "attn.wh1.weight"],
    "attention.gate_proj.bias": ["attn.wz.bias", "attn.wr.bias", "attn.wh1.bias"],
    "attention.output_proj.weight": ["attn.wh2.weight"],
    "attention.kappa": ["attn.gamma"],
    "attention.mu": ["attn.beta"],
    "feed_forward.norm.weight": ["ffn.norm.weight"],
    "feed_forward.norm.bias": ["ffn.norm.bias"],
    "feed_forward.input_proj.weight": ["ffn.fc1.weight", "ffn.fc3.weight"],
    "feed_forward.output_proj.weight": ["ffn.fc2.weight"],
    "feed_forward.scale": ["ffn.alpha"],
}
NAMES: Dict[str, List[str]] = {
    "embedding.tokens.weight": ["model.embed.weight"],
    "final_norm.weight": ["model.norm.weight"],
    "final_norm.bias": ["model.norm.bias"],
    "output_projection.weight": ["lm_head.weight"],
    **{
        f"layers.{index}.{ours}": [f"model.layers[{index}].{name}" for name in theirs]
        for index in (0, 1)
        for ours, theirs in LAYER.items()
    },
}


def joined(name: str, parts: List[Tensor], like: Tensor) -> Tensor:
    """Tensors of theirs as the one of ours."""
    both = torch.stack(parts, dim=-1) if name.endswith("ema.gamma") else torch.cat(parts)
    return both.reshape(like.shape)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_logits_and_all_gradients(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", path)
    golden = {name: torch.from_numpy(array) for name, array in np.load(GOLDENS / "megalodon.independent.npz").items()}
    order = [name for name in golden if name != "logits"]
    options: Dict[str, Any] = {"decoder_chunk_size": 4, "layer_scale": True, "scale_embedding": True}
    # 11 tokens with the four of the dictionary; padding is one of theirs.
    decoder = build(symbols=7, share_decoder_input_output_embed=False, **options).eval().decoder
    decoder.padding_idx, decoder.embedding.tokens.padding_idx = -1, None
    parameters = dict(decoder.named_parameters())
    assert parameters.keys() == NAMES.keys()
    assert sorted(order) == sorted(theirs for names in NAMES.values() for theirs in names)
    filled = {
        name: 0.4 * (1 + i / 100) * torch.sin(torch.arange(1.0, golden[name].numel() + 1, dtype=torch.float64))
        for i, name in enumerate(order)
    }
    with torch.no_grad():
        for name, parameter in parameters.items():
            parts = [filled[part].view(golden[part].shape) for part in NAMES[name]]
            parameter.copy_(joined(name, parts, parameter))
    logits = decoder(TOKENS)[0]
    weights = torch.cos(torch.arange(1.0, logits.numel() + 1)).view(logits.shape)
    (logits * weights).sum().backward()
    found = {"logits": logits, **{name: parameter.grad for name, parameter in parameters.items()}}
    for name, got in found.items():
        want = golden["logits"] if name == "logits" else joined(name, [golden[part] for part in NAMES[name]], got)
        largest = want.abs().max().item()
        assert largest > 1e-3 and (got - want).abs().max().item() <= 2e-5 + 1e-4 * largest, name
