"""Wrapping functions of fairseq: once, everywhere, and one wrapper around another."""

from typing import Any, Callable

import pytest
from fairseq import checkpoint_utils, trainer

from fairseq_mega.compat.patching import replace_in_fairseq, wrap


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


@pytest.fixture
def owner() -> type:
    return type("Owner", (Owner,), dict(vars(Owner)))


@pytest.mark.parametrize("name", ["method", "static"])
def test_a_function_of_a_class_is_wrapped_once(owner: Any, name: str) -> None:
    for _ in range(2):
        wrap(owner, name, twice)
    assert getattr(owner(), name)(3) == 8
    wrap(owner, name, negated)
    wrap(owner, name, twice)
    assert getattr(owner(), name)(3) == -8
    assert getattr(owner, name).__wrapped__.__wrapped__ is getattr(Owner, name)


def test_an_inherited_function_is_wrapped_for_the_heir_alone() -> None:
    wrap(Heir, "method", twice)
    assert (Heir().method(3), Owner().method(3)) == (8, 4)


def test_a_function_of_a_module_is_replaced_where_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(x: int) -> int:
        return x + 1

    for module in (checkpoint_utils, trainer):
        monkeypatch.setattr(module, "answer", answer, raising=False)
    wrap(checkpoint_utils, "answer", twice)
    assert trainer.answer(3) == checkpoint_utils.answer(3) == 8
    replace_in_fairseq("answer", checkpoint_utils.answer, answer)
    assert trainer.answer(3) == 4
