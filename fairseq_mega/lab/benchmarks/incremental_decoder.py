"""Decoding with fairseq's incremental state."""

from typing import Any, Dict

import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_mega.ops.decoding.time_buffer import TimeBuffer


class IncrementalDecoder:
    """Decoder with fairseq's incremental state, as in its generators."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.memory: Dict[str, Any] = {}

    def read(self, tokens: Any) -> None:
        """Fill an empty memory as if ``tokens`` (B, t) had been read."""
        attentions = [part for part in self.model.decoder.modules() if isinstance(part, MultiheadAttention)]
        if not attentions:
            self.model.decoder(tokens, incremental_state=self.memory, features_only=True)
        for attention in attentions:
            shape = (tokens.size(0), attention.num_heads, tokens.size(1), attention.head_dim)
            names = ("prev_key", "prev_value")
            memory: Dict[str, Any] = {name: torch.randn(shape, device=tokens.device) for name in names}
            attention._set_input_buffer(self.memory, {**memory, "prev_key_padding_mask": None})

    def step(self, tokens: Any) -> Any:
        """Return the logits (B, V) after ``tokens`` (B, t); earlier tokens are in the memory."""
        return self.model.decoder(tokens, incremental_state=self.memory)[0][:, -1]

    def reorder(self, order: Any) -> None:
        """Continue with the hypotheses ``order`` (B,)."""
        self.model.decoder.reorder_incremental_state_scripting(self.memory, order)

    def bytes(self) -> int:
        """Return the size of the memory."""
        return _bytes(self.memory)

    def bytes_of_step(self) -> int:
        """Return the bytes that a step reads: the memory and the weights, of embedding tables the output's alone."""
        decoder = self.model.decoder
        parts = [part for part in decoder.modules() if not isinstance(part, nn.Embedding)]
        tensors = [x for part in parts for x in (*part._parameters.values(), *part._buffers.values()) if x is not None]
        if getattr(decoder, "shared_output", False) and decoder.packed_output is None:
            tensors.append(decoder.output_matrix)
        weights = {x.data_ptr(): x for x in tensors}
        return _bytes(list(weights.values())) + _bytes(self.memory, with_room=False)


def _bytes(item: Any, with_room: bool = True) -> int:
    if isinstance(item, torch.Tensor):
        return item.numel() * item.element_size()
    if isinstance(item, TimeBuffer):
        return item.bytes() if with_room else _bytes(item.steps)
    if isinstance(item, dict):
        item = list(item.values())
    return sum(_bytes(part, with_room) for part in item) if isinstance(item, (list, tuple)) else 0
