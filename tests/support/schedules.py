"""Learning-rate schedules beside an optimiser that only remembers its rate."""

from typing import Any, Optional

import pytest
import torch


class Optimizer:
    """Stands for fairseq's optimiser."""

    lr: Optional[float] = None
    params = [torch.zeros(1)]

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def get_lr(self) -> Optional[float]:
        return self.lr


def build(monkeypatch: pytest.MonkeyPatch, schedule: Any, config: Any, **options: Any) -> Any:
    """A schedule with a peak of 0.001 unless the options say otherwise."""
    from fairseq.optim.lr_scheduler import fairseq_lr_scheduler

    monkeypatch.setattr(fairseq_lr_scheduler, "FairseqOptimizer", Optimizer)
    return schedule(config(**{"lr": [0.001], **options}), Optimizer())
