"""Learning-rate schedule of the MEGA recipes."""

from dataclasses import dataclass, field
from typing import List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II


@dataclass
class LinearDecayConfig(FairseqDataclass):
    """Options of ``--lr-scheduler linear_decay``."""

    warmup_updates: int = field(default=0, metadata={"help": "updates W over which the rate rises"})
    warmup_init_lr: float = field(default=1e-7, metadata={"help": "rate of the first update; a negative value means 0"})
    warmup_power: float = field(default=1.0, metadata={"help": "power r of the rise, (n / W)^r"})
    end_learning_rate: float = field(default=0.0, metadata={"help": "rate after the last update"})
    total_num_update: Optional[float] = field(
        default=None,
        metadata={"help": "update T at which the rate reaches --end-learning-rate (default: --max-update)"},
    )
    max_update: int = II("optimization.max_update")
    lr: List[float] = II("optimization.lr")


@register_lr_scheduler("linear_decay", dataclass=LinearDecayConfig)
class LinearDecaySchedule(FairseqLRScheduler):
    """Rise to the peak over W updates, then fall in a straight line to the end rate at update T.

    With n updates done: ``n <= W``: init + (peak - init) (n / W)^r; afterwards: end + (peak - end) (T - n) / (T - W).

    Raises:
        ValueError: for options out of range.

    Source: recipes of MEGA (Ma et al., ICLR 2023) in the published code.
    """

    def __init__(self, cfg: LinearDecayConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            raise ValueError(f"--lr {cfg.lr}: --lr-scheduler linear_decay accepts one learning rate; give one")
        if cfg.warmup_updates < 0 or cfg.warmup_power <= 0:
            raise ValueError(
                f"--warmup-updates {cfg.warmup_updates} --warmup-power {cfg.warmup_power}: "
                f"give updates of at least 0 and a power above 0"
            )
        self.total = cfg.max_update if cfg.total_num_update is None else cfg.total_num_update
        if self.total <= cfg.warmup_updates:
            raise ValueError(
                f"--total-num-update {self.total:g} (default: --max-update) must be above --warmup-updates "
                f"{cfg.warmup_updates}: raise --max-update or --total-num-update, or lower --warmup-updates"
            )
        self.first, self.peak = max(0.0, cfg.warmup_init_lr), cfg.lr[0]
        self.optimizer.set_lr(self.rate(0))

    def rate(self, num_updates: int) -> float:
        """Return the learning rate of the update that follows ``num_updates`` updates."""
        cfg = self.cfg
        if num_updates <= cfg.warmup_updates:
            done = (num_updates / cfg.warmup_updates) ** cfg.warmup_power if cfg.warmup_updates > 0 else 1.0
            return self.first + (self.peak - self.first) * done
        left = max(0.0, self.total - num_updates) / (self.total - cfg.warmup_updates)
        return cfg.end_learning_rate + (self.peak - cfg.end_learning_rate) * left

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Keep the rate at the end of an epoch."""
        super().step(epoch, val_loss)
        return self.optimizer.get_lr()

    def step_update(self, num_updates: int) -> float:
        """Set the rate after each update."""
        self.optimizer.set_lr(self.rate(num_updates))
        return self.optimizer.get_lr()
