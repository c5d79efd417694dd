"""Adam without weight decay for the parameters that a model marks."""

import logging
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional

import torch
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from fairseq_mega.compat.features.no_weight_decay import has_no_weight_decay

logger = logging.getLogger(__name__)
NAME = "adam_selective_decay"
NO_WEIGHT_DECAY = "undecayed"  # key of the group without weight decay, also in checkpoints


@dataclass
class SelectiveDecayAdamConfig(FairseqAdamConfig):
    """Options of ``--optimizer adam_selective_decay``, equal to the options of ``adam``."""


@register_optimizer(NAME, dataclass=SelectiveDecayAdamConfig)
class SelectiveDecayAdam(FairseqAdam):
    """fairseq's Adam with a decoupled weight decay of 0 for the parameters that the model marks.

    The marked parameters form the second of two groups. Everything else, including float32 copies of weights in half
    precision, is as with ``--optimizer adam``.

    Args:
        cfg: fairseq's options of Adam.
        params: the trained parameters, some marked by
            :func:`fairseq_mega.compat.features.no_weight_decay.exclude_from_weight_decay`.

    Raises:
        ValueError: if no parameter is marked, as when --fp16 joins all weights in one tensor.

    Source: the published training of MEGA's image classifiers (XuezheMax/mega-image).
    """

    def __init__(self, cfg: SelectiveDecayAdamConfig, params: Iterable[torch.Tensor]) -> None:
        params = list(params)
        excluded = [parameter for parameter in params if has_no_weight_decay(parameter)]
        if not excluded:
            raise ValueError(
                f"--optimizer {NAME}: no parameter is marked: only image classifiers mark parameters, and --fp16 loses "
                f"the marks without --fp16-no-flatten-grads"
            )
        decayed = [parameter for parameter in params if not has_no_weight_decay(parameter)]
        groups = [{"params": decayed}, {"params": excluded, "weight_decay": 0.0, NO_WEIGHT_DECAY: True}]
        super().__init__(cfg, groups)
        logger.info(f"weight decay: {cfg.weight_decay:g} for {len(decayed)} tensors, 0 for {len(excluded)}")

    def step(self, closure: Optional[Callable] = None, scale: float = 1.0, groups: Optional[Any] = None) -> None:
        """Update the parameters; the second group keeps weight decay 0, whatever --optimizer-overrides sets."""
        for group in self.param_groups:
            if NO_WEIGHT_DECAY in group:
                group["weight_decay"] = 0.0
        super().step(closure, scale, groups)
