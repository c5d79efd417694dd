"""A diagonal state space (S4D) with its learned parameters."""

import math
from functools import partial
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.ema import EMACoefficients, damped_ema
from fairseq_mega.ops.ema.state_space import state_space_coefficients

from .drawn import Draw

INITIALIZATIONS = ("lin", "inv")


def frequencies(initialization: str, modes: int) -> Tensor:
    """Return the frequencies (M,) of the modes 0..M-1 in float64.

    Args:
        initialization: "lin", equally spaced as the Fourier series' (``pi n``), or "inv", the inverse law of HiPPO-LegS
            (``N / pi (N / (2 n + 1) - 1)`` for N = 2 M).

    Source: Gu et al. (NeurIPS 2022), Eq. 8 and 9.
    """
    n = torch.arange(modes, dtype=torch.float64)
    if initialization == "lin":
        return math.pi * n
    return 2 * modes / math.pi * (2 * modes / (2 * n + 1) - 1)


def fill_with_frequencies(features: Tensor, initialization: str) -> None:
    """Give every feature of (D, M) the frequencies of its modes, see :func:`frequencies`."""
    features.copy_(frequencies(initialization, features.size(1)))


class SlowParameter(nn.Module):
    """A parameter ``start + rate change``, which Adam changes ``rate`` times as fast as others.

    The rate has this effect because Adam's steps do not depend on the scale of gradients. Weight decay pulls the
    parameter towards ``start``.

    Args:
        shape: of the parameter.
        rate: of its changes.
        draw: fills ``start``, the first value.
    """

    def __init__(self, shape: Sequence[int], rate: float, draw: Draw) -> None:
        super().__init__()
        self.rate = rate
        self.draw = draw
        self.start: Tensor
        self.register_buffer("start", torch.empty(shape))
        self.change = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a new first value, without a change."""
        self.draw(self.start)
        nn.init.zeros_(self.change)

    def forward(self) -> Tensor:
        """Return the present value."""
        return torch.add(self.start, self.change, alpha=self.rate)


class DiagonalStateSpace(nn.Module):
    """``y = 2 Re(C h) + omega x`` with ``h' = A h + x``: M = N / 2 modes per feature and their conjugates.

    Args:
        embed_dim: width D of input and output.
        state_dim: N, an even number.
        bidirectional: look into the future too, without the present position.
        initialization: of the frequencies, one of INITIALIZATIONS; every mode decays at 1/2.
        least_step, largest_step: bounds of the features' steps, drawn uniformly in logarithms.
        rate: of the modes' changes, relative to other parameters.
        step_rate: of the steps' changes; None for ``rate``.

    Source: Gu et al. (NeurIPS 2022), sections 3 and 4. B is 1: only its product with C counts.
    """

    def __init__(
        self,
        embed_dim: int,
        state_dim: int = 64,
        *,
        bidirectional: bool = False,
        initialization: str = "lin",
        least_step: float = 0.001,
        largest_step: float = 0.1,
        rate: float = 0.1,
        step_rate: Optional[float] = None,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.bidirectional = bidirectional
        modes = state_dim // 2
        steps = partial(nn.init.uniform_, a=math.log(least_step), b=math.log(largest_step))
        self.log_step = SlowParameter((embed_dim, 1), rate if step_rate is None else step_rate, steps)
        self.log_decay = SlowParameter((embed_dim, modes), rate, partial(nn.init.constant_, val=math.log(0.5)))
        turning = partial(fill_with_frequencies, initialization=initialization)
        self.frequency = SlowParameter((embed_dim, modes), rate, turning)
        self.projection = nn.Parameter(torch.empty((1 + bidirectional) * embed_dim, modes, 2))  # C
        self.omega = nn.Parameter(torch.empty(embed_dim))  # D of the paper
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a new projection and skip weight."""
        nn.init.normal_(self.projection, std=math.sqrt(0.5))
        nn.init.normal_(self.omega)

    def coefficients(self) -> EMACoefficients:
        """Return the coefficients of the recurrence from the present parameters."""
        return state_space_coefficients(self.log_step(), self.log_decay(), self.frequency(), self.projection)

    def forward(
        self,
        x: Tensor,
        padding_mask: Optional[Tensor] = None,
        reset_mask: Optional[Tensor] = None,
        state: Optional[Tensor] = None,
        return_state: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Run the system over x (B, L, D).

        Args:
            x: (B, L, D).
            padding_mask: (B, L) bool, True = padding, which the system excludes (the skip uses x itself).
            reset_mask: (B, L) bool, True at the first step of a document, separate from all steps before.
            state: (B, D, M), complex, of the steps before; causal only.
            return_state: also return the state after each row's last real step; causal only.

        Returns:
            y (B, L, D), and the state or None.
        """
        y, state = damped_ema(
            x,
            self.coefficients(),
            padding_mask=padding_mask,
            reset_mask=reset_mask,
            bidirectional=self.bidirectional,
            shift=self.bidirectional,
            state=state,
            return_state=return_state,
        )
        return torch.addcmul(y, x, self.omega.to(x.dtype)), state
