"""Moving-average equipped gated attention, the heart of MEGA."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.ops.attention import attention, chunked_attention
from fairseq_mega.ops.decoding import fused, gated_attention_step
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.step import TimeBuffer

from .activation import get_activation
from .config import MegaLayerConfig
from .dropout import Dropout
from .ema import MultiDimensionalDampedEMA
from .linear import linear
from .norm import build_norm
from .padding import finite_padding
from .relative_bias import build_relative_bias
from .state import GatedAttentionState, extend_mask


class GatedAttention(nn.Module):
    """Single-head attention on an EMA of the input, with a reset gate inside and an update gate around it.

    Bidirectional (encoder) or causal (decoder) as the configuration says. A causal one can run over a stream in
    pieces of any lengths, with the same result as in one call.

    Args:
        config: shape and regularisation of the layer.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 6-15; dropouts and biases as in the published code.
    """

    def __init__(self, config: MegaLayerConfig) -> None:
        super().__init__()
        d, v, z = config.embed_dim, config.hidden_dim, config.z_dim
        self.widths = (d, z, v)
        self.causal = not config.bidirectional
        self.chunk_size = config.chunk_size
        self.kept_steps = config.chunk_size if config.chunk_size > 0 else None  # of a state at most; None: all
        self.function = config.attention_function
        self.attention_dropout = Dropout(config.attention_dropout)
        self.prenorm = config.normalize_before
        self.activation = get_activation(config.activation)

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
        self.mu = nn.Parameter(torch.zeros(2, z))  # offsets of query and key
        nn.init.normal_(self.kappa, std=0.02)
        chunked = config.chunk_size > 0
        self.relative_bias = build_relative_bias(
            config.relative_bias,
            config.chunk_size if chunked else config.max_positions,
            z,
            "chunk_size" if chunked else "max_positions",
        )
        self.dropout = Dropout(config.dropout, config.feature_dropout)
        self.hidden_dropout = Dropout(config.hidden_dropout, config.feature_dropout)

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Optional[Tensor] = None,
        state: Optional[GatedAttentionState] = None,
        return_state: bool = False,
    ) -> Tuple[Tensor, Optional[GatedAttentionState]]:
        """Apply the sub-layer, residual and norm included.

        Args:
            x: (B, L, D), of any value where padded.
            padding_mask: (B, L) bool, True = padding.
            state: what an earlier call returned for the steps before x; causal only.
            return_state: also return the memory after the last step; causal only.

        Returns:
            (B, L, D), and the state or None.

        Raises:
            ValueError: if the simple relative bias does not cover the length (a FieldError), or a bidirectional one is
                asked for a state.
        """
        d, z, v = self.widths
        residual = x = finite_padding(x, padding_mask)
        if self.prenorm:
            x = self.norm(x)
        if self._takes_single_steps(x, padding_mask, state, return_state):
            return self._step(x, residual, state)
        value = self.activation(self.value_proj(x))
        average, ema_state = self.ema(
            x,
            padding_mask=padding_mask,
            state=None if state is None else state.ema,
            return_state=return_state,
        )
        update, shared, candidate = self.gate_proj(self.dropout(average)).split([d, z + v, d], dim=-1)
        shared, reset = F.silu(shared).split([z, v], dim=-1)
        query = torch.addcmul(self.mu[0], shared, self.kappa[0])
        key = torch.addcmul(self.mu[1], shared, self.kappa[1])

        keys, values = TimeBuffer(key), TimeBuffer(value)
        if state is not None:
            padding_mask = extend_mask(state.padding_mask, len(state.keys), padding_mask, x)
            keys, values = state.keys.append(key, self.kept_steps), state.values.append(value, self.kept_steps)
        attended = self._attend(query, keys.steps, self.hidden_dropout(values.steps), padding_mask)

        projected = self.output_proj(attended * reset)
        if self.activation is F.silu and not self.dropout.active:
            out = gated_residual(residual, update, candidate, projected)
        else:
            out = gated_residual(residual, update, self.dropout(self.activation(candidate + projected)))
        if not self.prenorm:
            out = self.norm(out)
        new_state = self._new_state(ema_state, keys, values, padding_mask) if ema_state is not None else None
        return out, new_state

    def _takes_single_steps(
        self, x: Tensor, padding_mask: Optional[Tensor], state: Optional[GatedAttentionState], return_state: bool
    ) -> bool:
        """Whether :meth:`_step` computes this call."""
        if x.size(1) != 1 or not return_state or self.training or not self.causal or self.ema.ema_dim == 0:
            return False
        if self.dropout.active or self.hidden_dropout.active or self.attention_dropout.active:  # although it evaluates
            return False
        padded = padding_mask is not None or (state is not None and state.padding_mask is not None)
        plain = self.activation is F.silu and self.kappa.dtype == torch.float32
        return plain and not padded and fused(x)

    def _step(
        self, x: Tensor, residual: Tensor, state: Optional[GatedAttentionState]
    ) -> Tuple[Tensor, GatedAttentionState]:
        """What :meth:`forward` computes from the normalised input of one step, by the kernels for decoding."""
        if state is None:
            self.ema.forget()
            keys, values = (TimeBuffer(x.new_empty(x.size(0), 0, width)) for width in self.widths[1:])
        else:
            keys, values = state.keys, state.values
        past = len(keys)
        keys, values = keys.grow(1, self.kept_steps), values.grow(1, self.kept_steps)
        out, ema = gated_attention_step(
            x[:, 0],
            residual[:, 0],
            self.ema.step_average(),
            None if state is None else state.ema,
            (self.value_proj, self.gate_proj, self.output_proj),
            self.kappa,
            self.mu,
            self.relative_bias(1, past + 1, past),
            keys.room,
            values.room,
            past,
            self.function,
        )
        out = out.unsqueeze(1)
        return out if self.prenorm else self.norm(out), self._new_state(ema, keys, values, None)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """Attention of the last positions (B, L, z) to a sequence of keys that starts at a chunk's beginning."""
        queries, keys = query.size(1), key.size(1)
        past = keys - queries
        dropout = self.attention_dropout.rate
        if self.chunk_size < 0 or keys <= self.chunk_size:
            return attention(
                query,
                key,
                value,
                function=self.function,
                bias=self.relative_bias(queries, keys, past),
                causal=self.causal,
                padding_mask=padding_mask,
                dropout=dropout,
            )
        out = chunked_attention(
            F.pad(query, (0, 0, past, 0)),  # queries of the past, whose results are dropped, align chunks with keys
            key,
            value,
            self.chunk_size,
            function=self.function,
            bias=self.relative_bias(self.chunk_size, self.chunk_size),
            causal=self.causal,
            padding_mask=padding_mask,
            dropout=dropout,
        )
        return out[:, past:]

    def _new_state(
        self, ema: Tensor, keys: TimeBuffer, values: TimeBuffer, padding_mask: Optional[Tensor]
    ) -> GatedAttentionState:
        """Keep the keys and values of the unfinished chunk."""
        done = len(keys) - len(keys) % self.chunk_size if self.chunk_size > 0 else 0
        mask = None if padding_mask is None or done == len(keys) else padding_mask[:, done:]
        return GatedAttentionState(ema, keys.after(done), values.after(done), mask)
