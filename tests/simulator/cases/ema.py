"""Cases of the EMA: its scan and a single step."""

import functools
from typing import Any, Dict, Iterator, NamedTuple

import torch
from torch import Tensor

from tests.simulator.cases.case import Case, Results, exact, ops, with_gradients
from tests.support.dropping import kept


class Call(NamedTuple):
    """One call of the operators; see csrc/ema/ema_scan.h."""

    batch: int
    length: int
    width: int
    n: int
    complex: bool = False
    state: bool = False
    bidirectional: bool = False
    shift: bool = False
    truncation: int = 0
    masks: bool = False
    slow: bool = False  # decays close to one, so that an error in a carried state cannot fade
    gate: str = ""  # what follows: "skip" without a SiLU, "silu" with it, or "dropout" after that
    dtype: torch.dtype = torch.float32


def ema_by_definition(call: Call, given: Dict[str, Any]) -> Results:
    """The operators' results by name, in float64."""
    learned = ("x", "log_decay", "expansion", "projection", "state", "omega")
    leaves = exact({name: given[name] for name in learned if given[name] is not None})

    def number(name: str) -> Tensor:
        return torch.view_as_complex(leaves[name]) if call.complex else leaves[name].to(torch.complex128)

    length, width = call.length, call.width
    log_q, p, g, x = number("log_decay"), leaves["expansion"].to(torch.complex128), number("projection"), leaves["x"]
    if given["padding"] is not None:
        x = x.masked_fill(given["padding"].unsqueeze(-1), 0.0)
    reset = given["reset"] if given["reset"] is not None else torch.zeros(call.batch, length, dtype=torch.bool)
    document = reset.cumsum(1)
    same = document.unsqueeze(2) == document.unsqueeze(1)  # (B, t, s)
    behind = torch.arange(length).unsqueeze(1) - torch.arange(length)
    y = torch.zeros(call.batch, length, width, dtype=torch.complex128)
    made: Results = {}
    for future in range(2 if call.bidirectional else 1):
        some = slice(future * width, (future + 1) * width)
        lag = -behind - int(call.shift) if future else behind
        reach = (lag >= 0) & (lag < (call.truncation or length + 1))
        weight = (same & reach).to(torch.complex128)
        power = torch.exp(log_q[some].unsqueeze(-1).unsqueeze(-1) * lag.clamp(min=0))  # (D, N, t, s)
        y = y + torch.einsum("dnts,dn,bts,bsd->btd", power, p[some] * g[some], weight, x.to(p.dtype))
    steps = torch.arange(length)
    if not call.bidirectional and call.truncation == 0:
        to_end = torch.exp(log_q.unsqueeze(-1) * (length - 1 - steps))  # (D, N, s)
        last = same[:, -1].to(torch.complex128)
        final = torch.einsum("bs,dns,bsd->bdn", last, to_end, x.to(p.dtype)) * p
        if call.state:
            h, alive = number("state"), document == 0
            after = torch.exp(log_q.unsqueeze(-1) * (steps + 1))
            y = y + torch.einsum("bt,dnt,dn,bdn->btd", alive.to(p.dtype), after, g, h)
            final = final + torch.exp(log_q * length) * h * alive[:, -1, None, None]
        made["final state"] = as_stored(call, final)
    made["y"] = y.real
    if call.gate:
        made["y"] = made["y"] + leaves["omega"] * leaves["x"]
    if call.gate in ("silu", "dropout"):
        made["y"] = torch.nn.functional.silu(made["y"])
    if call.gate == "dropout":
        made["y"] = made["y"] * kept(SEED, made["y"].shape, DROPPED) / (1 - DROPPED)
    grads = {"y": given["grad_y"]}
    if call.state:
        grads["final state"] = given["grad_state"]
    found = with_gradients(made, grads, leaves)
    if not call.bidirectional:
        h, raw = number("state") if call.state else torch.zeros_like(g), leaves["x"][:, 0]
        after = log_q.exp() * h + p * raw.unsqueeze(-1)
        step = (g * after).sum(-1).real + torch.linspace(-1, 1, width).double() * raw
        made = {"step": step * torch.sigmoid(step), "step's state": as_stored(call, after), "step without SiLU": step}
        found.update({name: value.detach() for name, value in made.items()})
    return found


