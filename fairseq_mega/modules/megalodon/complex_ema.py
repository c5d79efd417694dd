"""The complex EMA with its learned parameters."""

import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.modules.parameter_cache import ParameterCache
from fairseq_mega.ops.ema import EMACoefficients, complex_ema_coefficients, compute_dtype, gated_ema


class ComplexEMA(nn.Module):
    """``CEMA(x) + omega x``: an EMA whose N dimensions per feature turn in the complex plane.

    Args:
        embed_dim: width D of input and output, at least 2.
        ema_dim: N.
        bidirectional: look into the future too, from the next position on; a bidirectional EMA carries no state.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.1; omega and the initialisation are the published code's.
    """

    def __init__(self, embed_dim: int, ema_dim: int = 16, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.ema_dim = ema_dim
        self.bidirectional = bidirectional
        rows = 2 * embed_dim if bidirectional else embed_dim
        self.alpha = nn.Parameter(torch.empty(rows, ema_dim))  # logit of the weight of the input
        self.delta = nn.Parameter(torch.empty(rows, ema_dim))  # logit of the damping factor
        self.theta = nn.Parameter(torch.empty(rows, 1))  # logit of the base angle
        self.gamma = nn.Parameter(torch.empty(rows, ema_dim, 2))  # projection, real and imaginary part
        self.omega = nn.Parameter(torch.empty(embed_dim))  # skip weight
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new parameters; both directions begin with the same angles."""
        nn.init.normal_(self.alpha, std=0.2)
        nn.init.normal_(self.delta, std=0.2)
        nn.init.normal_(self.gamma[..., 0])
        nn.init.zeros_(self.gamma[..., 1])
        nn.init.trunc_normal_(self.omega, std=0.25, a=-1.0, b=1.0)
        steps = torch.arange(1, self.embed_dim + 1, dtype=torch.float64, device=self.theta.device)
        angles = torch.logit(torch.exp(-steps * math.log(self.embed_dim) / self.embed_dim))
        drawn = angles[torch.randperm(self.embed_dim, device=angles.device)]
        self.theta.copy_(drawn.repeat(self.theta.size(0) // self.embed_dim).unsqueeze(-1))

    def coefficients(self) -> EMACoefficients:
        """Return the coefficients of the recurrence from the present parameters."""
        return complex_ema_coefficients(self.alpha, self.delta, self.theta, self.gamma)

    def fresh_state(self, x: Tensor) -> Tensor:
        """The state (B, D, N), complex, before the first step of sequences x (B, L, D)."""
        return x.new_zeros(x.size(0), self.embed_dim, self.ema_dim, dtype=compute_dtype(x).to_complex())

    def forward(
        self,
        x: Tensor,
        *,
        padding_mask: Optional[Tensor] = None,
        reset_mask: Optional[Tensor] = None,
        state: Optional[Tensor] = None,
        return_state: bool = False,
        prepared: Optional[ParameterCache] = None,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Run the EMA over time.

        Args:
            x: (B, L, D).
            padding_mask: (B, L) bool, True = padding, which the EMA excludes (the skip uses x itself).
            reset_mask: (B, L) bool, True at the first step of a document, which sees nothing before it.
            state: (B, D, N) complex memory before the first step.
            return_state: also return the memory after each row's last real step.
            prepared: keeps the coefficients for the next steps of a stream.

        Returns:
            (B, L, D), and the state (B, D, N) or None.
        """
        coefficients: EMACoefficients
        if prepared is None:
            coefficients = self.coefficients()
        else:
            coefficients = prepared.get(self, "coefficients", self.coefficients)
        return gated_ema(
            x,
            coefficients,
            self.omega,
            activated=False,
            padding_mask=padding_mask,
            reset_mask=reset_mask,
            bidirectional=self.bidirectional,
            shift=self.bidirectional,
            state=state,
            return_state=return_state,
        )

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, ema_dim={self.ema_dim}, bidirectional={self.bidirectional}"
