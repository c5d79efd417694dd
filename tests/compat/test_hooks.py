"""Functions at events of fairseq: their order, what they may change, and one wrap for each event."""

import importlib
from typing import Any, Iterator, List

import pytest

import fairseq_mega  # noqa: F401  # adds the functions
from fairseq_mega.compat import hooks
from fairseq_mega.compat.hooks import Call, run_with
from fairseq_mega.compat.patching import WRAPPERS


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


@pytest.mark.parametrize("event", hooks.EVENTS)
def test_an_event_is_a_function_of_fairseq_wrapped_once(event: str) -> None:
    module, name = hooks.EVENTS[event]
    owner: Any = importlib.import_module(module)
    *outer, name = name.split(".")
    function = getattr(getattr(owner, outer[0]) if outer else owner, name)
    functions = list(hooks._functions[event])
    hooks.at(event, *functions)  # again, as by a second import of the plugin
    assert functions and hooks._functions[event] == functions
    assert getattr(function, WRAPPERS).count(f"at_{event}") == 1
