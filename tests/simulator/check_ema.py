"""A fast check of the EMA's CUDA kernels in the simulator, against sums written out in float64.

    python check_ema.py LIBRARY ORDER...

runs every case under the schedules ORDER (see cuda_sim.h); prints what is wrong and then exits with 1. Under another
schedule than the first the results must be the same to the last bit. Imports nothing of the package, so that
it starts quickly and also under AddressSanitizer.
"""

import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

TOLERANCE = 1e-5  # of a tensor's largest value; float32 rounding stays below a tenth of it


class Case(NamedTuple):
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
    dtype: torch.dtype = torch.float32


CASES = (
    Case(1, 1, 1, 1, complex=True, state=True),
    Case(2, 16, 2, 2, state=True, masks=True),
    Case(2, 37, 33, 17, bidirectional=True, shift=True, masks=True),
    Case(1, 64, 2, 3, state=True),  # a tile that is full but shorter than the largest
    Case(1, 300, 2, 3, state=True, slow=True),  # few channels: several blocks share a sequence
    Case(2, 273, 2, 5, complex=True, state=True, masks=True),
    Case(4, 300, 2, 3, slow=True),  # one block walks over several tiles
    Case(4, 257, 1, 9, complex=True, state=True),
    Case(1, 270, 2, 3, bidirectional=True, slow=True),
    Case(1, 150, 2, 3, complex=True, bidirectional=True, shift=True, truncation=21, masks=True),
    Case(3, 70, 2, 3, complex=True, bidirectional=True, shift=True, truncation=7, masks=True),  # borders of documents
    Case(4, 193, 1, 5, truncation=35, masks=True, slow=True),
    Case(4, 300, 1, 5, truncation=140, slow=True),
    Case(1, 140, 1, 5, truncation=1, bidirectional=True),
    Case(1, 150, 1, 12, complex=True, bidirectional=True, truncation=21),  # the most shared memory: 112 KiB
    # Many sequences: one block walks twice over several tiles, the other way round first.
    Case(8, 300, 2, 9, bidirectional=True, slow=True),
    Case(8, 261, 1, 3, complex=True, bidirectional=True, shift=True, truncation=140, masks=True),
    Case(4, 257, 33, 2, bidirectional=True, masks=True, dtype=torch.bfloat16),
    Case(8, 129, 1, 19, complex=True, bidirectional=True, masks=True),  # carried states do not fit in shared memory
    Case(1, 1290, 1, 2, bidirectional=True, slow=True),  # more segments than are read ahead
    Case(1, 20, 1, 35, state=True),  # carried states do not fit in shared memory
    Case(2, 50, 3, 2, masks=True, state=True, dtype=torch.bfloat16),
    Case(1, 50, 3, 2, bidirectional=True, dtype=torch.float16),
)


