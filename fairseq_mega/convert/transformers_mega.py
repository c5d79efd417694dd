"""Convert checkpoints of transformers' former MegaForMaskedLM (4.30 to 4.46) to this package's layout, and back.

An example is mnaylor/mega-base-wikitext. A checkpoint is a folder: config.json, and model.safetensors or
pytorch_model.bin. A model with chunks reads only the first 2 C - 1 entries of a simple bias; the others are stored
under UNREAD for the way back.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from fairseq_mega.compat.files.safetensors_files import no_history, read_tensors
from fairseq_mega.models.checkpoint_files import save
from fairseq_mega.modules.activation import ACTIVATIONS

from .megalodon import load_tensors, read_json
from .options import flat_options
from .tensors import convert_state_dict, publish_state_dict

CONFIGURATION, SAFE, PICKLED = "config.json", "model.safetensors", "pytorch_model.bin"
UNREAD = "unread_biases"  # in extra_state
TABLE, OUTPUT = "encoder.embedding.tokens.weight", "prediction.output.weight"
THEIR_TABLE, THEIR_OUTPUT = "mega.embedding_layer.word_embeddings.weight", "mlm_head.weight"
OPTIONS: Dict[str, Tuple[str, Any]] = {  # published name -> ours, and transformers' default
    "hidden_size": ("encoder_embed_dim", 128),
    "num_hidden_layers": ("encoder_layers", 4),
    "intermediate_size": ("encoder_hidden_dim", 256),
    "nffn_hidden_size": ("encoder_ffn_embed_dim", 256),
    "shared_representation_size": ("encoder_z_dim", 64),
    "ema_projection_size": ("encoder_n_dim", 16),
    "chunk_size": ("encoder_chunk_size", -1),
    "max_positions": ("max_positions", 2048),
    "truncation": ("truncation_length", None),
    "normalization_type": ("normalization_type", "scalenorm"),
    "normalize_before_mega": ("normalize_before", True),
    "activation": ("activation_fn", "silu"),
    "attention_activation": ("attention_activation_fn", "softmax"),
    "relative_positional_bias": ("rel_pos_bias", "rotary"),
    "dropout_prob": ("dropout", 0.1),
    "hidden_dropout_prob": ("hidden_dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "nffn_activation_dropout_prob": ("activation_dropout", 0.1),
    "use_feature_dropout": ("feature_dropout", False),
    "tie_word_embeddings": ("share_encoder_input_output_embed", True),
}
REQUIRED = {  # of every model here, and transformers' defaults
    "is_decoder": False,
    "add_cross_attention": False,
    "bidirectional": True,
    "norm_affine": True,
    "pad_token_id": 1,
}
DEFAULTS: Dict[str, Any] = {
    **{theirs: default for theirs, (_, default) in OPTIONS.items()},
    **REQUIRED,
    "use_chunking": False,
    "use_normalized_ffn": True,
    "normalize_before_ffn": True,
    "add_token_type_embeddings": False,
    "type_vocab_size": 2,
    "add_lm_hidden_dense_layer": True,
}


def is_transformers(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint of transformers."""
    return any((folder / name).is_file() for name in (SAFE, PICKLED))


def read_transformers(folder: Path) -> Dict[str, Any]:
    """Read the configuration (``transformers``) and the tensors (``model``) of a checkpoint of transformers.

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged or belongs to another model.
    """
    config = read_json(folder / CONFIGURATION)
    if config.get("model_type") != "mega":
        raise ValueError(f"{folder / CONFIGURATION}: model_type {config.get('model_type')!r} is not a MEGA")
    safe = folder / SAFE
    model = read_tensors(safe) if safe.is_file() else load_tensors(folder / PICKLED)
    config = {**DEFAULTS, **config}
    if config["tie_word_embeddings"] and THEIR_TABLE in model:
        model.setdefault(THEIR_OUTPUT, model[THEIR_TABLE])  # a safetensors file has one of two tied tensors
    return {"transformers": config, "model": model}


def convert_transformers(published: Dict[str, Any], where: str) -> Dict[str, Any]:
    """Convert the result of :func:`read_transformers` to this package's layout.

    Raises:
        ValueError: if the configuration is not supported.
    """
    config = published["transformers"]
    _check_config(config, where)
    values = {ours: config[theirs] for theirs, (ours, _) in OPTIONS.items()}
    chunked, covered = config["use_chunking"], covered_positions(config)
    values["encoder_chunk_size"] = config["chunk_size"] if chunked else -1
    if config["relative_positional_bias"] == "simple" and not chunked:
        values["max_positions"] = covered
    values["truncation_length"] = config["truncation"] or 0
    if not config["use_normalized_ffn"]:
        values["encoder_ffn_embed_dim"] = 0
    values["token_types"] = config["type_vocab_size"] if config["add_token_type_embeddings"] else 0
    values["no_hidden_layer"] = not config["add_lm_hidden_dense_layer"]
    values.update(
        arch="mega_masked_lm", task="masked_lm", criterion="masked_lm", no_final_norm=True, no_scale_embedding=True
    )
    read, unread = _without_unread(published["model"], 2 * covered - 1)
    model = convert_state_dict(read, shared_output=False)
    if config["tie_word_embeddings"] and {TABLE, OUTPUT} <= set(model):
        if not model[OUTPUT].equal(model[TABLE]):
            raise ValueError(
                f"--input {where}: mlm_head.weight differs from word_embeddings.weight, to which it is tied"
            )
        model[OUTPUT] = model[TABLE]
    options, extra = argparse.Namespace(**values), {UNREAD: unread} if unread else {}
    return {"args": options, "model": model, "extra_state": extra, "optimizer_history": no_history()}


