"""Cache of a gated attention: the keys and values of the unfinished chunk."""

from typing import NamedTuple, Optional, Union

import torch
from torch import Tensor

from fairseq_mega.ops.decoding import Place, TimeBuffer, attention_at_place

from .documents import Documents
from .padding import extend_mask, refuse_to_read_on_after_padding
from .parameter_cache import ParameterCache


class AttentionCache(NamedTuple):
    """Keys and values of the unfinished chunk, n steps, and values prepared for its single steps."""

    keys: TimeBuffer  # (B, n, z)
    values: TimeBuffer  # (B, n, v)
    padding_mask: Optional[Tensor]  # (B, n) bool, True = padding; None: no padding
    prepared: ParameterCache

    def suits_step_of(self, dtype: torch.dtype) -> bool:
        """Return whether a function of single steps of this type can continue: no padding, and keys of the type."""
        return self.padding_mask is None and self.keys.dtype == dtype

    def unfinished(self, chunk_size: int) -> "AttentionCache":
        """Return the cache without finished chunks of ``chunk_size`` steps; -1: no chunk is ever finished."""
        length = len(self.keys)
        done = length - length % chunk_size if chunk_size > 0 else 0
        if done == 0:
            return self
        keys, values, mask, prepared = self
        mask = None if mask is None or done == length else mask[:, done:]
        return AttentionCache(keys.after(done), values.after(done), mask, prepared)

    def forgetting(self, documents: Optional[Documents]) -> "AttentionCache":
        """Return the cache after a call on ``documents``, with the steps of ended documents masked as padding."""
        ended = None if documents is None else documents.ended(len(self.keys))
        if ended is None:
            return self
        return self._replace(padding_mask=ended if self.padding_mask is None else ended | self.padding_mask)


class FixedCache(NamedTuple):
    """Keys and values of the unfinished chunk in memory of a chunk's size, which steps at a :class:`Place` change.

    The memory behind the place has steps of earlier chunks, or zeros; both are finite, and hidden.
    """

    keys: Tensor  # (B, H, C, z / H)
    values: Tensor  # (B, H, C, v / H)
    prepared: ParameterCache

    @classmethod
    def like(cls, cache: AttentionCache, heads: int, chunk_size: int) -> "FixedCache":
        """Return an empty cache for the rows, widths and type of another."""
        keys, values = (
            buffer.steps.new_zeros(buffer.steps.size(0), heads, chunk_size, buffer.steps.size(2) // heads)
            for buffer in cache[:2]
        )
        return cls(keys, values, ParameterCache())

    def attend(
        self,
        place: Place,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor,
        function: str = "softmax",
        scale: Union[float, Tensor] = 1.0,
    ) -> Tensor:
        """Write a step's key (B, 1, z) and value (B, 1, v), and return the attention (B, 1, v) of its query (B, 1, z).

        Bias, function and scale are those of :func:`fairseq_mega.ops.decoding.attention_at_place`.
        """
        heads = self.keys.size(1)
        query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
        self.keys.index_copy_(2, place.position, key)
        self.values.index_copy_(2, place.position, value)
        query, keys, values = (x.flatten(0, 1) for x in (query, self.keys, self.values))
        out = attention_at_place(query, keys, values, bias, function, scale)
        return out.unflatten(0, (-1, heads)).transpose(1, 2).flatten(-2)

    def load(self, cache: AttentionCache) -> None:
        """Write the steps of a cache without padding, of as many rows at most; the other steps and rows become zero."""
        for memory, buffer in zip(self[:2], cache[:2]):
            memory.zero_()
            steps = buffer.steps.unflatten(-1, (memory.size(1), -1)).transpose(1, 2)
            memory[: steps.size(0), :, : len(buffer)] = steps

    def growing(self, length: int) -> AttentionCache:
        """Return the first ``length`` steps as a cache that shares this memory."""
        keys, values = (TimeBuffer(x[:, :, :length].transpose(1, 2).flatten(-2)) for x in self[:2])
        return AttentionCache(keys, values, None, ParameterCache())


def cached(
    cache: Optional[AttentionCache],
    key: Tensor,
    value: Tensor,
    padding_mask: Optional[Tensor],
    prepared: ParameterCache,
    most: Optional[int],
    given_up: bool = False,
    state: Optional[Tensor] = None,
) -> AttentionCache:
    """Return the cache followed by further steps, or a new cache.

    Args:
        cache: n steps, None for none.
        key, value: (B, k, z) and (B, k, v).
        padding_mask: (B, k) bool, True = padding, or None.
        prepared: for the next single steps.
        most: how many steps the cache will hold at most, None if that is not known.
        given_up: see :class:`fairseq_mega.modules.layer.LayerContext`.
        state: (B, D, N) of the EMA before the further steps, None for zeros.

    Raises:
        ValueError: if a row of the cache ends in padding after real steps, of earlier chunks too, and the new steps are
            not all padding.
    """
    if cache is None:
        return AttentionCache(TimeBuffer(key), TimeBuffer(value), padding_mask, prepared)
    if key.size(1) > 0 and not given_up:
        refuse_to_read_on_after_padding(cache.padding_mask, padding_mask, state)
    mask = extend_mask(cache.padding_mask, len(cache.keys), padding_mask, key)
    return AttentionCache(cache.keys.append(key, most), cache.values.append(value, most), mask, prepared)
