"""Multi-dimensional damped EMA with its learned parameters."""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.ema import EMACoefficients, compute_dtype, ema_coefficients, gated_ema

from .parameter_cache import ParameterCache


class MultiDimensionalDampedEMA(nn.Module):
    """``SiLU(EMA(x) + omega x)``, the EMA sub-layer of MEGA.

    Args:
        embed_dim: width D of input and output.
        ema_dim: N, the dimensions each feature is expanded to; 0 leaves ``SiLU(omega x)`` (the ablation of Figure 4).
        bidirectional: look into the future too; a bidirectional EMA carries no state.
        truncation: reach of the kernel in steps, None for no limit. Calls with a state ignore it, see
            :func:`fairseq_mega.ops.ema.damped_ema`.
        shift: bidirectional only, exclude the current position from the future part.

    Source: MEGA (Ma et al., ICLR 2023), section 3.1; omega, SiLU and initialisation are the published code's.
    """

    def __init__(
        self,
        embed_dim: int,
        ema_dim: int = 16,
        *,
        bidirectional: bool = False,
        truncation: Optional[int] = None,
        shift: bool = False,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.ema_dim = ema_dim
        self.bidirectional = bidirectional
        self.truncation = truncation
        self.shift = shift
        rows = 2 * embed_dim if bidirectional else embed_dim

        def parameter() -> nn.Parameter:
            # With N = 0 these parameters get no gradient, and torch's DDP requires one for every trainable parameter.
            return nn.Parameter(torch.empty(rows, ema_dim), requires_grad=ema_dim > 0)

        self.alpha = parameter()  # logit of the decay factor
        self.delta = parameter()  # logit of the damping factor
        self.beta = parameter()  # expansion
        self.eta = parameter()  # projection
        self.omega = nn.Parameter(torch.empty(embed_dim))  # skip weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        nn.init.normal_(self.omega)
        if self.ema_dim == 0:
            return
        nn.init.normal_(self.alpha, std=0.2)
        nn.init.normal_(self.delta, std=0.2)
        nn.init.normal_(self.beta, std=0.02)
        with torch.no_grad():
            self.beta[:, 0::2] += 1.0
            self.beta[:, 1::2] -= 1.0
        nn.init.normal_(self.eta)

    def coefficients(self) -> EMACoefficients:
        """Return the coefficients of the recurrence from the present parameters."""
        return ema_coefficients(self.alpha, self.delta, self.beta, self.eta)

    def fresh_state(self, x: Tensor) -> Tensor:
        """The state (B, D, N) before the first step of sequences x (B, L, D)."""
        return x.new_zeros(x.size(0), self.embed_dim, self.ema_dim, dtype=compute_dtype(x))

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Optional[Tensor] = None,
        reset_mask: Optional[Tensor] = None,
        state: Optional[Tensor] = None,
        return_state: bool = False,
        prepared: Optional[ParameterCache] = None,
        dropout: float = 0.0,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Run the EMA over time.

        Args:
            x: (B, L, D).
            padding_mask: (B, L) bool, True = padding, which the EMA excludes (the skip uses x itself).
            reset_mask: (B, L) bool, True at the first step of a document, which sees nothing before it.
            state: (B, D, N) memory before the first step.
            return_state: also return the memory after each row's last real step.
            prepared: keeps the coefficients for the next steps of a stream.
            dropout: probability of dropping an element of the result.

        Returns:
            (B, L, D), and the state (B, D, N) or None.
        """
        coefficients: EMACoefficients
        if prepared is None:
            coefficients = self.coefficients()
        else:
            coefficients = prepared.get(self, "coefficients", self.coefficients)
        out, last_state = gated_ema(
            x,
            coefficients,
            self.omega,
            padding_mask=padding_mask,
            reset_mask=reset_mask,
            bidirectional=self.bidirectional,
            shift=self.shift,
            truncation=self.truncation,
            state=state,
            return_state=return_state,
            dropout=dropout,
        )
        return out, last_state

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, ema_dim={self.ema_dim}, bidirectional={self.bidirectional}, "
            f"truncation={self.truncation}, shift={self.shift}"
        )
