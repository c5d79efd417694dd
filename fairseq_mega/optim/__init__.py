"""fairseq learning-rate schedules; importing this package registers them."""

from . import linear_decay, timed_decay

__all__ = ["linear_decay", "timed_decay"]
