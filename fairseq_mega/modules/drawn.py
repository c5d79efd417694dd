"""Linear maps and embedding tables of PyTorch whose first values are drawn by functions of their owners."""

from typing import Any, Callable, Optional, TypeVar

from torch import Tensor, nn

Draw = Callable[[Tensor], Any]  # fills a weight in place
Module = TypeVar("Module", bound="Drawn")


class Drawn(nn.Module):
    """Mixin for a module of PyTorch: a function draws the first values of its weight, and its bias is zero.

    PyTorch's own values are drawn before, so that a seed still draws the same weights.

    Attributes:
        draw: the function; None for PyTorch's values.
    """

    weight: Tensor
    draw: Optional[Draw] = None

    def drawn(self: Module, draw: Draw) -> Module:
        """Draw the weight by a function, now and at every reset; return the module."""
        self.draw = draw
        self._fill()
        return self

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        super().reset_parameters()  # type: ignore[misc]
        self._fill()

    def _fill(self) -> None:
        if self.draw is None:
            return
        self.draw(self.weight)
        bias: Optional[Tensor] = getattr(self, "bias", None)
        if bias is not None:
            nn.init.zeros_(bias)


class PlainLinear(Drawn, nn.Linear):
    """PyTorch's linear map and product."""


class Table(Drawn, nn.Embedding):
    """PyTorch's embedding table."""


def adopt(module: nn.Module, draw: Draw) -> None:
    """Draw a linear map or table of another library by a function at every reset; its present values stay."""
    module.__class__ = Table if isinstance(module, nn.Embedding) else PlainLinear
    module.draw = draw  # type: ignore[assignment]


def draw_tokens(table: Tensor, draw: Draw, padding: int) -> None:
    """Draw a table (V, d) with a zero row for padding."""
    draw(table)
    nn.init.zeros_(table[padding])
