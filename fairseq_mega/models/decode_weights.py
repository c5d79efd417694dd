"""Decode with fewer bytes: linear maps of a trained model with bfloat16 or int8 matrices (``--decode-weights``)."""

from typing import Any, Optional

import torch
from fairseq.modules.adaptive_softmax import TiedLinear
from torch import nn

from fairseq_mega.compat.features.decode_weights import add_decode_weights, requested_format
from fairseq_mega.modules.packed_linear import LinearMap, PackedLinear, linear_map, pack_linear_maps
from fairseq_mega.modules.trunk import Trunk
from fairseq_mega.ops.packed_linear import KINDS

add_decode_weights(KINDS)


class DecodesPacked:
    """Mixin for models that generate, which packs their weights on request."""

    packs_weights = True

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Prepare the model as fairseq does, then pack the weights as ``--decode-weights`` requires.

        Raises:
            ValueError: if the model is not on the CPU: other devices have no kernels.
        """
        super().prepare_for_inference_(cfg)  # type: ignore[misc]
        kind = requested_format(cfg)
        if kind is not None:
            assert isinstance(self, nn.Module)
            pack_weights(self, kind)

    @classmethod
    def from_pretrained(cls, *args: Any, decode_weights: Optional[str] = None, **kwargs: Any) -> Any:
        """Load a model as fairseq does; ``decode_weights`` "bf16" or "int8" packs its weights."""
        hub = super().from_pretrained(*args, **kwargs)  # type: ignore[misc]
        if decode_weights is not None:
            for model in hub.models:
                pack_weights(model, decode_weights)
        return hub


def pack_weights(model: nn.Module, kind: str) -> None:
    """Pack the linear maps of a model's layers and tables, including the output; the model cannot be trained any more.

    Args:
        model: a trained model of this package that generates.
        kind: "bf16" or "int8".

    Raises:
        ValueError: for another kind, for weights that are not finite, or if the model is not on the CPU: other devices
            have no kernels.
    """
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ValueError(
            f"--decode-weights {kind} requires a CPU, and the model is on {device.type}; omit --decode-weights, "
            f"or add --cpu"
        )
    try:
        _pack(model, kind)
    except ValueError as error:
        raise ValueError(f"--decode-weights {kind}: {error}") from error


def _pack(model: nn.Module, kind: str) -> None:
    for part in list(model.modules()):
        if isinstance(part, Trunk):
            pack_linear_maps(part.layers, kind)
    decoder: Any = model.decoder
    pack_linear_maps(decoder.embedding, kind)  # the projections of an adaptive input
    if decoder.adaptive_softmax is not None:
        pack_linear_maps(decoder.adaptive_softmax, kind, _linear_map_of_fairseq)
        return
    with torch.no_grad():
        decoder.packed_output = PackedLinear(decoder.output_matrix, None, kind)


def _linear_map_of_fairseq(module: nn.Module) -> Optional[LinearMap]:
    """Return :func:`linear_map` of a module, also for a part of an adaptive softmax that shares the input's matrix."""
    if isinstance(module, TiedLinear):
        return LinearMap(module.weight.t() if module.transpose else module.weight, None)
    return linear_map(module)
