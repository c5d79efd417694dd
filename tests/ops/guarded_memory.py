"""Run every compiled CPU operator on tensors beside memory that may not be touched: ``python -m`` this module.

The process dies (SIGSEGV) where an operator reads or writes beyond a tensor: ``after`` its last element, or ``before``
its first one.
"""

import ctypes
import mmap
import sys
from typing import Any, Set, Tuple

import torch
from torch import Tensor

from tests.ops.calls import Arguments, Watch, each, run_all, tensors_of

SIDES = ("after", "before")
GPU_ONLY = {
    *("ema_coefficients", "ema_coefficients_backward", "ema_scan_gradients"),
    *("gated_residual_norm", "gated_residual_norm_backward", "join_parts"),
    *("ring_convolution", "ring_convolution_backward"),
    *("triton_attention", "triton_attention_backward"),
}


def fenced(tensor: Tensor, side: str) -> Tensor:
    """A copy of a tensor, of the same strides, that ends (or begins) where the memory does."""
    strides = zip(tensor.shape, tensor.stride())
    extent = 1 + sum((size - 1) * stride for size, stride in strides) if tensor.numel() else 0
    if extent == 0:
        return tensor
    room = -(-extent * tensor.element_size() // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (address, address + mmap.PAGESIZE + room):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0) == 0
    begin = mmap.PAGESIZE + (room - extent * tensor.element_size() if side == "after" else 0)
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=extent, offset=begin)
    copy.copy_(tensor.as_strided((extent,), (1,)))
    return copy.as_strided(tensor.shape, tensor.stride())


class FencedInputs(Watch):
    """Give fenced copies to the operators; what they write in place is copied back.

    Args:
        side: of a tensor, where the memory ends.
    """

    def __init__(self, side: str) -> None:
        super().__init__()
        self.side = side
        self.called: Set[str] = set()

    def call(self, operator: Any, arguments: Arguments) -> Any:
        copies = {name: each(lambda tensor: fenced(tensor, self.side), value) for name, value in arguments.items()}
        self.called.add(operator._schema.name.split("::")[1])
        out = operator(**copies)
        for argument in operator._schema.arguments:
            if (
                argument.alias_info is not None
                and argument.alias_info.is_write
                and arguments[argument.name] is not None
            ):
                for tensor, copy in zip(tensors_of(arguments[argument.name]), tensors_of(copies[argument.name])):
                    tensor.copy_(copy)
        return out


def main(arguments: Tuple[str, ...]) -> None:
    """``SIDE``: run all operators. ``SIDE touch``: touch what is beyond a tensor, which has to end the process."""
    side = arguments[0]
    if arguments[1:] == ("touch",):
        tensor = fenced(torch.ones(5), side)
        ctypes.string_at(tensor.data_ptr() + (20 if side == "after" else -4), 4)
    with FencedInputs(side) as mode:
        run_all()
    print(*sorted(mode.called))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
