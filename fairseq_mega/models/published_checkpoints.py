"""Checkpoints of the published code (facebookresearch/mega), renamed and laid out as this package's.

The tensors are renamed to the paper's symbols (the published "alpha" and "delta" of the EMA are each other's),
trailing axes of length one are dropped, and copies of shared tables are left out.
"""

import argparse
import re
from typing import Any, Dict, Tuple

from torch import Tensor

# Published name -> ours, for the parts of a layer. The only place where the published names stand.
LAYER_NAMES: Tuple[Tuple[str, str], ...] = (
    ("mega_layer.norm.norm.", "attention.norm."),
    ("mega_layer.move.delta", "attention.ema.alpha"),
    ("mega_layer.move.alpha", "attention.ema.delta"),
    ("mega_layer.move.beta", "attention.ema.beta"),
    ("mega_layer.move.gamma", "attention.ema.eta"),
    ("mega_layer.move.omega", "attention.ema.omega"),
    ("mega_layer.v_proj.", "attention.value_proj."),
    ("mega_layer.mx_proj.", "attention.gate_proj."),
    ("mega_layer.h_proj.", "attention.output_proj."),
    ("mega_layer.gamma", "attention.kappa"),
    ("mega_layer.beta", "attention.mu"),
    ("mega_layer.rel_pos_bias.rel_pos_bias", "attention.relative_bias.weight"),
    ("mega_layer.rel_pos_bias.", "attention.relative_bias."),
    ("cross_attn.norm.norm.", "cross_attention.norm."),
    ("cross_attn.k_proj.", "cross_attention.key_proj."),
    ("cross_attn.v_proj.", "cross_attention.value_proj."),
    ("cross_attn.q_proj.", "cross_attention.query_proj."),
    ("cross_attn.h_proj.", "cross_attention.output_proj."),
    ("cross_attn.rel_pos_bias.rel_pos_bias", "cross_attention.relative_bias.weight"),
    ("cross_attn.rel_pos_bias.", "cross_attention.relative_bias."),
    ("nffn.norm.norm.", "feed_forward.norm."),
    ("nffn.fc", "feed_forward.fc"),
)
# Classifiers; of equal beginnings the longer comes first.
CLASSIFIER_NAMES = (
    ("encoder.encoder.embed_tokens.embed.", "encoder.embedding.tokens."),
    ("encoder.encoder.embed_tokens.", "encoder.embedding.tokens."),
    ("encoder.encoder.embed_norm.norm.", "encoder.embedding.norm."),
    ("encoder.encoder.", "encoder."),
    ("sentence_projection_layer.", "head.output."),
)
# Options of published classifiers that have another name here.
CLASSIFIER_OPTIONS = {
    "z_dim": "encoder_z_dim",
    "n_dim": "encoder_n_dim",
    "chunk_size": "encoder_chunk_size",
    "norm_type": "normalization_type",
    "encoder_normalize_before": "normalize_before",
}
MODEL_NAMES = (
    ("embed_tokens.", "embedding.tokens."),
    ("embed_norm.norm.", "embedding.norm."),
    ("project_in_dim.", "embedding.projection."),
    ("final_norm.norm.", "final_norm."),
)
# Buffers of the published code that hold no parameter.
IGNORED_SUFFIXES = (".version", "._float_tensor")


def convert_name(name: str) -> str:
    """Our name of a published tensor."""
    for published, ours in CLASSIFIER_NAMES:
        if name.startswith(published):
            name = ours + name[len(published) :]
            break
    name = re.sub(r"^classifier\.(\d+)\.0\.", r"head.hidden.\1.", name)
    for published, ours in LAYER_NAMES:
        if f".{published}" in name:
            return name.replace(published, ours, 1)
    for published, ours in MODEL_NAMES:
        if f".{published}" in name:
            return name.replace(published, ours, 1)
    return name


def convert_state_dict(state_dict: Dict[str, Tensor], shared_output: bool) -> Dict[str, Tensor]:
    """Rename the tensors of a published model.

    Args:
        state_dict: published names to tensors; not changed.
        shared_output: the output layer shares the decoder's embeddings, so that its copy is left out.

    Returns:
        Our names to tensors; EMA parameters (K, N, 1) become (K, N).
    """
    converted = {}
    for name, tensor in state_dict.items():
        if name.endswith(IGNORED_SUFFIXES) or (shared_output and name == "decoder.output_projection.weight"):
            continue
        if ".move." in name and tensor.dim() == 3:
            tensor = tensor.squeeze(-1)
        converted[convert_name(name)] = tensor
    return converted


def convert_checkpoint(checkpoint: Any, where: str) -> Dict[str, Any]:
    """Convert a whole published checkpoint; the optimiser's state is left out.

    Args:
        checkpoint: contents of the file.
        where: its path, for messages.

    Raises:
        ValueError: if it is no checkpoint of a MEGA of the published code.
    """
    args = checkpoint.get("args") if isinstance(checkpoint, dict) else None
    names = list(checkpoint["model"]) if args is not None and "model" in checkpoint else []
    if not hasattr(args, "__dict__") or not any(".mega_layer." in name for name in names):
        raise ValueError(f"--input {where}: this is no checkpoint of the published code (facebookresearch/mega)")
    values = dict(vars(args))
    shared = False
    if any(name.startswith("encoder.encoder.layers.") for name in names):
        for published, ours in CLASSIFIER_OPTIONS.items():
            if published in values:
                values[ours] = values.pop(published)
    elif any(name.startswith("decoder.layers.") for name in names):
        if any(name.startswith("encoder.layers.") for name in names):
            values["published_source_padding"] = True
        else:
            values["task"] = "mega_language_modeling"
        shared = values.get("share_all_embeddings") or values.get("share_decoder_input_output_embed", False)
    else:
        raise ValueError(
            f"--input {where}: this is a checkpoint of --arch {getattr(args, 'arch', '?')}; only encoder-decoders "
            f"(--arch mega...), language models (--arch mega_lm...) and classifiers (--arch mega_lra..., "
            f"mega_sc_raw...) can be converted"
        )
    return {
        **{key: value for key, value in checkpoint.items() if key not in ("model", "last_optimizer_state")},
        "args": argparse.Namespace(**values),
        "model": convert_state_dict(checkpoint["model"], shared),
    }