def draw(case: Case) -> Dict[str, Any]:
    """Random inputs of the operators."""
    generator = torch.Generator().manual_seed(5)
    rows = 2 * case.width if case.bidirectional else case.width
    parts = (2,) if case.complex else ()

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    log_decay = -torch.rand(rows, case.n, generator=generator) * (0.003 if case.slow else 0.5)
    if case.complex:
        log_decay = torch.stack([log_decay, normal(rows, case.n)], -1)
    x, grad_y = (normal(case.batch, case.length, case.width).to(case.dtype) for _ in range(2))
    padding = reset = None
    if case.masks:
        share = 0.03 + 1 / case.length
        padding, reset = (torch.rand(case.batch, case.length, generator=generator) < share for _ in range(2))
        padding[0, 0], reset[0, 0] = True, case.batch > 1
        reset[-1, : case.length // 2] = False  # one long document
    return {
        "x": x,
        "grad_y": grad_y,
        "log_decay": log_decay,
        "padding": padding,
        "reset": reset,
        "expansion": normal(rows, case.n),
        "projection": normal(rows, case.n, *parts),
        "state": normal(case.batch, case.width, case.n, *parts) if case.state else None,
        "grad_state": normal(case.batch, case.width, case.n, *parts) if case.state else None,
    }


def run_kernels(case: Case, given: Dict[str, Any]) -> Dict[str, Tensor]:
    """The operators' results by name."""
    ops = torch.ops.fairseq_mega_sim
    shared = [given[name] for name in ("x", "log_decay", "expansion", "projection", "state", "padding", "reset")]
    options = (case.bidirectional, case.shift, case.truncation)
    y, final_state = ops.ema_scan(*shared, *options)
    grad_x, moments, moments_state = ops.ema_scan_backward(given["grad_y"], given["grad_state"], *shared, *options)
    found = {"y": y, "final state": final_state, "gradient of x": grad_x}
    for name, sums in (("moments", moments), ("moments of the state", moments_state)):
        found.update({f"{name} {i}": part for i, part in enumerate(sums) if sums.numel() > 0})
    if not case.bidirectional:
        omega = torch.linspace(-1, 1, case.width)
        coefficients = (given["log_decay"], given["expansion"], given["projection"])
        found["step"], found["step's state"] = ops.ema_step(given["x"][:, 0], *coefficients, omega, given["state"])
    return {name: tensor for name, tensor in found.items() if tensor.numel() > 0}


def run_sums(case: Case, given: Dict[str, Any]) -> Dict[str, Tensor]:
    """The same from the definition, in float64."""

    def exact(name: str) -> Tensor:
        tensor = given[name].double()
        return torch.view_as_complex(tensor) if case.complex else tensor.to(torch.complex128)

    length, width, rows = case.length, case.width, given["expansion"].size(0)
    real_log = given["log_decay"].double()
    log_q = torch.view_as_complex(real_log) if case.complex else real_log.to(torch.complex128)
    q, p, g = log_q.exp(), given["expansion"].double().to(torch.complex128), exact("projection")
    x, grad_y = given["x"].double(), given["grad_y"].double()
    if given["padding"] is not None:
        x = x.masked_fill(given["padding"].unsqueeze(-1), 0.0)
    reset = given["reset"] if given["reset"] is not None else torch.zeros(case.batch, length, dtype=torch.bool)
    document = reset.cumsum(1)
    same = document.unsqueeze(2) == document.unsqueeze(1)  # (B, t, s)
    behind = torch.arange(length).unsqueeze(1) - torch.arange(length)
    y = torch.zeros(case.batch, length, width, dtype=torch.complex128)
    grad_x = torch.zeros_like(y)
    moments = torch.zeros(4, case.batch, rows, case.n, dtype=torch.complex128)
    found: Dict[str, Tensor] = {}
    for future in range(2 if case.bidirectional else 1):
        some = slice(future * width, (future + 1) * width)
        lag = -behind - int(case.shift) if future else behind
        reach = (lag >= 0) & (lag < (case.truncation or length + 1))
        weight = (same & reach).to(torch.complex128)
        lag = lag.clamp(min=0)
        power = torch.exp(log_q[some].unsqueeze(-1).unsqueeze(-1) * lag)  # (D, N, t, s)
        slope = lag * torch.exp(log_q[some].unsqueeze(-1).unsqueeze(-1) * (lag - 1))
        c = p[some] * g[some]
        y += torch.einsum("dnts,dn,bts,bsd->btd", power, c, weight, x.to(c.dtype))
        v = torch.einsum("bts,btd,dnts->bsdn", weight, grad_y.to(c.dtype), power)
        z = torch.einsum("bts,btd,dnts->bsdn", weight, grad_y.to(c.dtype), slope)
        grad_x += torch.einsum("bsdn,dn->bsd", v, c)
        moments[0, :, some] = torch.einsum("bsdn,bsd->bdn", v, x.to(c.dtype))
        moments[1, :, some] = torch.einsum("bsdn,bsd->bdn", z, x.to(c.dtype))
        if not case.bidirectional:
            moments[2, ~reset[:, 0]], moments[3, ~reset[:, 0]] = v[~reset[:, 0], 0], z[~reset[:, 0], 0]
    steps = torch.arange(length)
    if not case.bidirectional:
        to_end = torch.exp(log_q.unsqueeze(-1) * (length - 1 - steps))  # (D, N, s)
        last = same[:, -1].to(torch.complex128)
        final = torch.einsum("bs,dns,bsd->bdn", last, to_end, x.to(torch.complex128)) * p
        alive = document == 0
        if case.state:
            h, late = exact("state"), exact("grad_state").conj()
            y += torch.einsum("bt,dnt,dn,bdn->btd", alive.to(p.dtype), q.unsqueeze(-1) * to_end.flip(-1), g, h)
            final = final + torch.exp(log_q * length) * h * alive[:, -1, None, None]
            r = torch.einsum("bs,dns,bdn->bsdn", last, to_end, late)
            by_q = torch.exp(log_q.unsqueeze(-1) * (length - 2 - steps)) * (length - 1 - steps)
            dr = torch.einsum("bs,dns,bdn->bsdn", last, by_q, late)
            grad_x += torch.einsum("bsdn,dn->bsd", r, p)
            kept = (~reset[:, 0]).to(p.dtype)[:, None, None]
            sums = (torch.einsum("bsdn,bsd->bdn", part, x.to(p.dtype)) for part in (r, dr))
            for i, part in enumerate((*sums, r[:, 0] * kept, dr[:, 0] * kept)):
                found[f"moments of the state {i}"] = part
        if case.truncation == 0:
            found["final state"] = final
        h = exact("state") if case.state else torch.zeros_like(final)
        raw = given["x"][:, 0].double()
        after = q * h + p * raw.unsqueeze(-1)
        step = (g * after).sum(-1).real + torch.linspace(-1, 1, width).double() * raw
        found["step"], found["step's state"] = step * torch.sigmoid(step), after
    if given["padding"] is not None:
        grad_x = grad_x.masked_fill(given["padding"].unsqueeze(-1), 0.0)
    found.update({f"moments {i}": part for i, part in enumerate(moments)})
    return {**found, "y": y.real, "gradient of x": grad_x.real}


def compare(case: Case, found: Dict[str, Tensor], wanted: Dict[str, Tensor]) -> List[str]:
    """What differs, in words."""
    wrong = []
    for name, want in wanted.items():
        got = found[name].double()
        if want.is_complex():
            want = torch.view_as_real(want) if case.complex else want.real
        tolerance = 0.02 if found[name].dtype != torch.float32 else TOLERANCE
        error = (got - want).abs().max().item()
        if not error <= tolerance * max(want.abs().max().item(), 1.0):  # a NaN is wrong too
            wrong.append(f"{name}: error {error:.2g}")
    return [f"{case}: {', '.join(wrong)}"] if wrong else []


def failures(orders: List[str]) -> List[str]:
    """Run all cases on the library that is loaded; returns what is wrong."""
    torch.use_deterministic_algorithms(True)  # fills memory that the operators allocate with NaN
    wrong: List[str] = []
    for case in CASES:
        given = draw(case)
        wanted = run_sums(case, given)
        first: Optional[Dict[str, Tensor]] = None
        for order in orders:
            os.environ["FM_SIM_ORDER"] = order
            found = run_kernels(case, given)
            if first is None:
                wrong += compare(case, found, wanted)
                first = found
            for name, tensor in found.items():
                if not torch.equal(tensor, first[name]) and not wrong:
                    wrong.append(f"{case}, schedule {order}: {name} differs from schedule {orders[0]}")
        if wrong:
            break
    os.environ.pop("FM_SIM_ORDER", None)
    torch.use_deterministic_algorithms(False)
    return wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.ops.load_library(sys.argv[1])
    problems = failures(sys.argv[2:] or ["0"])
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
