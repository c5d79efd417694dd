"""Wrapping functions of fairseq: everywhere, and one wrapper around another."""

from typing import Any, Callable

import pytest
from fairseq import checkpoint_utils, trainer

from fairseq_mega.compat.patching import wrap


class Owner:
    """A class with one method of each kind that is wrapped."""

    def method(self, x: int) -> int:
        return x + 1

    @staticmethod
    def static(x: int) -> int:
        return x + 1


class Heir(Owner):
    """A class that inherits what is wrapped."""


def twice(original: Callable, *args: Any) -> int:
    return 2 * original(*args)


def negated(original: Callable, *args: Any) -> int:
    return -original(*args)


def test_functions_of_a_class_are_wrapped_for_it_alone() -> None:
    for name in ("method", "static"):
        wrap(Heir, name, twice)
        wrap(Heir, name, negated)
        assert (getattr(Heir(), name)(3), getattr(Owner(), name)(3)) == (-8, 4)


def test_a_function_of_a_module_is_replaced_where_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(x: int) -> int:
        return x + 1

    for module in (checkpoint_utils, trainer):
        monkeypatch.setattr(module, "answer", answer, raising=False)
    wrap(checkpoint_utils, "answer", twice)
    assert trainer.answer(3) == checkpoint_utils.answer(3) == 8
