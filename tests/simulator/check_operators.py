"""Fast checks of the CUDA kernels other than the EMA's in the simulator, against formulas written out in float64.

    python check_operators.py OPERATOR LIBRARY ORDER...

runs every case of one operator under the schedules ORDER (see cuda_sim.h); prints what is wrong and then exits with 1.
Under another schedule than the first the results must be the same to the last bit. Imports nothing of the package, so
that it starts quickly and also under AddressSanitizer.
"""

import math
import os
import sys
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

import torch
from torch import Tensor

FLOAT, HALF = torch.float32, torch.bfloat16
TOLERANCE = {torch.float32: 2e-5, torch.float64: 2e-5, torch.bfloat16: 2e-2}  # of a tensor's largest value
Results = Dict[str, Tensor]


class Case(NamedTuple):
    """One call of an operator and of its backward."""

    title: str
    run: Callable[[], Results]
    wanted: Results


def ops() -> "torch._ops._OpNamespace":
    return torch.ops.fairseq_mega_sim


def normal(seed: int, *size: int, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(tensors: Results) -> Results:
    """The same numbers in float64, wanting gradients."""
    return {name: tensor.detach().double().requires_grad_() for name, tensor in tensors.items()}


def with_gradients(outputs: Results, grads: Results, inputs: Results) -> Results:
    """Outputs, and the gradients of inputs where those of some outputs are given."""
    some = [outputs[name] for name in grads]
    found = torch.autograd.grad(some, list(inputs.values()), [grad.double() for grad in grads.values()])
    named = {f"gradient of {name}": value for name, value in zip(inputs, found)}
    return {**{name: value.detach() for name, value in outputs.items()}, **named}


# ---- the update gate ----


def gate_cases() -> Iterator[Case]:
    for size, dtype, addend in (
        ((1, 1), FLOAT, True),
        ((3, 7), FLOAT, False),
        ((2, 600), FLOAT, True),
        ((130, 33), HALF, True),
        ((5, 64), torch.float16, False),
    ):
        wide = normal(1, size[0], 4 * size[1], dtype=dtype)  # rows lie apart
        names = ("x", "update", "candidate", "addend")[: 4 if addend else 3]
        inputs = dict(zip(names, wide.split(size[1], dim=1)))
        grad = normal(2, *size, dtype=dtype)
        leaves = exact(inputs)
        candidate = leaves["candidate"]
        if addend:
            candidate = torch.nn.functional.silu(candidate + leaves["addend"])
        gate = torch.sigmoid(leaves["update"])
        wanted = with_gradients({"y": gate * candidate + (1 - gate) * leaves["x"]}, {"y": grad}, leaves)

        def run(inputs: Results = inputs, grad: Tensor = grad) -> Results:
            given = [inputs.get(name) for name in ("x", "update", "candidate", "addend")]
            found = ops().gated_residual_backward(grad, *given)
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, (*found, found[2]))}
            return {"y": ops().gated_residual(*given), **gradients}

        yield Case(f"gate {size} {dtype} addend {addend}", run, wanted)


# ---- timestep norm ----


def norm_cases() -> Iterator[Case]:
    for batch, length, width, groups, dtype, masked in (
        (1, 1, 3, 1, FLOAT, False),
        (2, 33, 24, 2, FLOAT, True),
        (1, 70, 27, 9, FLOAT, True),
        (3, 65, 320, 1, FLOAT, False),
        (1, 1100, 2, 1, FLOAT, True),  # more tiles than a warp has lanes
        (520, 40, 2, 1, FLOAT, False),  # enough sequences: a block walks over the tiles
        (2, 67, 80, 2, HALF, True),
    ):
        inputs = {
            "x": normal(1, batch, length, width, dtype=dtype) * 1.5 + 0.5,
            "weight": normal(2, width) / 2,
            "bias": normal(3, width) / 2,
            "mean": normal(4, batch, groups),
            "variance": normal(5, batch, groups).square() + 0.2,
        }
        count = torch.arange(batch) * 5 % 11
        padding = None
        if masked:
            padding = torch.rand(batch, length, generator=torch.Generator().manual_seed(6)) < 0.3
            padding[0, 0] = True
        grads = {"y": normal(7, batch, length, width, dtype=dtype)}
        grads.update(mean=normal(8, batch, groups), variance=normal(9, batch, groups))
        leaves = exact(inputs)
        wanted = with_gradients(norm_by_definition(leaves, count, padding), grads, leaves)

        def run(
            inputs: Results = inputs,
            count: Tensor = count,
            padding: Optional[Tensor] = padding,
            grads: Results = grads,
        ) -> Results:
            x, weight, bias, mean, variance = inputs.values()
            y, last_mean, last_variance = ops().timestep_norm(x, weight, bias, count, mean, variance, padding, 1e-5)
            found = ops().timestep_norm_backward(
                grads["y"], grads["mean"], grads["variance"], x, weight, count, mean, variance, padding, 1e-5
            )
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, found)}
            return {"y": y, "mean": last_mean, "variance": last_variance, **gradients}

        yield Case(f"norm B {batch} L {length} D {width} G {groups} {dtype} masked {masked}", run, wanted)


