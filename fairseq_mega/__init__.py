"""MEGA (Ma et al., ICLR 2023) for fairseq: importing the package registers models, tasks, criterions and schedules."""

from . import compat

compat.apply()

from . import criterions, models, optim, tasks  # noqa: E402  registering needs the workarounds in place

__version__ = "0.1.0"

__all__ = ["compat", "criterions", "models", "optim", "tasks"]
