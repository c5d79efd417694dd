"""transformers' former MegaForMaskedLM written down plainly, around the layers of models.py; see forward.py."""

from typing import Any, Dict

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.convert.names import TRANSFORMERS, to_ours
from fairseq_mega.convert.transformers_mega import covered_positions
from tests.support.plain.forward import Weights, linear, under
from tests.support.plain.models import PAD, run_layers


def masked_language_model(weights: Weights, config: Dict[str, Any], tokens: Tensor) -> Tensor:
    """Log probabilities (B, L, V) of the token at each place of tokens (B, L), zero where padded."""
    weights = {to_ours(name, TRANSFORMERS): tensor for name, tensor in weights.items()}
    encoder, padding = under(weights, "encoder."), tokens.eq(PAD)
    for name in [name for name in encoder if name.endswith("rel_pos_bias.rel_pos_bias")]:
        encoder[name] = encoder[name][: 2 * covered_positions(config) - 1]  # it reads no further
    options = {
        "activation": config["activation"],
        "function": config["attention_activation"],
        "norm": config["normalization_type"],
        "prenorm": config["normalize_before_mega"],
        "truncation": config.get("truncation") or 0,
        "chunk": config["chunk_size"] if config["use_chunking"] else -1,
        "causal": False,
        "final_norm": False,
    }
    x = F.embedding(tokens, encoder["embed_tokens.weight"])
    if "embed_types.weight" in encoder:
        x = x + encoder["embed_types.weight"][0]
    x = run_layers(encoder, options, x, padding)
    if "prediction.hidden.weight" in weights:
        x = torch.tanh(linear(weights, "prediction.hidden", x))
    return linear(weights, "prediction.output", x).log_softmax(-1).masked_fill(padding.unsqueeze(-1), 0)
