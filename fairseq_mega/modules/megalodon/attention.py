"""Normalised gated attention, the heart of MEGALODON."""

from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from fairseq_mega.modules.attention_cache import AttentionCache, FixedCache, cached
from fairseq_mega.modules.dropout import Dropout, StochasticDepth, dropped_addition
from fairseq_mega.modules.layer import PLAIN, AttentionOutput, LayerContext
from fairseq_mega.modules.norm import EPS, add_and_norm, type_of_products
from fairseq_mega.modules.packed_linear import step_maps
from fairseq_mega.modules.parameter_cache import ParameterCache
from fairseq_mega.modules.single_steps import attention_step, by_single_steps
from fairseq_mega.modules.state import LayerMemory, memory_for
from fairseq_mega.ops.attention import attention, chunked_attention, joins_gate
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.decoding import NormalizedAttentionWeights, Place, complex_step_coefficients
from fairseq_mega.ops.linear import after_silu, before_silu, in_parts
from fairseq_mega.ops.rotary import normalized_query_key, turns_of_chunk

from .complex_ema import ComplexEMA
from .config import MegalodonLayerConfig
from .initialization import matrix
from .norms import GroupNorm, RMSNorm, TimestepNorm, at_least_float32


class NormalizedGatedAttention(nn.Module):
    """Multi-head attention of normalised queries and keys on a complex EMA of the input, with a gate on its output.

    The attention is causal with timestep norm (language models) or bidirectional with group norm (classifiers). A
    causal attention can run over a stream in pieces of any lengths, with the same result as in one call.

    Args:
        config: shape and regularisation of the layer.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.3, Eq. 5-9 and 16-18, and the published code, whose query and
    key are normalised per head, whose kappa counts from one, and which has no activation on the candidate.
    """

    def __init__(self, config: MegalodonLayerConfig) -> None:
        super().__init__()
        d, v, z = config.embed_dim, config.hidden_dim, config.z_dim
        self.widths = (z, v, d)
        self.cache_widths = (z, v)
        self.heads = config.heads
        self.causal = not config.bidirectional
        self.chunk_size = config.chunk_size
        self.kept_steps = config.chunk_size if config.chunk_size > 0 else None  # the most steps in a cache; None: all
        self.rope_base = config.rope_base
        self.drops_keys = config.attention_drops == "keys"

        norm = GroupNorm if config.bidirectional else TimestepNorm
        self.norm = norm(d, config.norm_groups)
        self.ema = ComplexEMA(d, config.ema_dim, bidirectional=config.bidirectional)
        self.ema_norm = RMSNorm(d, config.norm_affine) if config.ema_norm == "rmsnorm" else nn.SiLU()
        self.value_proj = matrix(d, v, mode=config.init_mode, bias=True)
        self.gate_proj = matrix(d, z, v, d, mode=config.init_mode, bias=True)  # shared, output gate, candidate
        self.output_proj = matrix(v, d, mode=config.init_mode, bias=False)
        self.kappa = nn.Parameter(torch.empty(2, z))  # scales of query and key minus one
        self.mu = nn.Parameter(torch.empty(2, z))  # offsets of query and key
        self.reset_parameters()
        self.dropout = Dropout(config.dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout)
        self.attention_dropout = Dropout(config.attention_dropout)
        self.stochastic_depth = StochasticDepth(config.stochastic_depth)

    def reset_parameters(self) -> None:
        """Set the scales of query and key to one, and their offsets to zero."""
        nn.init.zeros_(self.kappa)
        nn.init.zeros_(self.mu)

    @by_single_steps(attention_step)
    def forward(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Union[AttentionCache, FixedCache, None] = None,
        next_norm: Optional[nn.Module] = None,
    ) -> AttentionOutput:
        """Apply the sub-layer, residual and norm included.

        Args:
            x: (B, L, D), finite where padded.
            context: padding, documents, and whether to return memory and cache; causal only.
            memory: of the steps before x, from an earlier call; causal only.
            cache: of the unfinished chunk before x, from the same call; of fixed size where the context has a place.
            next_norm: with which the feed-forward sub-layer begins.
        """
        padding_mask, documents, memory = context.padding_mask, context.documents, memory_for(x, memory)
        prepared = None
        if cache is not None or context.return_state:
            prepared = ParameterCache() if cache is None or x.size(1) != 1 else cache.prepared
        if context.relay is not None:
            fresh = LayerMemory(self.ema.fresh_state(x), self.norm.fresh_statistics(x))
            memory = context.relay.receive(self, memory, fresh)
        before = None if memory is None else memory.norm
        normed, multiplied, statistics = self.norm.for_products(x, padding_mask, before, documents)
        value = before_silu(self.value_proj, multiplied)
        state = None if memory is None else memory.ema
        average, ema = self.ema(
            normed,
            padding_mask=padding_mask,
            reset_mask=None if documents is None else documents.begins,
            state=state,
            return_state=context.return_state or context.relay is not None,
            prepared=prepared,
        )
        if context.relay is not None:
            assert ema is not None
            average = context.relay.send(self, average, LayerMemory(ema, statistics))
        if isinstance(self.ema_norm, RMSNorm) and not self.hidden_dropout.active:
            average = self.ema_norm(average, type_of_products(average))
        else:  # dropout in the type of the products would round twice
            average = self.hidden_dropout(self.ema_norm(average))
        shared, gate, candidate = recomputing(in_parts, self.gate_proj, average, self.widths)
        joined = None  # the gate, where the attention multiplies by it
        if isinstance(cache, FixedCache):
            assert context.place is not None
            query, key = self._query_and_key(shared, 0, self._turns_at(context.place, shared, cache.prepared))
            attended = cache.attend(context.place, query, key, value, context.place.hidden)
        else:
            query, key = self._query_and_key(shared, 0 if cache is None else len(cache.keys))
            if prepared is not None:
                cache = cached(cache, key, value, padding_mask, prepared, self.kept_steps, context.given_up, state)
                key, value, padding_mask = cache.keys.steps, cache.values.steps, cache.padding_mask
            if documents is None:
                if prepared is None and self.heads == 1 and joins_gate(query, value):
                    joined = gate
                attended = recomputing(self._attend, query, key, value, padding_mask, joined)
            else:
                attended = documents.attend(self._attend, query, key, value, padding_mask, self.chunk_size)
        projected = after_silu(self.output_proj, gate if joined is None else None, attended, self.hidden_dropout)
        added = dropped_addition(candidate, projected, self.dropout, self.stochastic_depth)
        out, products = add_and_norm(x, added, next_norm, keeps_sum=True, dtype=type_of_products(x))
        if ema is None or cache is None:
            return AttentionOutput(out, products=products)
        if not isinstance(cache, FixedCache):
            cache = cache.unfinished(self.chunk_size).forgetting(documents)
        return AttentionOutput(out, LayerMemory(ema, statistics), cache, products)

    def step_weights(self, dtype: torch.dtype) -> Optional[NormalizedAttentionWeights]:
        """Return the parameters for single steps; None where operators on sequences compute them."""
        dropouts = (self.dropout, self.hidden_dropout, self.attention_dropout, self.stochastic_depth)
        if dtype == torch.float16 or any(dropout.active for dropout in dropouts):
            return None
        projections, rms = (self.value_proj, self.gate_proj, self.output_proj), isinstance(self.ema_norm, RMSNorm)
        norm_scale = self.ema_norm.scale if isinstance(self.ema_norm, RMSNorm) else None
        scale = (at_least_float32(self.kappa) + 1) * self._unit()
        return NormalizedAttentionWeights(
            normalize=self.norm,
            norm=self.norm.of_step(),
            groups=self.norm.groups,
            projections=projections,
            maps=step_maps(*projections),
            scale=self._by_head(scale),
            offset=self._by_head(at_least_float32(self.mu)),
            coefficients=complex_step_coefficients(
                self.ema.coefficients(), self.ema.omega, norm_scale=norm_scale, rms=rms
            ),
            normalize_average=self.ema_norm,
            rope_base=self.rope_base,
            most=self.kept_steps,
        )

    def _unit(self) -> float:
        """Return the factor of a head's features that turns their root mean square into their norm."""
        return (self.widths[0] // self.heads) ** -0.5

    def _by_head(self, columns: Tensor) -> Tensor:
        return columns.unflatten(-1, (self.heads, -1))

    def _turns_at(self, place: Place, shared: Tensor, prepared: ParameterCache) -> Tensor:
        """Return the turns of a place, from a table that lives as long as the cache."""
        width, base = self.widths[0] // self.heads, self.rope_base
        table = prepared.get(self, "turns", lambda: turns_of_chunk(shared, width, self.chunk_size, base))
        return table.index_select(0, place.position)

    def _query_and_key(self, shared: Tensor, first: int, turns: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """Return query and key (B, L, z) from the shared representation; ``first`` is the first step's position in its
        chunk, whose ``turns`` may be passed instead.

        The root mean square of a head's E features over sqrt(E) is their norm (Eq. 6), and Eq. 7 and 8 follow.
        """
        kappa, mu = (self._by_head(at_least_float32(columns)) for columns in (self.kappa, self.mu))
        settings: Dict[str, Any] = {"first": first, "chunk_size": self.chunk_size, "base": self.rope_base}
        return normalized_query_key(shared, kappa, mu, eps=EPS, unit=self._unit(), turns=turns, **settings)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, padding_mask: Optional[Tensor], gate: Optional[Tensor] = None
    ) -> Tensor:
        """Return the attention of the last positions (B, L, z) to keys that start at a chunk's beginning.

        A gate (B, L, v) of :func:`.joins_gate` multiplies that of a single head.
        """
        rate = self.attention_dropout.rate
        options: Dict[str, Any] = {
            "causal": self.causal,
            "scale": 1.0,
            "gate": gate,
            "drop_key" if self.drops_keys else "dropout": rate,
        }
        if padding_mask is not None:
            options["padding_mask"] = padding_mask.repeat_interleave(self.heads, dim=0)
        query, key, value = self._fold(query), self._fold(key), self._fold(value)
        if self.chunk_size < 0 or key.size(1) <= self.chunk_size:
            out = attention(query, key, value, **options)
        else:
            out = chunked_attention(query, key, value, self.chunk_size, **options)
        return out.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(-2)

    def _fold(self, x: Tensor) -> Tensor:
        """Return heads side by side (B, L, H E) as rows of a batch (B H, L, E)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)
