"""Results that an operator can compute again from its inputs, and that the backward pass therefore need not keep."""

from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor


def inputs_of(node: Any) -> Tuple[Any, ...]:
    """Return the inputs that a node has saved. Activation checkpointing unpacks them only once, so the node keeps them.

    Raise RuntimeError if an input was modified since, as PyTorch does for its own saved tensors.
    """
    if node.inputs is None:
        node.inputs = (*node.saved_tensors, *node.options)
        node.versions = _versions(node.inputs)
    elif node.versions != _versions(node.inputs):
        raise RuntimeError("a tensor needed for the gradients has been modified by an inplace operation")
    return node.inputs


def _versions(inputs: Tuple[Any, ...]) -> List[int]:
    return [value._version for value in inputs if isinstance(value, Tensor)]


def _same_numbers(a: Tensor, b: Tensor) -> bool:
    """Return whether two contiguous tensors share one memory, by their storages: fake tensors have no addresses."""
    same = a.untyped_storage()._cdata == b.untyped_storage()._cdata and a.storage_offset() == b.storage_offset()
    return same and a.numel() == b.numel() and a.dtype == b.dtype


class _Again:
    """One output of an operator, with the node that stores the operator's inputs."""

    def __init__(self, output: Tensor) -> None:
        self.node: Any = output.grad_fn
        self.index, self.size, self.stride = output.output_nr, output.size(), output.stride()

    def view(self, size: Any, stride: Any) -> "_Again":
        self.size, self.stride = size, stride
        return self

    def compute(self) -> Tensor:
        with torch.no_grad():
            outputs = self.node.operator(*inputs_of(self.node))
        return (outputs if isinstance(outputs, Tensor) else outputs[self.index]).as_strided(self.size, self.stride)


def _hooks() -> Optional[Tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]]:
    """Return the innermost hooks that pack and unpack saved tensors, the only ones that PyTorch calls.

    None without hooks, or if PyTorch is too old to report them. The result itself must not be saved: its node and the
    result would refer to each other, and a graph that is never run backward would never be freed.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)


def recomputing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function whose backward pass computes cheap arguments again in place of saving them.

    Cheap arguments are results of operators that :func:`keep_operator` registers. On a CPU, an operator computes its
    result again from the inputs that its own backward pass needs in any case; on a GPU, where another launch can cost
    more than the memory, the result is saved. All other saved tensors go through the hooks around
    the call, for instance activation checkpointing's.

    Args:
        function: its backward pass requires some of the arguments.
        arguments: of any kind; results of registered operators must be contiguous.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return function(*arguments)
    made = [a for a in arguments if isinstance(a, Tensor) and hasattr(a.grad_fn, "operator") and a.numel() > 0]
    made = [a for a in made if a._version == 0]  # else the tensor was written to
    if not made:
        return function(*arguments)
    outer_pack, outer_unpack = _hooks() or (torch.Tensor.detach, lambda kept: kept)

    def pack(kept: Tensor) -> Any:
        for output in made:
            if _same_numbers(kept, output):
                return _Again(output).view(kept.size(), kept.stride())
        return outer_pack(kept)

    def unpack(kept: Any) -> Tensor:
        return kept.compute() if isinstance(kept, _Again) else outer_unpack(kept)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return function(*arguments)
    finally:
        made.clear()  # the graph keeps the hooks, and all that they refer to


def keep_operator(operator: Any) -> Callable[[Any, Tuple[Any, ...], Any], None]:
    """Return a ``setup_context`` that saves an operator and its inputs for :func:`recomputing`."""

    def keep(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        ctx.inputs = None
        if not inputs[0].is_cuda:
            ctx.operator = operator
        ctx.options = tuple(value for value in inputs if isinstance(value, (int, float)))  # they come last
        ctx.save_for_backward(*inputs[: len(inputs) - len(ctx.options)])

    return keep
