"""Adam whose weight decay leaves out the parameters that a model has marked."""

import logging
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Optional

import torch
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from fairseq_mega.compat.patches.no_weight_decay import is_undecayed, joins_undecayed

logger = logging.getLogger(__name__)
NAME = "adam_selective_decay"
UNDECAYED = "undecayed"  # of a group of parameters, in checkpoints too


@dataclass
class SelectiveDecayAdamConfig(FairseqAdamConfig):
    """Options of ``--optimizer adam_selective_decay``: those of ``adam``."""


@register_optimizer(NAME, dataclass=SelectiveDecayAdamConfig)
class SelectiveDecayAdam(FairseqAdam):
    """fairseq's Adam, whose decoupled weight decay is 0 for the parameters that the model has marked.

    They form the second of two groups. Everything else, float32 copies of weights in half precision and apex's
    FusedAdam included, is as with ``--optimizer adam``.

    Args:
        cfg: fairseq's options of Adam.
        params: the trained parameters, some marked by
            :func:`fairseq_mega.compat.patches.no_weight_decay.leave_undecayed`.

    Raises:
        ValueError: if no parameter is marked, or weights are joined in one tensor as --fp16 has them.

    Source: the published training of MEGA's image classifiers (XuezheMax/mega-image).
    """

    def __init__(self, cfg: SelectiveDecayAdamConfig, params: Iterable[torch.Tensor]) -> None:
        params = list(params)
        undecayed = [parameter for parameter in params if is_undecayed(parameter)]
        if any(joins_undecayed(parameter) for parameter in params):
            raise ValueError(
                f"--optimizer {NAME} with --fp16 needs weights of their own, which fairseq joins in one tensor: "
                f"add --fp16-no-flatten-grads, or give --bf16 in place of --fp16"
            )
        if not undecayed:
            raise ValueError(
                f"--optimizer {NAME}: this model names no parameters that weight decay leaves out (image classifiers "
                f"do): give --optimizer adam"
            )
        decayed = [parameter for parameter in params if not is_undecayed(parameter)]
        groups = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0, UNDECAYED: True}]
        super().__init__(cfg, groups)
        logger.info(f"weight decay: {cfg.weight_decay:g} of {len(decayed)} tensors, none of {len(undecayed)}")

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """torch's optimiser; raises ValueError where --zero-sharding would put another in its place."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        raise ValueError(f"--optimizer {NAME} cannot be combined with --zero-sharding: leave one of them out")

    def load_state_dict(self, state_dict: Dict[str, Any], optimizer_overrides: Optional[Dict[str, Any]] = None) -> None:
        """Go on from a checkpoint; raises ValueError for one of an optimiser that decays all parameters."""
        if [UNDECAYED in group for group in state_dict["param_groups"]] != [False, True]:
            raise ValueError(
                f"--optimizer {NAME}: the checkpoint's optimiser decays all weights alike: add --reset-optimizer, or "
                f"give its --optimizer"
            )
        super().load_state_dict(state_dict, optimizer_overrides)

    def step(self, closure: Optional[Callable] = None, scale: float = 1.0, groups: Optional[Any] = None) -> None:
        """Take a step; --optimizer-overrides, given to all groups, does not reach the decay of the second one."""
        for group in self.param_groups:
            if UNDECAYED in group:
                group["weight_decay"] = 0.0
        super().step(closure, scale, groups)
