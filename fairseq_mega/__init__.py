"""MEGA (Ma et al., ICLR 2023) for fairseq, and its parts for any training loop.

Once this package and fairseq are imported, in either order, the models, tasks, criterions and schedules are registered
with fairseq; `--user-dir fairseq_mega` is enough. Modules and operators do not require fairseq and do not import it.
The import of this package imports neither; its workarounds follow the import of torch.
"""

import importlib
from typing import Any

from . import compat
from .compat import startup
from .compat.versions import imports

__version__ = "0.1.0"

__all__ = ["compat", "criterions", "models", "optim", "tasks"]


def __getattr__(name: str) -> Any:
    """Import a part at its first use; raise AttributeError for other names."""
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register() -> None:
    compat.apply()  # first: registering requires the workarounds
    for name in __all__:
        importlib.import_module(f"{__name__}.{name}")


startup.repair()
imports.when_fairseq_is_imported(_register)
