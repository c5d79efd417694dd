"""Checkpoints in the layout of the published code (facebookresearch/mega), with random weights: shapes by its names."""

from argparse import Namespace
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor

D, V, Z, N, F = 8, 12, 4, 3, 10  # widths of every part
SYMBOLS, CLASSES = 24, 3
Shapes = Dict[str, Tuple[int, ...]]


def norm(prefix: str, kind: str) -> Shapes:
    names: Shapes = {"weight": (D,), "bias": (D,)}
    if kind == "scalenorm":
        names = {"scalar": (1,)}
    if kind == "batchnorm":
        names = {**names, "running_mean": (D,), "running_var": (D,), "num_batches_tracked": ()}
    return {f"{prefix}.norm.norm.{name}": shape for name, shape in names.items()}


def affine(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def bias(prefix: str, positions: Optional[int]) -> Shapes:
    """Return the shapes of a bias of `positions`, or of a rotary one for None."""
    if positions is not None:
        return {f"{prefix}.rel_pos_bias.rel_pos_bias": (2 * positions - 1,)}
    return {f"{prefix}.rel_pos_bias.{name}": (1, Z) for name in ("alpha", "beta")}


def layer(prefix: str, both: bool, kind: str, positions: Optional[int], cross: Optional[int] = None) -> Shapes:
    rows = 2 * D if both else D
    mega = f"{prefix}.mega_layer"
    shapes: Shapes = {f"{mega}.move.{name}": (rows, N, 1) for name in ("delta", "alpha", "beta")}
    shapes = {**shapes, f"{mega}.move.gamma": (rows, N), f"{mega}.move.omega": (D,)}
    shapes = {**shapes, f"{mega}.gamma": (2, Z), f"{mega}.beta": (2, Z), **norm(mega, kind), **bias(mega, positions)}
    shapes = {**shapes, **affine(f"{mega}.v_proj", V, D), **affine(f"{mega}.h_proj", D, V)}
    shapes.update(affine(f"{mega}.mx_proj", 2 * D + Z + V, D))
    if cross is not None:
        attention = f"{prefix}.cross_attn"
        shapes.update({**norm(attention, kind), **bias(attention, cross), **affine(f"{attention}.k_proj", Z, D)})
        shapes.update({**affine(f"{attention}.v_proj", D, D), **affine(f"{attention}.q_proj", 2 * D + Z, D)})
        shapes.update(affine(f"{attention}.h_proj", D, D))
    nffn = f"{prefix}.nffn"
    return {**shapes, **norm(nffn, kind), **affine(f"{nffn}.fc1", F, D), **affine(f"{nffn}.fc2", D, F)}


def drawn(shapes: Shapes, seed: int) -> Dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        if name.endswith("running_var"):
            tensor.abs_().add_(0.5)
        elif name.endswith("num_batches_tracked"):
            tensors[name] = torch.tensor(7)
        elif "norm.weight" in name or name.endswith("scalar"):
            tensor.add_(1.0)
        elif name.endswith("embed_tokens.weight") and tensor.dim() == 2:
            tensor[1] = 0.0  # padding
    return tensors


def checkpoint(model: Dict[str, Tensor], **args: Any) -> Dict[str, Any]:
    extra: Dict[str, Any] = {"extra_state": {"epoch": 1}, "optimizer_history": [], "last_optimizer_state": None}
    return {"args": Namespace(**args), "model": model, **extra}


def language_model(adaptive: bool, symbols: int = SYMBOLS) -> Dict[str, Any]:
    """Two causal layers; with an adaptive table and softmax as on WikiText-103, or a plain table that is shared."""
    shapes: Shapes = {}
    for index in range(2):
        shapes.update(layer(f"decoder.layers.{index}", False, "layernorm", None))
    bands: List[Tuple[int, int]] = [(6, D), (7, D // 2), (symbols - 13, D // 4)]
    if adaptive:
        for band, (rows, width) in enumerate(bands):
            shapes[f"decoder.embed_tokens.embeddings.{band}.0.weight"] = (rows, width)
            shapes[f"decoder.embed_tokens.embeddings.{band}.1.weight"] = (D, width)
        shapes["decoder.adaptive_softmax.head.class_proj.weight"] = (2, D)
    else:
        shapes["decoder.embed_tokens.weight"] = (symbols, D)
    model = drawn(shapes, 3)
    for index in range(2):
        model[f"decoder.layers.{index}.mega_layer.rel_pos_bias._float_tensor"] = torch.zeros(1)
    model["decoder.version"] = torch.tensor([3.0])
    if adaptive:
        table = "decoder.embed_tokens.embeddings"
        model["decoder.adaptive_softmax.head.word_proj.weight"] = model[f"{table}.0.0.weight"]
        for tail in range(2):
            model[f"decoder.adaptive_softmax.tail.{tail}.0.weight"] = model[f"{table}.{tail + 1}.1.weight"]
            model[f"decoder.adaptive_softmax.tail.{tail}.2.weight"] = model[f"{table}.{tail + 1}.0.weight"]
        model["decoder.adaptive_softmax.version"] = torch.tensor([1])
        for buffer in ("embed_tokens", "adaptive_softmax.head"):
            model[f"decoder.{buffer}._float_tensor"] = torch.zeros(1)
    else:
        model["decoder.output_projection.weight"] = model["decoder.embed_tokens.weight"].clone()
    tables: Dict[str, Any] = {"share_decoder_input_output_embed": True, "adaptive_softmax_cutoff": None}
    if adaptive:
        tables = {"adaptive_input": True, "adaptive_softmax_cutoff": "6,13", "tie_adaptive_weights": True}
        tables.update(tie_adaptive_proj=True, adaptive_input_factor=2.0, adaptive_softmax_factor=2.0)
    shape = {"normalize_before": True, "no_affine_final_norm": True, "decoder_chunk_size": 5}
    return checkpoint(model, arch="mega_lm", task="language_modeling", tokens_per_sample=20, **tables, **shape)


def classifier(kind: str, classes: int = CLASSES) -> Dict[str, Any]:
    """ "image" and "speech" read numbers, "retrieval" two texts."""
    text = kind == "retrieval"
    chunk, name = {"retrieval": (-1, "scalenorm"), "image": (-1, "batchnorm"), "speech": (20, "batchnorm")}[kind]
    shapes: Shapes = {}
    for index in range(2):
        positions = 40 if chunk < 0 else chunk
        shapes.update(layer(f"encoder.encoder.layers.{index}", True, name, positions))
    if text:
        shapes["encoder.encoder.embed_tokens.embed.weight"] = (SYMBOLS, D)
    else:
        shapes.update({"encoder.encoder.embed_tokens.weight": (D,), "encoder.encoder.embed_tokens.bias": (D,)})
        shapes.update(
            {
                key.replace(".norm.norm.", ".norm."): shape
                for key, shape in norm("encoder.encoder.final_norm", name).items()
            }
        )
    shapes.update(affine("classifier.0.0", 6, 2 * D if text else D))
    shapes["sentence_projection_layer.weight"] = (classes, 6)
    function = "softmax" if text else "laplace"
    options = {"chunk_size": chunk, "norm_type": name, "attention_activation_fn": function, "truncation_length": 9}
    arch, task = {
        "retrieval": ("mega_lra_aan", "lra-text"),
        "image": ("mega_lra_cifar10", "lra-image"),
        "speech": ("mega_sc_raw_base", "speech_commands"),
    }[kind]
    sizes = {"max_positions": 40, "sentence_class_num": classes, "encoder_normalize_before": not text}
    return checkpoint(drawn(shapes, 4), arch=arch, task=task, **options, **sizes)


LAYOUTS: Dict[str, Callable[[], Dict[str, Any]]] = {
    "adaptive language model": partial(language_model, adaptive=True),
    "shared language model": partial(language_model, adaptive=False),
    **{kind: partial(classifier, kind) for kind in ("image", "retrieval", "speech")},
}