def as_stored(call: Call, value: Tensor) -> Tensor:
    """A complex tensor as the kernels have it: real and imaginary parts side by side, or the real part alone."""
    if not value.is_complex():
        return value
    return torch.view_as_real(value) if call.complex else value.real


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
    Call(1, 150, 1, 12, complex=True, bidirectional=True, truncation=21),
    # Many sequences: one block walks twice over several tiles, the other way round first.
    Call(8, 300, 2, 9, bidirectional=True, slow=True),
    Call(8, 261, 1, 3, complex=True, bidirectional=True, shift=True, truncation=140, masks=True),
    Call(4, 257, 33, 2, bidirectional=True, masks=True, dtype=torch.bfloat16),
    Call(8, 129, 1, 19, complex=True, bidirectional=True, masks=True),  # what is kept does not fit in shared memory
    Call(2, 280, 2, 5, bidirectional=True, shift=True),  # whole pieces in both orders
    Call(1, 1290, 1, 2, bidirectional=True, slow=True),  # more segments than are read ahead
    Call(1, 20, 1, 35, complex=True, state=True),  # nor here
    Call(2, 50, 3, 2, masks=True, state=True, dtype=torch.bfloat16),
    Call(1, 50, 3, 2, bidirectional=True, dtype=torch.float16),
    # What follows the scan: in one segment and in several, over several tiles, with padding, in both directions.
    Call(8, 300, 33, 3, gate="dropout"),
    Call(1, 300, 2, 3, state=True, gate="dropout", slow=True),
    Call(4, 193, 2, 5, truncation=35, masks=True, gate="dropout"),
    Call(8, 261, 3, 3, complex=True, bidirectional=True, shift=True, masks=True, gate="skip"),
    Call(1, 270, 2, 3, bidirectional=True, masks=True, gate="dropout"),
    Call(3, 70, 2, 3, bidirectional=True, shift=True, truncation=7, masks=True, gate="silu"),
    Call(2, 273, 2, 5, complex=True, state=True, gate="skip"),
    Call(2, 150, 40, 2, masks=True, gate="skip", dtype=torch.bfloat16),
)
DROPPED, SEED = 0.3, torch.tensor(9)


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
        "omega": normal(call.width) if call.gate else None,
        "grad_state": normal(call.batch, call.width, call.n, *parts) if call.state else None,
    }


def run_kernels(call: Call, given: Dict[str, Any]) -> Results:
    """The operators' results by name."""
    shared = [given[name] for name in ("x", "log_decay", "expansion", "projection", "state", "padding", "reset")]
    seed = SEED if call.gate == "dropout" else None
    activated = call.gate in ("silu", "dropout")
    gate = (given["omega"], seed, DROPPED if call.gate == "dropout" else 0.0, activated, True)
    options = (*gate, call.bidirectional, call.shift, call.truncation)
    y, final_state, argument = ops().ema_scan(*shared, *options)
    assert argument.numel() == (y.numel() if activated else 0)
    found = {"y": y, "final state": final_state}
    names = ("x", "log_decay", "expansion", "projection", "state", "omega")
    gradients = ops().ema_scan_gradients(given["grad_y"], given["grad_state"], argument, *shared, *options)
    found.update({f"gradient of {name}": value for name, value in zip(names, gradients)})
    if not call.bidirectional:
        omega = torch.linspace(-1, 1, call.width)
        coefficients = (given["log_decay"], given["expansion"], given["projection"])
        step = (given["x"][:, 0], *coefficients, omega, given["state"])
        found["step"], found["step's state"] = ops().ema_step(*step, True)
        found["step without SiLU"], _ = ops().ema_step(*step, False)
    return {name: tensor for name, tensor in found.items() if tensor.numel() > 0}


def cases() -> Iterator[Case]:
    for call in CALLS:
        given = draw(call)
        yield Case(f"EMA {call}", functools.partial(run_kernels, call, given), ema_by_definition(call, given))
