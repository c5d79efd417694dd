"""The published models (facebookresearch/mega) around their layers, written down plainly; see forward.py."""

import math
from typing import Any, Dict, List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.modules.activation import ACTIVATIONS
from tests.support.plain.forward import Weights, cross_attention, feed_forward, gated_attention, linear, norm, under

PAD = 1  # in every dictionary of fairseq


def layer_options(options: Dict[str, Any], side: str, prefix: str) -> Dict[str, Any]:
    """Return the options of the layers of a side; ``prefix`` begins the name of the option for its chunk."""
    return {
        "activation": options.get("activation_fn", "silu"),
        "function": options.get("attention_activation_fn", "softmax"),
        "norm": options.get("normalization_type", "layernorm"),
        "prenorm": bool(options.get("normalize_before", options.get("encoder_normalize_before", False))),
        "truncation": options.get("truncation_length") or 0,
        "chunk": options.get(f"{prefix}chunk_size") or -1,
        "causal": side == "decoder",
    }


def run_layers(
    weights: Weights,
    options: Dict[str, Any],
    x: Tensor,
    padding: Optional[Tensor],
    encoded: Optional[Tensor] = None,
    encoded_padding: Optional[Tensor] = None,
) -> Tensor:
    """All layers of a side, and the final norm of a pre-norm model; padded positions come out as zero."""
    if any(name.startswith("embed_norm.") for name in weights):
        x = norm(under(weights, "embed_norm.norm."), x)
    if padding is not None:
        x = x.masked_fill(padding.unsqueeze(-1), 0)
    for index in range(len({name.split(".")[1] for name in weights if name.startswith("layers.")})):
        layer = under(weights, f"layers.{index}.")
        x = gated_attention(under(layer, "mega_layer."), options, x, padding)
        if encoded is not None:
            x = cross_attention(under(layer, "cross_attn."), options, x, encoded, encoded_padding)
        if any(name.startswith("nffn.") for name in layer):
            x = feed_forward(under(layer, "nffn."), options, x)
    if options["prenorm"] and options.get("final_norm", True):
        x = norm(under(weights, "final_norm.norm."), x, options["norm"])
    return x if padding is None else x.masked_fill(padding.unsqueeze(-1), 0)


def embed(weights: Weights, options: Dict[str, Any], tokens: Tensor) -> Tensor:
    """Vectors of tokens, from a plain table or from the bands of an adaptive one."""
    if "embed_tokens.weight" in weights:
        x = F.embedding(tokens, weights["embed_tokens.weight"])
    else:
        bands = [under(weights, f"embed_tokens.embeddings.{band}.") for band in range(len(tails(weights)) + 1)]
        rows = torch.cat([band["0.weight"] @ band["1.weight"].T for band in bands])
        x = rows[tokens]
    if "project_in_dim.weight" in weights:
        x = F.linear(x, weights["project_in_dim.weight"])
    return x if options.get("no_scale_embedding") else x * math.sqrt(x.size(-1))


def tails(weights: Weights) -> List[str]:
    """Numbers of the rarer bands of an adaptive table."""
    return sorted({name.split(".")[2] for name in weights if name.startswith("embed_tokens.embeddings.")})[1:]


def adaptive_log_probs(weights: Weights, options: Dict[str, Any], x: Tensor) -> Tensor:
    """Log probabilities (B, L, V) of an adaptive softmax; tied projections are those of the input, transposed."""
    head = torch.cat([x @ weights["head.word_proj.weight"].T, x @ weights["head.class_proj.weight"].T], -1)
    head = head.log_softmax(-1)
    frequent = weights["head.word_proj.weight"].size(0)
    found = [head[..., :frequent]]
    for tail in range(head.size(-1) - frequent):
        projection = weights[f"tail.{tail}.0.weight"]
        narrow = x @ (projection if options.get("tie_adaptive_proj") else projection.T)
        words = (narrow @ weights[f"tail.{tail}.2.weight"].T).log_softmax(-1)
        found.append(words + head[..., frequent + tail, None])
    return torch.cat(found, -1)


def language_model(weights: Weights, options: Dict[str, Any], tokens: Tensor) -> Tensor:
    """Log probabilities (B, L, V) of the token after each of tokens (B, L)."""
    decoder = under(weights, "decoder.")
    x = run_layers(decoder, layer_options(options, "decoder", "decoder_"), embed(decoder, options, tokens), None)
    if "adaptive_softmax.head.word_proj.weight" in decoder:
        return adaptive_log_probs(under(decoder, "adaptive_softmax."), options, x)
    return linear(decoder, "output_projection", x).log_softmax(-1)


def translator(weights: Weights, options: Dict[str, Any], source: Tensor, target: Tensor) -> Tensor:
    """Log probabilities (B, L, V) given source (B, S), padded on the left, and the target so far (B, L)."""
    encoder, decoder = under(weights, "encoder."), under(weights, "decoder.")
    padding = source.eq(PAD)
    sides = {"encoder": "encoder_", "decoder": "decoder_"}
    shapes = {side: layer_options(options, side, prefix) for side, prefix in sides.items()}
    encoded = run_layers(encoder, shapes["encoder"], embed(encoder, options, source), padding)
    x = run_layers(decoder, shapes["decoder"], embed(decoder, options, target), None, encoded, padding)
    if "adaptive_softmax.head.word_proj.weight" in decoder:
        return adaptive_log_probs(under(decoder, "adaptive_softmax."), options, x)
    return linear(decoder, "output_projection", x).log_softmax(-1)


def classifier(weights: Weights, options: Dict[str, Any], documents: List[Tensor]) -> Tensor:
    """Logits (B, classes) of tokens (B, L) padded on the right, or of numbers (B, L); a second document comes first."""
    encoder, vectors = under(weights, "encoder.encoder."), []
    shape = {**layer_options(options, "encoder", ""), "norm": options.get("norm_type", "layernorm")}
    for document in reversed(documents):
        text = "embed_tokens.embed.weight" in encoder
        padding = document.eq(PAD) if text else torch.zeros_like(document, dtype=torch.bool)
        if text:
            x = F.embedding(document, encoder["embed_tokens.embed.weight"])
        else:
            x = document.unsqueeze(-1) * encoder["embed_tokens.weight"] + encoder["embed_tokens.bias"]
        x = run_layers(encoder, shape, x, padding)
        mean = x.sum(1) / (~padding).sum(1, keepdim=True)
        vectors.append(x[:, 0] if options.get("sen_rep_type") == "cls" else mean)
    x = torch.cat(vectors, -1)
    activation = ACTIVATIONS[options.get("classifier_activation_fn", "gelu")]
    for index in range(sum(name.startswith("classifier.") and name.endswith(".weight") for name in weights)):
        x = activation(linear(weights, f"classifier.{index}.0", x))
    return x @ weights["sentence_projection_layer.weight"].T
