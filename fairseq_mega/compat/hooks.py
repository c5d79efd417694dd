"""Run functions at events of fairseq. Each event is a function of fairseq, which is wrapped once.

A function at an event is a generator with one ``yield``, where fairseq's function runs::

    def name_precision(call):
        common = call.arguments["cfg"].common  # the arguments by name; a changed entry reaches fairseq
        yield
        call.result["bf16"] = common.bf16  # the result, which may also be replaced

The code before the ``yield`` runs in the order of the functions, the code after it in the opposite order. An error of
fairseq's function is raised at the ``yield``. Before the ``yield`` a function may replace ``call.function``, which is
called there.
"""

import argparse
import contextlib
import functools
import inspect
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from .patching import around

EVENTS = {  # name -> module and function
    "parse": ("fairseq.options", "parse_args_and_arch"),
    "build": ("fairseq.trainer", "Trainer.__init__"),
    "lines": ("fairseq.tasks.fairseq_task", "FairseqTask.get_interactive_tokens_and_lengths"),
    "sentence": ("fairseq.hub_utils", "GeneratorHubInterface.tokenize"),
    "run": ("fairseq.distributed.utils", "call_main"),
    "restore": ("fairseq.checkpoint_utils", "load_checkpoint"),
    "read": ("fairseq.checkpoint_utils", "load_checkpoint_to_cpu"),
    "load": ("fairseq.trainer", "Trainer.load_checkpoint"),
    "write": ("fairseq.trainer", "Trainer.save_checkpoint"),
    "state": ("fairseq.trainer", "Trainer.state_dict"),
    "batches": ("fairseq.trainer", "Trainer.get_train_iterator"),
    "infer": ("fairseq.models", "BaseFairseqModel.prepare_for_inference_"),
}


class Call:
    """A call of fairseq's ``function``: ``arguments`` by name, and ``result``, None before the function has run."""

    def __init__(self, function: Callable, arguments: Dict[str, Any]) -> None:
        self.function, self.arguments = function, arguments
        self.result: Any = None


Function = Callable[[Call], Iterator[None]]
_functions: Dict[str, List[Function]] = {event: [] for event in EVENTS}


def at(event: str, *functions: Function) -> None:
    """Append functions to an event, a key of :data:`EVENTS`."""
    _functions[event] += functions


def run_with(functions: Iterable[Function], original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call ``original`` within functions of an event, and return the result."""
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    call = Call(original, bound.arguments)
    with contextlib.ExitStack() as stack:
        for function in functions:
            stack.enter_context(contextlib.contextmanager(function)(call))
        call.result = call.function(*bound.args, **bound.kwargs)
    return call.result


def _run(event: str, original: Callable, *args: Any, **kwargs: Any) -> Any:
    return run_with(_functions[event], original, *args, **kwargs)


for _event, _place in EVENTS.items():
    around(*_place)(functools.partial(_run, _event))


def parsed(call: Call) -> argparse.Namespace:
    """Return the options that a call of "parse" has read."""
    options: argparse.Namespace = call.result[0] if isinstance(call.result, tuple) else call.result
    return options


def words(call: Call) -> Sequence[str]:
    """Return the words of the command line that a call of "parse" reads."""
    given: Optional[Sequence[str]] = call.arguments["input_args"]
    return sys.argv[1:] if given is None else given
