"""Single steps of gated attentions in PyTorch, the reference of the kernels."""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.attention import Options, attention_weights
from fairseq_mega.ops.norm import row_norm
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics

from .time_buffer import TimeBuffer
from .weights import ComplexStepCoefficients, GatedAttentionWeights, NormalizedAttentionWeights, StepCoefficients

EPS = 1e-5


class StepState(NamedTuple):
    """State of an attention between two steps."""

    ema: Optional[Tensor]  # (B, D, N), None for zeros
    norm: Optional[TimestepNormState]  # MEGALODON's statistics, None before the first step
    keys: TimeBuffer  # (B, n, z), of the unfinished chunk; never changed
    values: TimeBuffer  # (B, n, v)


def gated_ema_step(x: Tensor, coefficients: StepCoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """One step of MEGA's EMA sub-layer: ``SiLU(EMA(x) + omega x)``.

    Args:
        x: (B, D).
        coefficients: of the EMA, and the weight of the skip.
        state: (B, D, N) before the step, or None for zeros.

    Returns:
        (B, D) in the dtype of x, and the new state (B, D, N) in that of the coefficients.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 and 6; omega and SiLU are the published code's.
    """
    new_state = coefficients.expansion * x.unsqueeze(-1)
    if state is not None:
        new_state = new_state + coefficients.decay_low * state + coefficients.decay_high * state
    y = (coefficients.projection * new_state).sum(-1) + coefficients.omega * x
    return F.silu(y).to(x.dtype), new_state


def attention_step(
    gates: Tensor,
    value: Tensor,
    kappa: Tensor,
    mu: Tensor,
    bias: Tensor,
    keys: TimeBuffer,
    values: TimeBuffer,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, TimeBuffer, TimeBuffer]:
    """Attend from a new step to itself and the steps before it, and apply the reset gate.

    Args:
        gates: (B, D + z + v + D), logits of update gate, shared representation, reset gate, and the candidate.
        value: (B, v), logits of the new step's value.
        kappa, mu: (2, z), scale and offset of query and key.
        bias: (n + 1,), relative bias of the new query.
        keys, values: (B, n, z) and (B, n, v), the steps before, left unchanged.
        function: the attention function.
        most: how many steps the stream will keep at most, None if that is not known.

    Returns:
        (B, v), and the keys and values with the new step.

    Source: MEGA, Eq. 7 to 12 and 16.
    """
    shared, reset = F.silu(_split(gates, kappa.size(-1), value.size(-1))[1]).split([kappa.size(-1), value.size(-1)], -1)
    query, key = (torch.addcmul(offset, shared, scale).unsqueeze(1) for offset, scale in zip(mu, kappa))
    keys, values = keys.append(key, most), values.append(F.silu(value).unsqueeze(1), most)
    weights = attention_weights(query, keys.steps, Options(function, bias))
    return torch.matmul(weights, values.steps).squeeze(1) * reset, keys, values


def mix_step(residual: Tensor, gates: Tensor, projected: Tensor) -> Tensor:
    """Mix the candidate into the residual by the update gate.

    Args:
        residual: (B, D).
        gates: as :func:`attention_step`.
        projected: (B, D), the linear map of the result of :func:`attention_step`.

    Returns:
        (B, D).

    Source: MEGA, Eq. 13 to 15.
    """
    width = residual.size(-1)
    update, candidate = gates[:, :width], gates[:, -width:]
    return torch.lerp(residual, F.silu(candidate + projected), torch.sigmoid(update))


class StepParts(NamedTuple):
    """Functions between a gated attention's linear maps; the functions above document arguments and results."""

    ema: Callable[..., Tuple[Tensor, Tensor]]
    attention: Callable[..., Tuple[Tensor, TimeBuffer, TimeBuffer]]
    mix: Callable[..., Tensor]


PARTS = StepParts(gated_ema_step, attention_step, mix_step)


def gated_attention_step(
    x: Tensor, weights: GatedAttentionWeights, state: StepState, *, parts: StepParts = PARTS
) -> Tuple[Tensor, StepState]:
    """One step of a gated attention, from its input to its residual sum, norms included.

    Args:
        x: (B, D).
        weights: the parameters.
        state: of the steps before.
        parts: functions between the linear maps.

    Returns:
        (B, D), and the state after the step.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 to 15.
    """
    value_proj, gate_proj, output_proj = weights.projections
    normed = x if weights.normalize is None else weights.normalize(x)
    value = value_proj(normed)
    average, ema = parts.ema(normed, weights.coefficients, state.ema)
    gates = gate_proj(average)
    seen = (weights.bias.at(len(state.keys) + 1), state.keys, state.values, weights.function, weights.most)
    attended, keys, values = parts.attention(gates, value, weights.kappa, weights.mu, *seen)
    out = parts.mix(x, gates, output_proj(attended))
    out = out if weights.normalize_after is None else weights.normalize_after(out)
    return out, StepState(ema, None, keys, values)


def complex_ema_step(
    x: Tensor, coefficients: ComplexStepCoefficients, state: Optional[Tensor]
) -> Tuple[Tensor, Tensor]:
    """One step of ``CEMA(x) + omega x``, without the norm or activation that follows.

    Args:
        x: (B, D).
        coefficients: of the EMA, and the weight of the skip.
        state: (B, D, N) complex before the step, or None for zeros.

    Returns:
        (B, D) in the dtype of x, and the new state (B, D, N).

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 2, as in the published code.
    """
    entering = coefficients.expansion * x.unsqueeze(-1)
    dtype = torch.promote_types(entering.dtype, torch.complex64)
    decayed = None if state is None else (state * torch.view_as_complex(coefficients.decay)).add_(entering)
    new = (entering if decayed is None else decayed).to(dtype)
    y = torch.linalg.vecdot(torch.view_as_real(new).flatten(2), coefficients.projection.flatten(1))
    return torch.addcmul(y, x, coefficients.omega.to(y.dtype)).to(x.dtype), new


def normalized_attention_step(
    x: Tensor, weights: NormalizedAttentionWeights, state: StepState
) -> Tuple[Tensor, StepState]:
    """One step of MEGALODON's attention, from its input to its residual sum, timestep norm included.

    Args:
        x: (B, D).
        weights: the parameters.
        state: of the steps before.

    Returns:
        (B, D), and the state after the step.

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 2, 4 to 9 and 16 to 18.
    """
    value_proj, gate_proj, output_proj = weights.projections
    position, heads = len(state.keys), weights.scale.size(1)
    before = fresh_statistics(x, weights.groups) if state.norm is None else state.norm
    y, statistics = weights.normalize(x.unsqueeze(1), None, before)
    normed = y[:, 0]
    value = F.silu(value_proj(normed))
    average, ema = complex_ema_step(normed, weights.coefficients, state.ema)
    gates = gate_proj(weights.normalize_average(average))
    shared, gate, candidate = gates.split([weights.scale[0].numel(), value.size(-1), x.size(-1)], dim=-1)
    query, key = _turned_query_and_key(shared, weights.scale, weights.offset, weights.turns(position)[position])
    keys = state.keys.append(key.unsqueeze(1), weights.most)
    values = state.values.append(value.unsqueeze(1), weights.most)
    attended = _attend(query, keys.steps, values.steps, heads)
    return x + (candidate + output_proj(attended * F.silu(gate))), StepState(ema, statistics, keys, values)


def _turned_query_and_key(shared: Tensor, scale: Tensor, offset: Tensor, turn: Tensor) -> Tuple[Tensor, Tensor]:
    """Query and key (B, z) of a new step from its shared representation (B, z); ``turn`` (E / 2,) is its position's."""
    wide = shared.to(scale.dtype).view(-1, 1, *scale.shape[1:])  # (B, 1, H, E)
    both = torch.addcmul(offset, row_norm(wide, centred=False, eps=EPS), scale)  # (B, 2, H, E)
    turned = torch.view_as_real(torch.view_as_complex(both.unflatten(-1, (-1, 2))) * turn)
    query, key = turned.flatten(2).to(shared.dtype).unbind(1)
    return query, key


def _attend(query: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Softmax attention (B, v) of one query (B, z) to keys (B, n, z) and values (B, n, v), head by head."""
    if heads == 1:
        weights = torch.softmax(torch.bmm(query.unsqueeze(1), keys.transpose(1, 2)), dim=-1)
        return torch.bmm(weights, values).squeeze(1)
    by_head = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query.unsqueeze(1), keys, values))
    query, keys, values = by_head
    weights = torch.softmax(torch.matmul(query, keys.transpose(2, 3)), dim=-1)
    return torch.matmul(weights, values).flatten(1)


def _split(gates: Tensor, z: int, v: int) -> Tuple[Tensor, ...]:
    """Update gate, shared representation and reset gate, and candidate."""
    width = (gates.size(-1) - z - v) // 2
    return gates.split([width, z + v, width], dim=-1)