def norm_by_definition(leaves: Results, count: Tensor, padding: Optional[Tensor]) -> Results:
    x, weight, bias, mean, variance = leaves.values()
    batch, length, width = x.shape
    outputs = []
    seen = count.double()
    for t in range(length):
        step = x[:, t].view(batch, mean.size(1), -1)
        present = torch.ones(batch, dtype=torch.bool) if padding is None else ~padding[:, t]
        share = (1 / (seen + 1)).unsqueeze(1)
        far = step.mean(-1) - mean
        new_mean = mean + far * share
        new_variance = variance + (step.var(-1, correction=0) - variance) * share + far.square() * share * (1 - share)
        y = (step - new_mean.unsqueeze(-1)) / (new_variance.unsqueeze(-1) + 1e-5).sqrt()
        outputs.append((y.reshape(batch, width) * (weight + 1) + bias) * present.unsqueeze(1))
        mean = torch.where(present.unsqueeze(1), new_mean, mean)
        variance = torch.where(present.unsqueeze(1), new_variance, variance)
        seen = seen + present
    return {"y": torch.stack(outputs, 1), "mean": mean, "variance": variance}


# ---- FFT convolution ----


def fft_cases() -> Iterator[Case]:
    for batch, length, width, columns, dtype in (
        (1, 1, 1, 32, FLOAT),
        (3, 16, 33, 32, FLOAT),  # 32 channels to a block and one left over
        (2, 100, 9, 256, FLOAT),
        (1, 11, 2, 8192, FLOAT),
        (2, 1000, 3, 2048, HALF),
        (1, 4097, 1, 16384, FLOAT),  # copied to have time as its last axis
    ):
        inputs = {
            "x": normal(1, batch, length, width, dtype=dtype),
            "ring": normal(2, width, columns) / length**0.5,
        }
        grad = normal(3, batch, length, width, dtype=dtype)
        leaves = exact(inputs)
        spectrum = torch.fft.rfft(leaves["x"].transpose(1, 2), columns) * torch.fft.rfft(leaves["ring"], columns)
        y = torch.fft.irfft(spectrum, columns)[..., :length].transpose(1, 2)
        wanted = with_gradients({"y": y}, {"y": grad}, leaves)

        def run(inputs: Results = inputs, grad: Tensor = grad) -> Results:
            found = ops().ring_convolution_backward(grad, *inputs.values())
            gradients = {f"gradient of {name}": value for name, value in zip(inputs, found)}
            return {"y": ops().ring_convolution(*inputs.values()), **gradients}

        yield Case(f"FFT B {batch} L {length} D {width} columns {columns} {dtype}", run, wanted)


# ---- attention ----


class Attention(NamedTuple):
    """A block: rows ``row`` to ``row + rows`` of ``groups`` groups from ``group`` on, of ``queries`` x ``keys``."""

    function: int  # softmax, relu2, laplace
    queries: int
    keys: int
    rows: int
    groups: int = 2
    row: int = 0
    group: int = 0
    causal: bool = False
    masked: bool = False
    dropout: float = 0.0
    drop_key: float = 0.0
    dtype: torch.dtype = FLOAT


