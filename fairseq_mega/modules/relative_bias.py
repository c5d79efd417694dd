"""Relative positional biases: each yields the values of a Toeplitz matrix, never the matrix."""

from typing import Optional

import torch
from torch import Tensor, nn

from .errors import FieldError
from .parameter_cache import ParameterCache

BIASES = ("simple", "rotary")


class SimpleRelativeBias(nn.Module):
    """One learned value per distance: ``b[i, j] = weight[P - 1 + j - i]``.

    Args:
        max_positions: P, the longest sequence (or chunk) it covers.
        field: the field that sets P, for the error.

    Source: the published code's "simple" bias (after T5, Raffel et al., 2020, without buckets).
    """

    def __init__(self, max_positions: int, field: str = "max_positions") -> None:
        super().__init__()
        self.max_positions = max_positions
        self.field = field
        self.weight = nn.Parameter(torch.empty(2 * max_positions - 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, queries: int, keys: int, offset: int = 0, prepared: Optional[ParameterCache] = None) -> Tensor:
        """Return bias values for consecutive queries and keys.

        Args:
            queries: n.
            keys: m.
            offset: position of the first query, counted from the first key.
            prepared: keeps values for the next steps of a stream.

        Returns:
            (n + m - 1,), where entry n - 1 + j - i belongs to query i and key j.

        Raises:
            FieldError: if a position lies outside the table.
        """
        self._check_length(max(offset + queries, keys))
        start, count = self.max_positions - offset - queries, queries + keys - 1
        # A view of a parameter requires gradients under no_grad, too, and FlopCounterMode refuses such results.
        weight = self.weight if torch.is_grad_enabled() else self.weight.detach()
        return weight if count == len(weight) else weight[start : start + count]

    def reach(self, length: int) -> int:
        """Return the positions of :meth:`table` for the last of ``length`` steps; errors as in a call."""
        self._check_length(length)
        return self.max_positions

    def table(self, reach: int) -> Tensor:
        """Return bias values; those of the last of ``length`` steps begin at entry reach - length."""
        return self.weight

    def _check_length(self, longest: int) -> None:
        if longest > self.max_positions:
            raise FieldError(
                self.field,
                "a sequence of {longest} positions is longer than the {covered} that the simple relative bias covers "
                "({field}): shorten the input, train with a larger {field}, or use {relative_bias} rotary, which has "
                "no limit",
                longest=longest,
                covered=self.max_positions,
            )

    def extra_repr(self) -> str:
        return f"max_positions={self.max_positions}"


class RotaryRelativeBias(nn.Module):
    """The inner product of two learned vectors rotated by their positions: a Toeplitz bias for any length.

    ``b[i, j] = sum_k Re(a_k conj(c_k) exp(i w_k (i - j)))`` with a_k and c_k the complex halves of alpha and beta and
    w_k = 10000^(-k / (z / 2)). The angles are computed in float32.

    Args:
        z_dim: width of the vectors, even.

    Source: the published code's "rotary" bias (after RoFormer, Su et al., 2021, independent of content).
    """

    def __init__(self, z_dim: int) -> None:
        super().__init__()
        self.z_dim = z_dim
        self.alpha = nn.Parameter(torch.empty(1, z_dim))
        self.beta = nn.Parameter(torch.empty(1, z_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        nn.init.normal_(self.alpha, std=0.02)
        nn.init.normal_(self.beta, std=0.02)

    def forward(self, queries: int, keys: int, offset: int = 0, prepared: Optional[ParameterCache] = None) -> Tensor:
        """Return bias values as :meth:`SimpleRelativeBias.forward`, without a limit."""
        last = offset + queries - 1  # position of the last query, the distance of the first value
        if prepared is None or torch.is_grad_enabled() or queries != 1:
            return self.values(last, max(queries + keys - 1, 0))
        # All steps of decoding use one table, which doubles when a text exceeds it.
        reach = self.reach(max(last + 1, keys))
        table = prepared.get(self, reach, lambda: self.table(reach))
        return table[reach - 1 - last : reach - 1 - last + queries + keys - 1]

    def reach(self, length: int) -> int:
        """Return the number of positions as :meth:`SimpleRelativeBias.reach`: the next power of two."""
        return 1 << (length - 1).bit_length()

    def table(self, reach: int) -> Tensor:
        """Return values as :meth:`SimpleRelativeBias.table`."""
        return self.values(reach - 1, 2 * reach - 1)

    def values(self, first: int, count: int) -> Tensor:
        """Return bias values (count,) at the distances i - j = first, first - 1, ..."""
        dtype = torch.promote_types(self.alpha.dtype, torch.float32)
        half = self.z_dim // 2
        device = self.alpha.device
        frequency = 10000.0 ** (-torch.arange(half, dtype=dtype, device=device) / half)
        distance = first - torch.arange(count, dtype=dtype, device=device)  # i - j
        angle = distance.unsqueeze(-1) * frequency
        a_real, a_imag = self.alpha[0].to(dtype).split(half)
        c_real, c_imag = self.beta[0].to(dtype).split(half)
        real = a_real * c_real + a_imag * c_imag
        imag = a_imag * c_real - a_real * c_imag
        with torch.autocast(device.type, enabled=False):
            return (torch.cos(angle) @ real - torch.sin(angle) @ imag).to(self.alpha.dtype)

    def extra_repr(self) -> str:
        return f"z_dim={self.z_dim}"


def build_relative_bias(kind: str, max_positions: int, z_dim: int, field: str) -> nn.Module:
    """Return the relative bias of one attention: "simple" over ``max_positions`` (set by ``field``) or "rotary"."""
    return SimpleRelativeBias(max_positions, field) if kind == "simple" else RotaryRelativeBias(z_dim)
