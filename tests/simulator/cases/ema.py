"""Cases of the EMA: its scan and a single step."""

import functools
from typing import Any, Dict, Iterator

import torch
from torch import Tensor

from tests.simulator.cases.case import Case, Results, ops
from tests.simulator.cases.ema_definition import Call, ema_by_definition

CALLS = (
    Call(1, 1, 1, 1, complex=True, state=True),
    Call(2, 16, 2, 2, state=True, masks=True),
    Call(2, 37, 33, 17, bidirectional=True, shift=True, masks=True),
    Call(1, 64, 2, 3, state=True),  # a tile that is full but shorter than the largest
    Call(1, 300, 2, 3, state=True, slow=True),  # few channels: several blocks share a sequence
    Call(2, 273, 2, 5, complex=True, state=True, masks=True),
    Call(4, 300, 2, 3, slow=True),  # one block walks over several tiles
    Call(4, 257, 1, 9, complex=True, state=True),
    Call(1, 270, 2, 3, bidirectional=True, slow=True),
    Call(1, 150, 2, 3, complex=True, bidirectional=True, shift=True, truncation=21, masks=True),
    Call(3, 70, 2, 3, complex=True, bidirectional=True, shift=True, truncation=7, masks=True),  # borders of documents
    Call(4, 193, 1, 5, truncation=35, masks=True, slow=True),
    Call(4, 300, 1, 5, truncation=140, slow=True),
    Call(1, 140, 1, 5, truncation=1, bidirectional=True),
    Call(1, 150, 1, 12, complex=True, bidirectional=True, truncation=21),  # the most shared memory: 112 KiB
    # Many sequences: one block walks twice over several tiles, the other way round first.
    Call(8, 300, 2, 9, bidirectional=True, slow=True),
    Call(8, 261, 1, 3, complex=True, bidirectional=True, shift=True, truncation=140, masks=True),
    Call(4, 257, 33, 2, bidirectional=True, masks=True, dtype=torch.bfloat16),
    Call(8, 129, 1, 19, complex=True, bidirectional=True, masks=True),  # carried states do not fit in shared memory
    Call(1, 1290, 1, 2, bidirectional=True, slow=True),  # more segments than are read ahead
    Call(1, 20, 1, 35, state=True),  # carried states do not fit in shared memory
    Call(2, 50, 3, 2, masks=True, state=True, dtype=torch.bfloat16),
    Call(1, 50, 3, 2, bidirectional=True, dtype=torch.float16),
)


def draw(call: Call) -> Dict[str, Any]:
    """Random inputs of the operators."""
    generator = torch.Generator().manual_seed(5)
    rows = 2 * call.width if call.bidirectional else call.width
    parts = (2,) if call.complex else ()

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    log_decay = -torch.rand(rows, call.n, generator=generator) * (0.003 if call.slow else 0.5)
    if call.complex:
        log_decay = torch.stack([log_decay, normal(rows, call.n)], -1)
    x, grad_y = (normal(call.batch, call.length, call.width).to(call.dtype) for _ in range(2))
    padding = reset = None
    if call.masks:
        share = 0.03 + 1 / call.length
        padding, reset = (torch.rand(call.batch, call.length, generator=generator) < share for _ in range(2))
        padding[0, 0], reset[0, 0] = True, call.batch > 1
        reset[-1, : call.length // 2] = False  # one long document
    return {
        "x": x,
        "grad_y": grad_y,
        "log_decay": log_decay,
        "padding": padding,
        "reset": reset,
        "expansion": normal(rows, call.n),
        "projection": normal(rows, call.n, *parts),
        "state": normal(call.batch, call.width, call.n, *parts) if call.state else None,
        "grad_state": normal(call.batch, call.width, call.n, *parts) if call.state else None,
    }


def run_kernels(call: Call, given: Dict[str, Any]) -> Results:
    """The operators' results by name."""
    shared = [given[name] for name in ("x", "log_decay", "expansion", "projection", "state", "padding", "reset")]
    options = (call.bidirectional, call.shift, call.truncation)
    y, final_state = ops().ema_scan(*shared, *options)
    grad_x, moments, moments_state = ops().ema_scan_backward(given["grad_y"], given["grad_state"], *shared, *options)
    found = {"y": y, "final state": final_state, "gradient of x": grad_x}
    for name, sums in (("moments", moments), ("moments of the state", moments_state)):
        found.update({f"{name} {i}": part for i, part in enumerate(sums) if sums.numel() > 0})
    if not call.bidirectional:
        omega = torch.linspace(-1, 1, call.width)
        coefficients = (given["log_decay"], given["expansion"], given["projection"])
        found["step"], found["step's state"] = ops().ema_step(given["x"][:, 0], *coefficients, omega, given["state"])
    return {name: tensor for name, tensor in found.items() if tensor.numel() > 0}


def cases() -> Iterator[Case]:
    for call in CALLS:
        given = draw(call)
        yield Case(f"EMA {call}", functools.partial(run_kernels, call, given), ema_by_definition(call, given))
