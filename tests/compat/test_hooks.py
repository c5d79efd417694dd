"""Functions at events of fairseq: their order, and what they may change."""

from typing import Any, Iterator, List

import pytest

from fairseq_mega.compat.hooks import Call, run_with


def original(x: int, *, times: int = 1) -> int:
    if times < 0:
        raise ValueError("times")
    return x * times


def test_functions_run_around_fairseqs_in_their_order() -> None:
    seen: List[Any] = []

    def outer(call: Call) -> Iterator[None]:
        seen.append(("outer", dict(call.arguments)))
        call.arguments["times"] = 3
        yield
        seen.append(("outer", call.result))
        call.result += 1

    def inner(call: Call) -> Iterator[None]:
        seen.append(("inner", dict(call.arguments)))
        yield
        call.result = -call.result

    assert run_with([outer, inner], original, 2) == -5
    assert seen == [("outer", {"x": 2, "times": 1}), ("inner", {"x": 2, "times": 3}), ("outer", -6)]


def test_an_error_is_raised_at_the_yield() -> None:
    def explained(call: Call) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise OSError(f"{error} of {call.arguments['x']}") from error

    with pytest.raises(OSError, match="times of 2"):
        run_with([explained], original, x=2, times=-1)
