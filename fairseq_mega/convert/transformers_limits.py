"""Defaults of transformers' MegaConfig, and settings that only one of the two packages supports."""

from typing import Any, Dict

from fairseq_mega.modules.activation import ACTIVATIONS

DEFAULTS: Dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "ema_projection_size": 16,
    "bidirectional": True,
    "shared_representation_size": 64,
    "use_chunking": False,
    "chunk_size": -1,
    "truncation": None,
    "normalize_before_mega": True,
    "normalization_type": "scalenorm",
    "norm_affine": True,
    "activation": "silu",
    "attention_activation": "softmax",
    "dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "use_feature_dropout": False,
    "use_normalized_ffn": True,
    "nffn_hidden_size": 256,
    "normalize_before_ffn": True,
    "nffn_activation_dropout_prob": 0.1,
    "max_positions": 2048,
    "add_token_type_embeddings": False,
    "type_vocab_size": 2,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "relative_positional_bias": "rotary",
    "add_lm_hidden_dense_layer": True,
    "tie_word_embeddings": True,
    "is_decoder": False,
    "add_cross_attention": False,
}


def check_config(config: Dict[str, Any], where: str) -> None:
    """Raise a ValueError that lists the unsupported settings of a configuration completed with DEFAULTS."""
    chunk, positions = config["chunk_size"], config["max_positions"]
    refused = {
        "is_decoder true, add_cross_attention true or bidirectional false: only encoders are supported": (
            config["is_decoder"] or config["add_cross_attention"] or not config["bidirectional"]
        ),
        "normalization_type rmsnorm: transformers' rmsnorm multiplies by its weight and divides by nothing, so it "
        "does not normalize": config["normalization_type"] == "rmsnorm",
        "norm_affine false: norms of this package have parameters": not config["norm_affine"],
        "normalize_before_ffn differs from normalize_before_mega: this package has one option for both": (
            config["use_normalized_ffn"] and config["normalize_before_ffn"] != config["normalize_before_mega"]
        ),
        f"pad_token_id {config['pad_token_id']}: fairseq's dictionaries pad with token 1": config["pad_token_id"] != 1,
        f"use_chunking with chunk_size {chunk}: must be at least 1": config["use_chunking"] and chunk < 1,
        f"chunk_size {chunk} exceeds max_positions {positions}, which the simple bias covers": (
            config["relative_positional_bias"] == "simple" and chunk > positions
        ),
        f"activation {config['activation']}: supported are {', '.join(ACTIVATIONS)}": (
            config["activation"] not in ACTIVATIONS
        ),
    }
    _refuse(refused, where)


def check_options(options: Dict[str, Any], where: str) -> None:
    """Raise a ValueError that lists the options of our masked language model that transformers' MegaModel lacks."""
    before = bool(options.get("normalize_before"))
    refused = {
        "a norm after the last layer: train with --no-final-norm": before and not options.get("no_final_norm"),
        "embeddings scaled by sqrt(d): train with --no-scale-embedding": not options.get("no_scale_embedding"),
        "a norm on the embeddings: train without --normalize-embedding": bool(options.get("normalize_embedding")),
        "--normalization-type rmsnorm: transformers' rmsnorm does not normalize": (
            options.get("normalization_type") == "rmsnorm"
        ),
        "--encoder-n-dim 0: transformers' layers always have a moving average": options.get("encoder_n_dim") == 0,
    }
    _refuse(refused, f"{where}: --to official writes the layout of transformers' MegaModel, which does not support")


def _refuse(refused: Dict[str, Any], where: str) -> None:
    found = [reason for reason, holds in refused.items() if holds]
    if found:
        raise ValueError("\n  ".join([f"{where}:", *found]))
