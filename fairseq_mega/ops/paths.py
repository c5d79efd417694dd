"""The paths of an operation: the names one may force, and how."""

import os
from typing import NamedTuple, Optional, Tuple


class Paths(NamedTuple):
    """Names of the paths of one operation besides "auto", and the environment variable that forces one of them."""

    operation: str
    names: Tuple[str, ...]
    variable: str

    def forced(self, path: Optional[str] = None) -> str:
        """The path asked for by an argument ``path``, else by the environment, else "auto".

        Raises:
            ValueError: for a name that is none of these.
        """
        path = path or os.environ.get(self.variable, "auto")
        choices = ("auto", *self.names)
        if path not in choices:
            raise ValueError(
                f"unknown {self.operation} path {path!r} (argument `path` or {self.variable}): "
                f"choose from {', '.join(choices)}"
            )
        return path