def attention_blocks() -> Iterator[Attention]:
    for function in range(3):
        yield Attention(function, 1, 1, 1)
        yield Attention(function, 5, 7, 5, masked=True, groups=3)
        yield Attention(function, 37, 37, 20, row=17, group=1, causal=True, masked=True)
        yield Attention(function, 9, 40, 9, causal=True, dropout=0.25)
        yield Attention(function, 40, 40, 33, causal=True, drop_key=0.5, masked=True)
        yield Attention(function, 130, 130, 130, groups=1, causal=True)
        yield Attention(function, 3, 300, 3, masked=True, dropout=0.25)
        for keys in (128, 256, 1024, 4096):  # rows that use all registers of their threads
            yield Attention(function, 1, keys, 1, groups=1)
        yield Attention(function, 2, 1030, 2, causal=True)
        yield Attention(function, 2, 4100, 1, row=1, groups=1, masked=True, drop_key=0.25)
        for keys in (8192, 8193, 9000):  # the longest rows in registers, and longer ones
            yield Attention(function, 1, keys, 1, groups=1, masked=keys == 9000)
        yield Attention(function, 5, 5, 5, groups=70, causal=True)  # shares of the groups are summed apart
        yield Attention(function, 33, 45, 33, masked=True, dtype=HALF)


def attention_cases() -> Iterator[Case]:
    for block in attention_blocks():
        yield attention_case(block)


def attention_case(block: Attention) -> Case:
    total = block.group + block.groups
    columns = block.keys - block.queries + block.row + block.rows if block.causal else block.keys
    padding = counts = None
    if block.masked:
        padding = torch.rand(total, block.keys, generator=torch.Generator().manual_seed(1)) < 0.3
        padding[-1] = True  # nothing is left: it is seen in spite of that
        present = (~padding).cumsum(1) if block.causal else (~padding).sum(1, keepdim=True).expand(-1, block.keys)
        counts = present[:, block.keys - block.queries :].to(torch.int32).contiguous()
    given = {
        "logits": 3 * normal(2, block.groups, block.rows, columns),
        "bias": normal(3, block.queries + block.keys - 1),
    }
    grad = normal(4, block.groups, block.rows, columns)
    seed = torch.tensor(77) if block.dropout or block.drop_key else None
    rest = (block.function, block.causal, 0.5, block.dropout, block.drop_key, block.queries, block.group, block.row)
    leaves = exact(given)
    wanted = with_gradients(
        {"weights": attention_by_definition(block, leaves, columns, padding, seed)}, {"weights": grad}, leaves
    )
    wanted["weights of the backward pass"] = wanted["weights"]
    if block.function == 0:
        wanted["statistics are there"] = torch.ones(1)

    def run() -> Results:
        outside: List[Optional[Tensor]] = [None, None]
        if block.dtype != FLOAT:
            outside = [torch.empty_like(grad, dtype=block.dtype) for _ in range(2)]
        statistics = torch.full((total, block.queries, 2), math.nan) if block.function == 0 else None
        shared = (given["bias"], padding, counts, seed, statistics, *rest)
        logits, found = given["logits"].clone(), {}
        ops().attention_weights_(logits, outside[0], *shared)
        found["weights"] = (logits if outside[0] is None else outside[0]).clone()
        if statistics is not None:  # those of the block, and no others
            rows = torch.zeros(total, block.queries, dtype=torch.bool)
            rows[block.group :, block.row : block.row + block.rows] = True
            found["statistics are there"] = torch.tensor([float(torch.equal(~statistics.isnan().any(-1), rows))])
        logits, grad_logits = given["logits"].clone(), grad.clone()
        grad_bias = torch.zeros(given["bias"].numel(), dtype=torch.float64)
        ops().attention_weights_backward_(logits, grad_logits, *outside, grad_bias, *shared)
        found["weights of the backward pass"] = logits if outside[0] is None else outside[0]
        found["gradient of logits"] = grad_logits if outside[1] is None else outside[1]
        found["gradient of bias"] = grad_bias
        return found

    return Case(str(block), run, wanted)


