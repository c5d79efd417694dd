"""Repair copies of fairseq's tasks, which end in endless recursion."""

import typing

from fairseq_mega.compat.patching import wrap


def copy_states_of_tasks() -> None:
    """Make the state of a task copyable, as a part of what ``from_pretrained`` returns.

    A copy is empty at first, and fairseq looks up its attributes in a dictionary that it looks up in the same way.
    """
    from fairseq.tasks.fairseq_task import StatefulContainer

    wrap(StatefulContainer, "__getattr__", _look_up)


def _look_up(original: typing.Callable, self: typing.Any, name: str) -> typing.Any:
    if "_state" not in vars(self):
        raise AttributeError(name)
    return original(self, name)
