"""Moving-average equipped gated attention, the heart of MEGA."""

import math
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.attention import attention, chunked_attention, joins_gate
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.decoding import GatedAttentionWeights, Place, StepBias, step_coefficients
from fairseq_mega.ops.gate import Addition
from fairseq_mega.ops.linear import after_silu, before_silu, bias_apart, in_parts
from fairseq_mega.ops.query_key import query_key

from .activation import ACTIVATIONS
from .attention_cache import AttentionCache, FixedCache, cached
from .config import MegaLayerConfig
from .dropout import Dropout, StochasticDepth
from .ema import MultiDimensionalDampedEMA
from .layer import PLAIN, AttentionOutput, LayerContext
from .linear import linear
from .norm import add_and_norm, build_norm, norm_for_products, step_norm, type_of_products
from .packed_linear import step_maps
from .padding import finite_padding
from .parameter_cache import ParameterCache
from .relative_bias import build_relative_bias
from .single_steps import attention_step, by_single_steps
from .state import LayerMemory, memory_for


class GatedAttention(nn.Module):
    """Single-head attention on an EMA of the input, with a reset gate inside and an update gate around it.

    The configuration makes the attention bidirectional (encoder) or causal (decoder). A causal attention can run over a
    stream in pieces of any lengths, with the same result as in one call.

    Args:
        config: shape and regularisation of the layer.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 6-15; dropouts and biases as in the published code.
    """

    heads = 1

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        d, v, z = config.embed_dim, config.hidden_dim, config.z_dim
        self.widths = (d, z, v)
        self.cache_widths = (z, v)
        self.causal = not config.bidirectional
        self.chunk_size = config.chunk_size
        self.kept_steps = config.chunk_size if config.chunk_size > 0 else None  # the most steps in a cache; None: all
        self.function = config.attention_function
        self.attention_dropout = Dropout(config.attention_dropout)
        self.prenorm = config.normalize_before
        self.activation = ACTIVATIONS[config.activation]

        self.norm = build_norm(config.norm, d)
        self.ema = MultiDimensionalDampedEMA(
            d,
            config.ema_dim,
            bidirectional=config.bidirectional,
            truncation=config.truncation,
            shift=config.shift,
        )
        self.value_proj = linear(d, v)
        self.gate_proj = linear(d, d + z + v + d)  # update gate, shared representation, reset gate, candidate
        self.output_proj = linear(v, d)
        self.kappa = nn.Parameter(torch.empty(2, z))  # scales of query and key
        self.mu = nn.Parameter(torch.empty(2, z))  # offsets of query and key
        self.reset_parameters()
        chunked = config.chunk_size > 0
        self.relative_bias: Any = build_relative_bias(
            config.relative_bias,
            config.chunk_size if chunked else config.max_positions,
            z,
            "chunk_size" if chunked else "max_positions",
        )
        self.dropout = Dropout(config.dropout, config.feature_dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout, config.feature_dropout)
        self.stochastic_depth = StochasticDepth(config.stochastic_depth)

    def reset_parameters(self) -> None:
        """Draw new scales of query and key; their offsets are zero."""
        nn.init.normal_(self.kappa, std=0.02)
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
            x: (B, L, D), of any value where padded.
            context: padding, documents, and whether to return memory and cache; causal only.
            memory: of the steps before x, from an earlier call; causal only.
            cache: of the unfinished chunk before x, from the same call; of fixed size where the context has a place.
            next_norm: with which the next sub-layer of a pre-norm layer begins.

        Raises:
            ValueError: if the simple relative bias does not cover the length (a FieldError), or if a memory is
                requested of a bidirectional attention.
        """
        d, z, v = self.widths
        padding_mask, documents, memory = context.padding_mask, context.documents, memory_for(x, memory)
        if padding_mask is not None:
            x = finite_padding(x, padding_mask)
        prepared = None
        if cache is not None or context.return_state:
            prepared = ParameterCache() if cache is None or x.size(1) != 1 else cache.prepared
        residual = x
        if self.prenorm:
            x = norm_for_products(self.norm, x)
        else:
            made = context.products if padding_mask is None else None
            x = x.to(type_of_products(x)) if made is None else made
        plain = self.activation is silu
        value = before_silu(self.value_proj, x) if plain else self.activation(self.value_proj(x))
        if context.relay is not None:
            memory = context.relay.receive(self, memory, LayerMemory(self.ema.fresh_state(x)))
        state = None if memory is None else memory.ema
        together = context.relay is None and not self.dropout.feature
        average, ema = self.ema(
            x,
            padding_mask=padding_mask,
            reset_mask=None if documents is None else documents.begins,
            state=state,
            return_state=context.return_state or context.relay is not None,
            prepared=prepared,
            dropout=self.dropout.rate if together else 0.0,
        )
        if context.relay is not None:
            assert ema is not None
            average = context.relay.send(self, average, LayerMemory(ema))
        average = average if together else self.dropout(average)
        update, shared, reset, candidate = recomputing(in_parts, self.gate_proj, average, (d, z, v, d))
        query, key = query_key(shared, self.kappa, self.mu)
        joined = None  # the reset gate, where the attention multiplies by it
        if isinstance(cache, FixedCache):
            assert context.place is not None
            scale = self.widths[1] ** -0.5 if self.function == "softmax" else context.place.share
            bias = self._bias_at(context.place, cache.prepared)
            attended = cache.attend(context.place, query, key, value, bias, self.function, scale)
        else:
            if prepared is not None:
                cache = cached(cache, key, value, padding_mask, prepared, self.kept_steps, context.given_up, state)
                key, value, padding_mask = cache.keys.steps, cache.values.steps, cache.padding_mask
            seen = (query, key, self.hidden_dropout(value), padding_mask)
            if documents is None:
                if prepared is None and joins_gate(query, value):
                    joined = reset
                attended = recomputing(self._attend, *seen, prepared, joined)
            else:
                attended = documents.attend(self._attend, *seen, self.chunk_size)

        gate = reset if joined is None else None
        if plain and not self.dropout.feature and not self.stochastic_depth.active:
            output_proj, output_bias = bias_apart(self.output_proj, reset)
            projected = after_silu(output_proj, gate, attended)
            added = Addition(update, candidate, projected, output_bias, self.dropout.rate)
        else:
            projected = after_silu(self.output_proj, gate, attended)
            dropped = self.dropout(self.activation(candidate + projected))
            added = Addition(update, self.stochastic_depth(dropped))
        norm, dtype = next_norm if self.prenorm else self.norm, type_of_products(residual)
        out, products = add_and_norm(residual, added, norm, keeps_sum=self.prenorm, dtype=dtype)
        if ema is None or cache is None:
            return AttentionOutput(out, products=products)
        if not isinstance(cache, FixedCache):
            cache = cache.unfinished(self.chunk_size).forgetting(documents)
        return AttentionOutput(out, LayerMemory(ema), cache, products)

    def _bias_at(self, place: Place, prepared: ParameterCache) -> Tensor:
        """Return the relative bias (C,) of a query at a place; -inf for later keys."""
        bias, chunk_size = self.relative_bias, self.chunk_size

        def table() -> Tensor:
            reach = bias.reach(chunk_size)
            seen = bias.table(reach)[reach - chunk_size : reach]
            return torch.cat((seen, seen.new_full((chunk_size - 1,), -math.inf)))

        return prepared.get(bias, "chunk", table).index_select(0, place.entries)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Optional[Tensor],
        prepared: Optional[ParameterCache] = None,
        gate: Optional[Tensor] = None,
    ) -> Tensor:
        """Return the attention of the last positions (B, L, z) to keys that start at a chunk's beginning.

        A gate (B, L, v) of :func:`.joins_gate` multiplies it.
        """
        queries, keys = query.size(1), key.size(1)
        dropout = self.attention_dropout.rate
        if self.chunk_size < 0 or keys <= self.chunk_size:
            return attention(
                query,
                key,
                value,
                function=self.function,
                bias=self.relative_bias(queries, keys, keys - queries, prepared),
                causal=self.causal,
                padding_mask=padding_mask,
                dropout=dropout,
                gate=gate,
            )
        return chunked_attention(
            query,
            key,
            value,
            self.chunk_size,
            function=self.function,
            bias=self.relative_bias(self.chunk_size, self.chunk_size),
            causal=self.causal,
            padding_mask=padding_mask,
            dropout=dropout,
            gate=gate,
        )

    def step_weights(self, dtype: torch.dtype) -> Optional[GatedAttentionWeights]:
        """Return the parameters for single steps of this type; None where operators on sequences compute them."""
        dropouts = (self.dropout, self.hidden_dropout, self.attention_dropout, self.stochastic_depth)
        plain = self.causal and self.activation is silu and self.ema.ema_dim > 0 and self.kappa.dtype == dtype
        if not plain or any(dropout.active for dropout in dropouts):  # retained in evaluation
            return None
        projections = (self.value_proj, self.gate_proj, self.output_proj)
        return GatedAttentionWeights(
            normalize=self.norm if self.prenorm else None,
            norm=step_norm(self.norm) if self.prenorm else None,
            projections=projections,
            maps=step_maps(*projections),
            kappa=self.kappa,
            mu=self.mu,
            coefficients=step_coefficients(self.ema.coefficients(), self.ema.omega),
            bias=StepBias(self.relative_bias),
            function=self.function,
            most=self.kept_steps,
            normalize_after=None if self.prenorm else self.norm,
        )