def attention_by_definition(
    block: Attention, leaves: Results, columns: int, padding: Optional[Tensor], seed: Optional[Tensor]
) -> Tensor:
    query = block.row + torch.arange(block.rows).unsqueeze(1)
    key = torch.arange(columns)
    past = key <= block.keys - block.queries + query if block.causal else torch.ones(block.rows, columns).bool()
    seen = past.expand(block.groups, -1, -1)
    if padding is not None:
        real = seen & ~padding[block.group :, None, :columns]
        seen = torch.where(real.any(-1, keepdim=True), real, seen)
    scale = 0.5 if block.function == 0 else 1 / seen.sum(-1, keepdim=True)
    x = leaves["logits"] * scale + leaves["bias"][block.queries - 1 - query + key]
    factor = torch.ones_like(x)
    if seed is not None:
        numbers = hashes(int(seed), block, columns)
        border = round(block.drop_key * (1 << 24))
        seen = seen & (numbers >= border)
        border += round(block.dropout * ((1 << 24) - border))
        factor = (numbers >= border) / (1 - block.dropout)
    if block.function == 0:
        alive = seen.any(-1, keepdim=True)
        weights = torch.softmax(x.masked_fill(~seen & alive, -math.inf), -1) * alive
    elif block.function == 1:
        weights = torch.relu(x).square()
    else:
        weights = 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2))))
    return weights.masked_fill(~seen, 0.0) * factor


def hashes(seed: int, block: Attention, columns: int) -> Tensor:
    """The kernels' numbers below 2^24, in Python's integers."""
    wide, narrow = (1 << 64) - 1, (1 << 32) - 1

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & wide
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & wide
        return x ^ (x >> 31)

    def number(group: int, query: int, key: int) -> int:
        row = mix(mix(seed + group) + 0x9E3779B97F4A7C15 * (query + 1) & wide)
        x = (key * 0x9E3779B1 + (row & narrow)) & narrow
        x = ((x ^ (x >> 16)) * 0x7FEB352D + (row >> 32)) & narrow
        x = (x ^ (x >> 15)) * 0x846CA68B & narrow
        return (x ^ (x >> 16)) >> 8

    return torch.tensor(
        [
            [[number(block.group + g, block.row + r, key) for key in range(columns)] for r in range(block.rows)]
            for g in range(block.groups)
        ]
    )


CASES: Dict[str, Callable[[], Iterator[Case]]] = {
    "attention": attention_cases,
    "fft_conv": fft_cases,
    "gate": gate_cases,
    "timestep_norm": norm_cases,
}


def compare(case: Case, found: Results) -> List[str]:
    """What differs from the formula, in words."""
    wrong = []
    for name, want in case.wanted.items():
        got = found[name]
        if got.dim() == want.dim() + 1:  # the parts of a sum over the work
            got = got.sum(0)
        error = (got.double() - want).abs().max().item()
        tolerance = TOLERANCE.get(got.dtype, 5e-3) if "bias" not in name else 2e-2 if "bfloat16" in case.title else 2e-5
        if not error <= tolerance * max(want.abs().max().item(), 1.0):  # a NaN is wrong too
            wrong.append(f"{name}: error {error:.2g}")
    return [f"{case.title}: {', '.join(wrong)}"] if wrong else []


def failures(operator: str, orders: List[str]) -> List[str]:
    """Run all cases of an operator on the library that is loaded; returns what is wrong."""
    torch.use_deterministic_algorithms(True)  # fills memory that the operators allocate with NaN
    wrong: List[str] = []
    for case in CASES[operator]():
        first: Optional[Results] = None
        for order in orders:
            os.environ["FM_SIM_ORDER"] = order
            found = case.run()
            if first is None:
                wrong += compare(case, found)
                first = found
            for name, tensor in found.items():
                if not torch.equal(tensor, first[name]) and not wrong:
                    wrong.append(f"{case.title}, schedule {order}: {name} differs from schedule {orders[0]}")
        if wrong:
            break
    os.environ.pop("FM_SIM_ORDER", None)
    torch.use_deterministic_algorithms(False)
    return wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.ops.load_library(sys.argv[2])
    problems = failures(sys.argv[1], sys.argv[3:] or ["0"])
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
