"""A layer of S4D, to compare MEGA's with."""

from dataclasses import dataclass
from typing import Optional

import torch.nn.functional as F
from torch import Tensor, nn

from .dropout import Dropout
from .errors import FieldError, check_layer
from .layer import PLAIN, LayerContext, LayerOutput
from .linear import Linear
from .norm import NORMS, build_norm
from .padding import finite_padding
from .state import LayerCache, LayerMemory, memory_for
from .state_space import INITIALIZATIONS, DiagonalStateSpace


@dataclass(frozen=True)
class S4dLayerConfig:
    """Shape and regularisation of a layer of S4D.

    Raises:
        FieldError: where a value is out of range; the message names field, value and remedy.
    """

    embed_dim: int
    ema_dim: int = 64  # N
    bidirectional: bool = True
    initialization: str = "lin"
    least_step: float = 0.001
    largest_step: float = 0.1
    rate: float = 0.1
    step_rate: Optional[float] = None  # of the modes, `rate`
    norm: str = "batchnorm"
    normalize_before: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_layer(self, {"embed_dim": 1}, norm=NORMS, initialization=INITIALIZATIONS)
        if self.ema_dim < 2 or self.ema_dim % 2:
            message = "{field} {value}: modes come in conjugate pairs, give an even number of at least 2"
            raise FieldError("ema_dim", message, value=self.ema_dim)
        if not 0 < self.least_step <= self.largest_step:
            message = "{field} {value}: steps lie above 0 and up to {largest_step} {largest}"
            raise FieldError("least_step", message, value=self.least_step, largest=self.largest_step)
        if not self.rate > 0:
            raise FieldError("rate", "{field} {value}: must be above 0, for example 0.1", value=self.rate)
        if self.step_rate is not None and not self.step_rate > 0:
            raise FieldError("step_rate", "{field} {value}: must be above 0, for example 1", value=self.step_rate)


class S4dLayer(nn.Module):
    """A state space, bidirectional or causal, GELU and a gated linear map, with residual and norm.

    Args:
        config: shape and regularisation. Dropout drops whole features.

    Source: Gu et al. (NeurIPS 2022), appendix B; the bidirectional form is Goel et al.'s (ICML 2022).
    """

    def __init__(self, config: S4dLayerConfig) -> None:
        super().__init__()
        d = config.embed_dim
        self.prenorm = config.normalize_before
        self.state_space = DiagonalStateSpace(
            d,
            config.ema_dim,
            bidirectional=config.bidirectional,
            initialization=config.initialization,
            least_step=config.least_step,
            largest_step=config.largest_step,
            rate=config.rate,
            step_rate=config.step_rate,
        )
        self.output_proj = Linear(d, 2 * d)
        self.norm = build_norm(config.norm, d)
        self.inner_dropout = Dropout(config.dropout, feature=True)
        self.dropout = Dropout(config.dropout, feature=True)

    def forward(
        self,
        x: Tensor,
        context: LayerContext = PLAIN,
        memory: Optional[LayerMemory] = None,
        cache: Optional[LayerCache] = None,
    ) -> LayerOutput:
        """Apply the layer, see :class:`fairseq_mega.modules.layer.Layer`; it has no cache."""
        if context.padding_mask is not None:
            x = finite_padding(x, context.padding_mask)
        begins = None if context.documents is None else context.documents.begins
        memory = memory_for(x, memory)
        past = None if memory is None else memory.ema
        y, state = self.state_space(
            self.norm(x) if self.prenorm else x, context.padding_mask, begins, past, context.return_state
        )
        out = x + self.dropout(F.glu(self.output_proj(self.inner_dropout(F.gelu(y))), dim=-1))
        return LayerOutput(out if self.prenorm else self.norm(out), None if state is None else LayerMemory(state))
