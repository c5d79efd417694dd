"""Learning-rate schedule of MEGA's image classifiers: the rate changes with each epoch, not within an epoch."""

import math
from dataclasses import dataclass, field
from typing import List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II


@dataclass
class EpochCosineConfig(FairseqDataclass):
    """Options of ``--lr-scheduler epoch_cosine``; the defaults are those of the published training on ImageNet."""

    warmup_epochs: int = field(default=20, metadata={"help": "epochs W over which the rate rises"})
    warmup_init_lr: float = field(
        default=1e-5, metadata={"help": "rate of the first epoch, unless --warmup-epochs is 0"}
    )
    min_lr: float = field(default=1e-6, metadata={"help": "rate T epochs after the rise, and later"})
    period_epochs: Optional[int] = field(
        default=None, metadata={"help": "epochs T over which the rate falls after the rise (default: --max-epoch)"}
    )
    max_epoch: int = II("optimization.max_epoch")
    lr: List[float] = II("optimization.lr")


@register_lr_scheduler("epoch_cosine", dataclass=EpochCosineConfig)
class EpochCosineSchedule(FairseqLRScheduler):
    """Rise to the peak over W epochs, then fall along half a cosine of T epochs; all updates of an epoch share a rate.

    In epoch e, from 0: ``e < W``: init + (peak - init) e / W; afterwards: end + (peak - end) (1 + cos(pi a)) / 2 with
    a = (e - W) / T, at most 1. The default of T is --max-epoch, so the last rate is above the end rate: the published
    300 epochs with W = 20 and a peak of 0.002 end with 2.5e-5.

    Raises:
        ValueError: for options out of range.

    Source: MEGA (Ma et al., ICLR 2023), Table 11, and the published code (XuezheMax/mega-image).
    """

    def __init__(self, cfg: EpochCosineConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            raise ValueError(f"--lr {cfg.lr}: --lr-scheduler epoch_cosine accepts one learning rate; give one")
        if cfg.warmup_epochs < 0 or cfg.warmup_init_lr < 0 or cfg.min_lr < 0:
            raise ValueError(
                f"--warmup-epochs {cfg.warmup_epochs} --warmup-init-lr {cfg.warmup_init_lr:g} --min-lr {cfg.min_lr:g}: "
                f"all must be at least 0"
            )
        if cfg.period_epochs is None and cfg.max_epoch <= cfg.warmup_epochs:
            raise ValueError(
                f"--max-epoch {cfg.max_epoch} must be above --warmup-epochs {cfg.warmup_epochs}: "
                f"raise --max-epoch, lower --warmup-epochs, or give --period-epochs"
            )
        self.period = cfg.max_epoch if cfg.period_epochs is None else cfg.period_epochs
        if self.period < 1:
            raise ValueError(f"--period-epochs {self.period}: must be at least 1 (default: --max-epoch)")
        self.optimizer.set_lr(self.rate(0))

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        cfg, peak = self.cfg, self.cfg.lr[0]
        if epoch < cfg.warmup_epochs:
            return cfg.warmup_init_lr + (peak - cfg.warmup_init_lr) * epoch / cfg.warmup_epochs
        fallen = min(1.0, (epoch - cfg.warmup_epochs) / self.period)
        return cfg.min_lr + (peak - cfg.min_lr) / 2 * (1 + math.cos(math.pi * fallen))

    def step_begin_epoch(self, epoch: int) -> None:
        """Set the rate of an epoch, which fairseq counts from 1; also called when a training resumes in an epoch."""
        self.optimizer.set_lr(self.rate(epoch - 1))

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Keep the rate at the end of an epoch."""
        super().step(epoch, val_loss)
        return self.optimizer.get_lr()
