"""MEGALODON's language model and the Llama-style model, for the benchmarks of decoding and of training."""

from typing import Any, Dict


def megalodon_options(width: int, chunk: int) -> Dict[str, Any]:
    """Return options of a model with MEGA's widths, and a plain FFN widened by the parameters of MEGA's update gate.

    MEGA's layer has d (d + 1) parameters more in its update gate, MEGALODON's a few more per feature and dimension.
    With an FFN of 5 d / 2 the layers differ by less than one percent.
    """
    return {
        "decoder_hidden_dim": 2 * width,
        "decoder_ffn_embed_dim": 5 * width // 2,
        "decoder_z_dim": width // 2,
        "decoder_n_dim": 16,
        "decoder_chunk_size": chunk,
        "norm_num_groups": min(32, width // 4),
    }


def llama_options(width: int, layer: int) -> Dict[str, Any]:
    """Return options of a Llama-style model whose FFN gives its layer ``layer`` parameters."""
    return {
        "decoder_ffn_embed_dim": (layer - 4 * width * width - 2 * width) // (3 * width),
        "decoder_attention_heads": max(1, width // 32),
    }
