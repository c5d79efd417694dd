"""The optimiser that fairseq builds on."""

from typing import Any

import amp_C
import torch


class FusedAdam(torch.optim.Optimizer):
    """Holds options and kernel; the step is fairseq's."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps}
        super().__init__(params, {**options, "weight_decay": weight_decay})
        self.adam_w_mode = 1 if adam_w_mode else 0
        self._dummy_overflow_buf = torch.zeros(1, dtype=torch.int)
        self.multi_tensor_adam = amp_C.multi_tensor_adam
