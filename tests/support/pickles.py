"""Files of torch.save as an attacker would write them: calls of named functions, with any arguments and state."""

import io
import pickle
import types
from typing import Any, Sequence

import torch


class Call:
    """Written as `function(*arguments)`, and `__setstate__(state)` on what it returns for each of `states`.

    With `new` the object is made by `function.__new__(function, *arguments)`.
    """

    def __init__(self, function: object, arguments: Sequence = (), *states: object, new: bool = False) -> None:
        self.function, self.arguments, self.states, self.new = function, tuple(arguments), states, new


_PicklerInPython: Any = pickle._Pickler  # its parts can be called


class _Pickler(_PicklerInPython):
    def save(self, obj: object, *args: object, **kwargs: object) -> None:
        if not isinstance(obj, Call):
            super().save(obj, *args, **kwargs)
            return
        self.save(obj.function)
        self.save(obj.arguments)
        self.write(pickle.NEWOBJ if obj.new else pickle.REDUCE)
        for state in obj.states:
            self.save(state)
            self.write(pickle.BUILD)


def write(value: object, file: Any) -> None:
    """torch.save, with every Call in `value` as it says."""
    torch.save(value, file, pickle_module=types.SimpleNamespace(__name__="pickles", Pickler=_Pickler))


def load(value: object) -> Any:
    """The result of torch.load for a file with `value`."""
    buffer = io.BytesIO()
    write(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
