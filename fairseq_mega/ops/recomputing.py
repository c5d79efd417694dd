"""Results that are computed again in the backward pass, from the inputs that their operators keep in any case.

Such an operator (silu, query_key, row_norm, rotary_query_key) is registered with :func:`keep_operator`; its backward
pass takes what was kept from :func:`inputs_of`. :func:`recomputing` then hands its results to a function that would
keep them.
"""

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor


def keep_operator(operator: Any) -> Callable[[Any, Tuple[Any, ...], Any], None]:
    """What keeps an operator and its inputs, so that :func:`recomputing` can call it again."""

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        ctx.operator, ctx.inputs = operator, None
        ctx.options = tuple(value for value in inputs if isinstance(value, (int, float)))  # they come last
        ctx.save_for_backward(*inputs[: len(inputs) - len(ctx.options)])

    return keep


def inputs_of(node: Any) -> Tuple[Any, ...]:
    """The inputs a node has kept; torch's recomputation of layers gives them once only, so that they are noted.

    Raises RuntimeError where one has been written to since, as PyTorch does for what it keeps itself.
    """
    if node.inputs is None:
        node.inputs = (*node.saved_tensors, *node.options)
        node.versions = _versions(node.inputs)
    elif node.versions != _versions(node.inputs):
        raise RuntimeError("a tensor needed for the gradients has been modified by an inplace operation")
    return node.inputs


def _versions(inputs: Tuple[Any, ...]) -> List[int]:
    return [value._version for value in inputs if isinstance(value, Tensor)]


class _Again:
    """One output of an operator, by the node that knows its inputs."""

    def __init__(self, output: Tensor) -> None:
        self.node: Any = output.grad_fn
        self.index, self.size, self.stride = output.output_nr, output.size(), output.stride()

    def view(self, size: Any, stride: Any) -> "_Again":
        self.size, self.stride = size, stride
        return self

    def compute(self) -> Tensor:
        with torch.no_grad():
            outputs = self.node.operator(*inputs_of(self.node))
        output = outputs if isinstance(outputs, Tensor) else outputs[self.index]
        return output.as_strided(self.size, self.stride)


def _hooks() -> Optional[Tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]]:
    """What packs and unpacks the tensors that are kept now: the innermost hooks alone are called by PyTorch.

    None where there are none, or PyTorch is too old to tell. A result must not be kept as it is: its node would keep
    the result, which keeps the node, and a graph that is never run backward would never be freed.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)


def recomputing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; what it keeps of its arguments is, where an operator made them that is cheap, how.

    The backward pass of the function then computes them again, from what their own backward pass needs in any case.
    Whatever else it keeps goes through the hooks around the call, such as those of activation checkpointing.

    Args:
        function: whose backward pass needs some of the arguments.
        arguments: of any kind; results of such operators have to be contiguous, as they are.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return function(*arguments)
    made = [a for a in arguments if isinstance(a, Tensor) and hasattr(a.grad_fn, "operator") and a.numel() > 0]
    made = [a for a in made if a._version == 0]  # else somebody has written to it
    if not made:
        return function(*arguments)
    outer_pack, outer_unpack = _hooks() or (torch.Tensor.detach, lambda kept: kept)

    def pack(kept: Tensor) -> Any:
        for output in made:
            if kept.data_ptr() == output.data_ptr() and kept.numel() == output.numel() and kept.dtype == output.dtype:
                return _Again(output).view(kept.size(), kept.stride())
        return outer_pack(kept)

    def unpack(kept: Any) -> Tensor:
        return kept.compute() if isinstance(kept, _Again) else outer_unpack(kept)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return function(*arguments)
    finally:
        made.clear()  # the graph keeps the hooks, and with them what they refer to
