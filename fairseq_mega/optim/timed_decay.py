"""Learning-rate schedule by time: the rate reaches 0 at the end of a given time, on any machine."""

import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II


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
class TimedDecaySchedule(FairseqLRScheduler):
    """Fall in a straight line to 0 over ``--stop-time-hours``, after a short rise.

    With n updates done and the share p of the time used: ``peak (1 - p) min(1, max(n / W, p / S))``. Checkpoints store
    the used time, so a resumed training continues the schedule. All processes use the time of the first process.

    Raises:
        ValueError: for options out of range.
    """

    def __init__(self, cfg: TimedDecayConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if len(cfg.lr) != 1:
            raise ValueError(f"--lr {cfg.lr}: --lr-scheduler timed_decay accepts one learning rate; give one")
        if cfg.stop_time_hours <= 0:
            raise ValueError(
                f"--stop-time-hours {cfg.stop_time_hours:g}: --lr-scheduler timed_decay requires the hours of the "
                f"training: give a number above 0 (0.25 is a quarter of an hour)"
            )
        if cfg.warmup_updates < 0 or not 0 <= cfg.warmup_share < 1:
            raise ValueError(
                f"--warmup-updates {cfg.warmup_updates} --warmup-share {cfg.warmup_share:g}: "
                f"give updates of at least 0, and a share from 0 to below 1"
            )
        self._seconds_before, self._started = 0.0, time.time()
        self.step_update(0)

    def rate(self, num_updates: int, share: float) -> float:
        """Return the learning rate after ``num_updates`` updates and the share ``share`` of the time."""
        by_updates = num_updates / self.cfg.warmup_updates if self.cfg.warmup_updates else 1.0
        by_time = share / self.cfg.warmup_share if self.cfg.warmup_share else 0.0
        return self.cfg.lr[0] * max(0.0, 1 - share) * min(1.0, max(by_updates, by_time))

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

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Keep the rate at the end of an epoch."""
        super().step(epoch, val_loss)
        return self.optimizer.get_lr()

    def step_update(self, num_updates: int) -> float:
        """Set the rate after each update."""
        share = self._same_in_all_processes(self.seconds()) / (3600 * self.cfg.stop_time_hours)
        self.optimizer.set_lr(self.rate(num_updates, share))
        return self.optimizer.get_lr()

    def _same_in_all_processes(self, seconds: float) -> float:
        """Return the first process's time: with different rates the processes' weights would diverge."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return seconds
        shared = torch.tensor(seconds, dtype=torch.float64, device=next(iter(self.optimizer.params)).device)
        torch.distributed.broadcast(shared, 0)
        return shared.item()
