"""The EMA as a convolution that carries a state, and documents that share a sequence."""

from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .coefficients import EMACoefficients, power_tables, real_bmm
from .fft import ema_torch_fft


def state_response(coefficients: EMACoefficients, state: Tensor, length: int) -> Tensor:
    """Share of the state before the first step in the outputs: ``y[t] += Re sum_n projection q^(t+1) state``.

    Args:
        coefficients: each (D, N).
        state: (B, D, N).
        length: number of outputs.

    Returns:
        (B, length, D).
    """
    coarse, fine = power_tables(coefficients.log_decay, length)  # (D, N, A), (D, N, T)
    weight = state * coefficients.projection * torch.exp(coefficients.log_decay)
    blocks = (weight.unsqueeze(-1) * coarse).transpose(2, 3)  # (B, D, A, N)
    return real_bmm(blocks, fine).flatten(2)[..., :length].transpose(1, 2)


def final_state(x: Tensor, coefficients: EMACoefficients, state: Optional[Tensor]) -> Tensor:
    """State after the last step: ``q^L state + sum_t expansion q^(L-1-t) x[t]``, (B, D, N).

    Args:
        x: (B, L, D), zero where padded, L at least 1.
        coefficients: each (D, N).
        state: (B, D, N) before the first step, or None for zeros.
    """
    batch, length, width = x.shape
    coarse, fine = power_tables(coefficients.log_decay, length)
    blocks, block = coarse.size(-1), fine.size(-1)
    padded = F.pad(x.transpose(1, 2), (blocks * block - length, 0)).view(batch, width, blocks, block)
    partial = torch.matmul(padded.to(fine.dtype), fine.flip(-1).transpose(1, 2))  # (B, D, A, N)
    new = torch.einsum("bdan,dna->bdn", partial, coarse.flip(-1)) * coefficients.expansion
    if state is not None:
        new = new + torch.exp(coefficients.log_decay * length) * state
    return new.to(coefficients.projection.dtype) if coefficients.projection.is_complex() else new


def ema_fft_streaming(
    x: Tensor,
    coefficients: EMACoefficients,
    state: Optional[Tensor],
    *,
    convolve: Callable[..., Tensor] = ema_torch_fft,
) -> Tuple[Tensor, Tensor]:
    """Causal, untruncated EMA of the next L steps of a stream: outputs (B, L, D) and the state after them.

    ``convolve`` convolves x with the EMA's kernel and has the signature of :func:`.fft.ema_torch_fft`.
    """
    y = convolve(x, coefficients)
    if state is not None:
        y = y + state_response(coefficients, state, x.size(1))
    return y, final_state(x, coefficients, state)


def ema_fft_documents(
    x: Tensor,
    coefficients: EMACoefficients,
    reset_mask: Tensor,
    *,
    bidirectional: bool = False,
    shift: bool = False,
    truncation: Optional[int] = None,
    state: Optional[Tensor] = None,
    return_state: bool = False,
    convolve: Callable[..., Tensor] = ema_torch_fft,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The EMA of sequences made of documents: each document becomes a batch entry, as long as the longest.

    Args:
        x: (B, L, D), zero where padded.
        coefficients: each (D, N), or (2D, N) if bidirectional.
        reset_mask: (B, L) bool, True at the first step of a document.
        state: (B, D, N) before the first step; a document that begins there discards it.
        bidirectional, shift, truncation, return_state: as in :func:`fairseq_mega.ops.ema.damped_ema`.
        convolve: function that convolves with the EMA's kernel, with the signature of :func:`.fft.ema_torch_fft`.

    Returns:
        (B, L, D), and the state after the last step or None.
    """
    batch, length, width = x.shape
    begins = reset_mask.clone()
    begins[:, 0] = True
    entry = begins.flatten().cumsum(0).view(batch, length) - 1
    steps = torch.arange(length, device=x.device).expand(batch, length)
    position = steps - torch.where(begins, steps, 0).cummax(1).values
    packed = x.new_zeros(int(entry[-1, -1]) + 1, int(position.max()) + 1, width).index_put((entry, position), x)
    y = convolve(packed, coefficients, bidirectional=bidirectional, shift=shift, truncation=truncation)
    if state is not None:
        state = state.masked_fill(reset_mask[:, 0, None, None], 0.0)
        carried = state.new_zeros(packed.size(0), *state.shape[1:]).index_put((entry[:, 0],), state)
        y = y + state_response(coefficients, carried, packed.size(1))
    y = y[entry, position]
    if not return_state:
        return y, None
    if state is not None:
        state = state.masked_fill(reset_mask.any(1)[:, None, None], 0.0)
    last_document = entry == entry[:, -1:]
    return y, final_state(x * last_document.unsqueeze(-1), coefficients, state)
