"""Dropout of single elements, of whole features, or of a sub-layer's whole result."""

from typing import Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.ops.activation import with_bias
from fairseq_mega.ops.dropout import dropout
from fairseq_mega.ops.gate import Addition


class Dropout(nn.Module):
    """Inverted dropout on (B, L, D): of single elements, or of whole features for all time steps of a sample.

    Args:
        p: probability of dropping, in [0, 1].
        feature: drop features instead of elements.

    Attributes:
        begin: updates of a training without dropout, see :func:`postpone`.
        retained: whether elements are dropped in evaluation, too.
    """

    def __init__(self, p: float, feature: bool = False) -> None:
        super().__init__()
        self.p = p
        self.feature = feature
        self.begin = 0
        self.updates = 0
        self.retained = False

    @property
    def rate(self) -> float:
        """Return the probability with which the next call drops."""
        trained = self.training and self.updates >= self.begin
        return self.p if trained or self.retained else 0.0

    @property
    def active(self) -> bool:
        """Return whether the next call drops anything."""
        return self.rate > 0.0

    def set_num_updates(self, updates: int) -> None:
        """Store the number of updates done; fairseq calls this method before each update."""
        self.updates = updates

    def make_generation_fast_(
        self,
        name: str,
        retain_dropout: bool = False,
        retain_dropout_modules: Optional[Sequence[str]] = None,
        **options: object,
    ) -> None:
        """Drop in evaluation too, if ``retain_dropout`` is True; fairseq calls this method before it generates.

        Args:
            name: of this module in the model, for instance decoder.layers.0.attention.dropout.
            retain_dropout: whether evaluation drops.
            retain_dropout_modules: only modules with one of these components in their name drop; None: all do.
        """
        chosen = retain_dropout_modules is None or bool(set(retain_dropout_modules) & set(name.split(".")))
        self.retained = retain_dropout and chosen

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        if not self.feature:
            return dropout(x, self.p)
        return x * F.dropout(torch.ones_like(x[:, :1]), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}" + (", feature=True" if self.feature else "")


class StochasticDepth(Dropout):
    """Dropout of a sub-layer's result (B, L, D) for whole samples; the results of the other samples are divided by 1 -
    p.

    Args:
        p: probability of dropping, in [0, 1].

    Source: Huang et al., 2016; published image classifiers call it "drop path".
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.dropout(torch.ones_like(x[:, :1, :1]), self.p) if self.active else x


def dropped_addition(
    x: Tensor,
    addend: Optional[Tensor],
    dropout: Dropout,
    depth: StochasticDepth,
    bias: Optional[Tensor] = None,
) -> Addition:
    """Return ``depth(dropout(x + addend + bias))`` of tensors (B, L, D) and a bias (D,), zero where None, for a sum."""
    if not dropout.feature and not depth.active:
        return Addition(None, x, addend, bias, dropout.rate)
    return Addition(None, depth(dropout(with_bias(x if addend is None else x + addend, bias))))


def postpone(model: nn.Module, updates: int) -> None:
    """Start every dropout of a model after a number of updates ("late dropout", Liu et al., ICML 2023)."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.begin = updates
