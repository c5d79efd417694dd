"""Learning-rate schedules of MEGA's recipes, of its image classifiers, and by time."""

import math
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II


class Schedule(FairseqLRScheduler):
    """Schedule from one learning rate, its peak."""

    def __init__(self, cfg: Any, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        (self.peak,) = cfg.lr

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Keep the rate at the end of an epoch."""
        super().step(epoch, val_loss)
        return self.optimizer.get_lr()


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
class LinearDecaySchedule(Schedule):
    """Rise to the peak over W updates, then fall in a straight line to the end rate at update T.

    With n updates done: ``n <= W``: init + (peak - init) (n / W)^r; afterwards: end + (peak - end) (T - n) / (T - W).

    Raises:
        ValueError: if T is not above W.

    Source: recipes of MEGA (Ma et al., ICLR 2023) in the published code.
    """

    def __init__(self, cfg: LinearDecayConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        self.total = cfg.max_update if cfg.total_num_update is None else cfg.total_num_update
        if self.total <= cfg.warmup_updates:
            raise ValueError(f"--total-num-update (default: --max-update) {self.total:g} is not above --warmup-updates")
        self.first = max(0.0, cfg.warmup_init_lr)
        self.optimizer.set_lr(self.rate(0))

    def rate(self, num_updates: int) -> float:
        """Return the learning rate of the update that follows ``num_updates`` updates."""
        cfg = self.cfg
        if num_updates <= cfg.warmup_updates:
            done = (num_updates / cfg.warmup_updates) ** cfg.warmup_power if cfg.warmup_updates > 0 else 1.0
            return self.first + (self.peak - self.first) * done
        left = max(0.0, self.total - num_updates) / (self.total - cfg.warmup_updates)
        return cfg.end_learning_rate + (self.peak - cfg.end_learning_rate) * left

    def step_update(self, num_updates: int) -> float:
        """Set the rate after each update."""
        self.optimizer.set_lr(self.rate(num_updates))
        return self.optimizer.get_lr()


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
class EpochCosineSchedule(Schedule):
    """Rise to the peak over W epochs, then fall along half a cosine of T epochs; all updates of an epoch share a rate.

    In epoch e, from 0: ``e < W``: init + (peak - init) e / W; afterwards: end + (peak - end) (1 + cos(pi a)) / 2 with
    a = (e - W) / T, at most 1. The default of T is --max-epoch, so the last rate is above the end rate: the published
    300 epochs with W = 20 and a peak of 0.002 end with 2.5e-5.

    Raises:
        ValueError: if T is missing, and --max-epoch not above W.

    Source: MEGA (Ma et al., ICLR 2023), Table 11, and the published code (XuezheMax/mega-image).
    """

    def __init__(self, cfg: EpochCosineConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if cfg.period_epochs is None and cfg.max_epoch <= cfg.warmup_epochs:
            raise ValueError(f"--max-epoch {cfg.max_epoch} is not above --warmup-epochs: give --period-epochs")
        self.period = cfg.max_epoch if cfg.period_epochs is None else cfg.period_epochs
        self.optimizer.set_lr(self.rate(0))

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        cfg = self.cfg
        if epoch < cfg.warmup_epochs:
            return cfg.warmup_init_lr + (self.peak - cfg.warmup_init_lr) * epoch / cfg.warmup_epochs
        fallen = min(1.0, (epoch - cfg.warmup_epochs) / self.period)
        return cfg.min_lr + (self.peak - cfg.min_lr) / 2 * (1 + math.cos(math.pi * fallen))

    def step_begin_epoch(self, epoch: int) -> None:
        """Set the rate of an epoch, which fairseq counts from 1; also called when a training resumes in an epoch."""
        self.optimizer.set_lr(self.rate(epoch - 1))


@dataclass
class TimedDecayConfig(FairseqDataclass):
    """Options of ``--lr-scheduler timed_decay``."""

    warmup_updates: int = field(default=0, metadata={"help": "updates W over which the rate rises"})
    warmup_share: float = field(
        default=0.1, metadata={"help": "share S of the time after which the rate is at its peak, even before update W"}
    )
    stop_time_hours: float = II("optimization.stop_time_hours")
    lr: List[float] = II("optimization.lr")


@register_lr_scheduler("timed_decay", dataclass=TimedDecayConfig)
class TimedDecaySchedule(Schedule):
    """Fall in a straight line to 0 over ``--stop-time-hours``, after a short rise.

    With n updates done and the share p of the time used: ``peak (1 - p) min(1, max(n / W, p / S))``. Checkpoints store
    the used time, so a resumed training continues the schedule. All processes use the time of the first process.
    """

    def __init__(self, cfg: TimedDecayConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        self._seconds_before, self._started = 0.0, time.time()
        self.step_update(0)

    def rate(self, num_updates: int, share: float) -> float:
        """Return the learning rate after ``num_updates`` updates and the share ``share`` of the time."""
        by_updates = num_updates / self.cfg.warmup_updates if self.cfg.warmup_updates else 1.0
        by_time = share / self.cfg.warmup_share if self.cfg.warmup_share else 0.0
        return self.peak * max(0.0, 1 - share) * min(1.0, max(by_updates, by_time))

    def seconds(self) -> float:
        """Return the seconds of training so far, including earlier runs."""
        return self._seconds_before + time.time() - self._started

    def state_dict(self) -> Dict[str, Any]:
        """Return the state for a checkpoint: the base class's state and the seconds of training."""
        return {**super().state_dict(), "seconds": self.seconds()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the state of a checkpoint; a checkpoint of another schedule counts 0 seconds."""
        super().load_state_dict(state_dict)
        self._seconds_before, self._started = state_dict.get("seconds", 0.0), time.time()

    def step_update(self, num_updates: int) -> float:
        """Set the rate after each update."""
        seconds = torch.tensor(self.seconds(), dtype=torch.float64)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # With different rates the processes' weights would diverge.
            seconds = seconds.to(next(iter(self.optimizer.params)).device)
            torch.distributed.broadcast(seconds, 0)
        self.optimizer.set_lr(self.rate(num_updates, seconds.item() / (3600 * self.cfg.stop_time_hours)))
        return self.optimizer.get_lr()
