"""Option --compile: torch.compile of a model's layers, in trainings and in commands that generate and score.

fairseq's configurations have no field for this option. It is a variable of the environment, which reaches the processes
that a training starts, and also fairseq-hydra-train, whose parser is not fairseq's.
"""

import os
import typing

from fairseq_mega.compat import hooks

from .sharding import layers_of

VARIABLE = "FAIRSEQ_MEGA_COMPILE"
HELP = "compile the layers by torch.compile: tens of seconds for each graph, and slower on a CPU"


def parse_compile(call: hooks.Call) -> typing.Iterator[None]:
    """Add --compile to fairseq's commands (event "parse")."""
    parser = call.arguments["parser"]
    if "--compile" not in parser._option_string_actions:
        parser.add_argument("--compile", action="store_true", help=HELP)
    yield
    if getattr(hooks.parsed(call), "compile", False):
        os.environ[VARIABLE] = "1"


def compile_layers(call: hooks.Call) -> typing.Iterator[None]:
    """Compile the layers of a model at their first call (event "model"); names of parameters stay the same."""
    yield
    if os.environ.get(VARIABLE) == "1":
        for layer in layers_of(call.result):
            layer.compile(dynamic=True)  # one graph for batches of many lengths
            if hasattr(layer.forward, "single_step"):
                leave_out_steps(layer)


def leave_out_steps(layer: typing.Any) -> None:
    """Call a compiled layer as it was for single steps of decoding, whose functions are fast and break the graph."""
    compiled = layer._compiled_call_impl

    def run(x: typing.Any, *rest: typing.Any, **named: typing.Any) -> typing.Any:
        is_step = x.size(1) == 1 and not layer.training
        return (layer._call_impl if is_step else compiled)(x, *rest, **named)

    run.leaves_out_steps = True  # type: ignore[attr-defined]  # for graphs of decoding
    layer._compiled_call_impl = run