def _check_config(config: Dict[str, Any], where: str) -> None:
    """Raise a ValueError that lists the settings that no model of this package has."""
    odd = [key for key, value in REQUIRED.items() if config[key] != value]
    if config["use_normalized_ffn"] and config["normalize_before_ffn"] != config["normalize_before_mega"]:
        odd.append("normalize_before_ffn")  # one option here
    if config["normalization_type"] == "rmsnorm":
        odd.append("normalization_type")  # transformers' rmsnorm multiplies by its weight and divides by nothing
    if config["relative_positional_bias"] == "simple" and config["chunk_size"] > config["max_positions"]:
        odd.append("chunk_size")
    if config["activation"] not in ACTIVATIONS:
        odd.append("activation")
    if odd:
        found = ", ".join(f"{key} {config[key]}" for key in odd)
        raise ValueError(f"--input {where}: this package has no model with {found} in {CONFIGURATION}")


def _check_options(options: Dict[str, Any], where: str) -> None:
    """Raise a ValueError that lists the options of our masked language model that transformers' model lacks."""
    lacking = {
        "a model without --no-final-norm": options.get("normalize_before") and not options.get("no_final_norm"),
        "a model without --no-scale-embedding": not options.get("no_scale_embedding"),
        "--normalize-embedding": options.get("normalize_embedding"),
        "--normalization-type rmsnorm, which does not normalize there": options.get("normalization_type") == "rmsnorm",
        "--encoder-n-dim 0": options.get("encoder_n_dim") == 0,
    }
    found = [option for option, holds in lacking.items() if holds]
    if found:
        raise ValueError(f"--input {where}: --to official: transformers' MegaModel does not support {', '.join(found)}")


def covered_positions(config: Dict[str, Any]) -> int:
    """Return P, the position at which a simple bias is centred: the chunk size if given, else max_positions."""
    chunk = int(config.get("chunk_size", -1))
    return chunk if chunk >= 0 else int(config["max_positions"])


def publish_transformers(checkpoint: Dict[str, Any], where: str) -> Dict[str, Any]:
    """Convert back: the inverse of :func:`convert_transformers`.

    Raises:
        ValueError: if transformers' model does not support the options.
    """
    options = flat_options(checkpoint)
    _check_options(options, where)
    model = publish_state_dict(checkpoint["model"], shared_output=False)
    unread = (checkpoint.get("extra_state") or {}).get(UNREAD) or {}
    given = {theirs: options[ours] for theirs, (ours, _) in OPTIONS.items() if options.get(ours) is not None}
    config = {**DEFAULTS, **given, "model_type": "mega", "architectures": ["MegaForMaskedLM"]}
    chunk, types = int(options.get("encoder_chunk_size", -1)), int(options.get("token_types") or 0)
    config["use_chunking"], config["chunk_size"] = chunk > 0, chunk
    config["truncation"] = config["truncation"] if (config["truncation"] or 0) > 0 else None
    inner = options.get("encoder_ffn_embed_dim")
    config["use_normalized_ffn"] = inner != 0
    config["nffn_hidden_size"] = inner or config["intermediate_size"]
    config["normalize_before_ffn"] = config["normalize_before_mega"]
    config["add_token_type_embeddings"], config["type_vocab_size"] = types > 0, types or DEFAULTS["type_vocab_size"]
    config["add_lm_hidden_dense_layer"] = not options.get("no_hidden_layer", False)
    config["vocab_size"] = checkpoint["model"][TABLE].size(0)
    for name in [name for name in model if name.endswith(".rel_pos_bias.rel_pos_bias")]:
        if name in unread:
            config["chunk_size"] = (model[name].numel() + 1) // 2
            model[name] = torch.cat([model[name], unread[name]])
        config["max_positions"] = (model[name].numel() + 1) // 2
    return {"transformers": config, "model": model}


def save_transformers(published: Dict[str, Any], folder: Path) -> None:
    """Write a checkpoint of transformers into a folder, the tensors last."""
    text = json.dumps(published["transformers"], indent=1)
    (folder / CONFIGURATION).write_text(text + "\n", encoding="utf-8")
    save(published["model"], folder / PICKLED)


def _without_unread(model: Dict[str, Tensor], read: int) -> Tuple[Dict[str, Tensor], Dict[str, Tensor]]:
    """Return the tensors with the first ``read`` entries of simple biases, and the other entries."""
    biases = {name: tensor for name, tensor in model.items() if name.endswith(".rel_pos_bias.rel_pos_bias")}
    longer = {name: tensor for name, tensor in biases.items() if tensor.numel() > read}
    kept = {name: tensor[:read].clone() for name, tensor in longer.items()}
    return {**model, **kept}, {name: tensor[read:].clone() for name, tensor in longer.items()}
