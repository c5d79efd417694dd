"""Time and peak memory of every path of the operators: their shapes, inputs and paths, and the published EMA."""

import argparse
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, chosen_of, numbers_of
from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.ema import complex_ema_coefficients, damped_ema, ema_coefficients
from fairseq_mega.ops.ema.coefficients import compute_dtype
from fairseq_mega.ops.timestep_norm import timestep_norm

DESCRIPTION = """\
Every measurement runs in a separate process, or in this process on a GPU, whose allocator counts exactly. "speed" and
"memory" compare with the same operator's baseline, forward and backward: the EMA's paths with "DxNxL", the arrangement
of the published code, attention with explicit weights, other operators with torch. A row names operator, shape and
path. The shape is B, D, N, L, z, v, chunk; zeros stand for z = D/2, v = 2 D (v = z without a relative bias, where
torch's SDPA then works without an L x L matrix) and full attention.
"""
SMOKE = ("--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1")
LENGTHS = ",".join(str(2**k) for k in range(8, 17))
Inputs = Dict[str, Tensor]


class Shape(NamedTuple):
    """Batch, width, EMA dimensions and length of one measurement, and the sizes of its attention, 0 for the default."""

    batch: int
    width: int
    n: int
    length: int
    z: int = 0  # width of queries and keys; 0: half the width
    v: int = 0  # width of values; 0: twice the width
    chunk: int = 0  # of the attention, divides the length; 0: full attention

    @property
    def queries_width(self) -> int:
        return self.z or max(self.width // 2, 1)

    @property
    def values_width(self) -> int:
        return self.v or 2 * self.width

    @property
    def chunks(self) -> Tuple[int, int]:
        """Number and length of the chunks of attention."""
        length = self.chunk or self.length
        return self.batch * self.length // length, length

    @property
    def groups(self) -> int:
        """Groups of the timestep norm: 32 features each where that divides the width."""
        return self.width // 32 if self.width % 32 == 0 else 1


def dxnxl_kernel(log_decay: Tensor, weight: Tensor, length: int) -> Tensor:
    """The EMA's kernel (K, L) from all powers at once, a tensor of K x N x L numbers, as published."""
    steps = torch.arange(length, device=weight.device).to(log_decay.real.dtype)
    powers = torch.exp(log_decay.unsqueeze(-1) * steps)
    kernel = torch.einsum("kn,knl->kl", weight, powers)
    return kernel.real if kernel.is_complex() else kernel


def dxnxl_ema(inputs: Inputs, bidirectional: bool = False) -> Tensor:
    """The EMA in the arrangement of the published code: the kernel of :func:`dxnxl_kernel`, then an FFT of twice the
    length.

    Bidirectional: the two kernels side by side as one of 2 L - 1 taps, the input with L - 1 zeros before it, and an FFT
    of 2 (2 L - 1) numbers (MEGA, Appendix A and its code; MEGALODON for the complex form).

    Args:
        inputs: ``x`` (B, L, D), and the parameters alpha, delta, and beta and eta or, complex, theta and gamma.
        bidirectional: whether the parameters have 2 D rows, of both directions.
    """
    if "theta" in inputs:
        parameters = (inputs[name] for name in ("alpha", "delta", "theta", "gamma"))
        log_decay, expansion, projection = complex_ema_coefficients(*parameters)
    else:
        alpha, delta, beta, eta = (_at_least_float32(inputs[name]) for name in ("alpha", "delta", "beta", "eta"))
        p, a = torch.sigmoid(alpha), torch.sigmoid(delta)
        log_decay, expansion, projection = torch.log(1 - p * a), p * beta, eta * alpha.size(1) ** -0.5
    x = _at_least_float32(inputs["x"]).transpose(1, 2)  # (B, D, L); FFTs do not support 16 bits
    width, length = x.shape[1:]
    kernel, reach = dxnxl_kernel(log_decay, expansion * projection, length), length - 1
    if bidirectional:
        past, future = kernel[:width], kernel[width:]
        kernel = F.pad(past, (reach, 0)) + F.pad(future.flip(-1), (0, reach))
        x = F.pad(x, (reach, 0))
    size = 2 * kernel.size(-1)
    y = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)
    first = 2 * reach if bidirectional else 0
    return y[..., first : first + length].transpose(1, 2).to(inputs["x"].dtype)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(compute_dtype(tensor))


class Op(NamedTuple):
    """An operator: its inputs and its paths."""

    title: str
    draw: Callable[[Shape, torch.Generator], Inputs]  # float64 on the CPU
    paths: Dict[str, Callable[[Inputs, Shape], Tensor]]  # keys: names in results
    baseline: str  # the path that other paths are compared with
    power: int = 1  # of the length, with which time and memory grow


def normal(generator: torch.Generator, *size: int) -> Tensor:
    """Numbers drawn from the normal distribution, float64."""
    return torch.randn(size, generator=generator, dtype=torch.float64)


def leaves(inputs: Inputs, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Return fresh inputs of the given precision that require gradients."""
    return {name: value.detach().to(device, dtype).clone().requires_grad_() for name, value in inputs.items()}


def ema_op(title: str, bidirectional: bool = False, complex_: bool = False) -> Op:
    """One form of the EMA."""
    names = ("alpha", "delta", "theta", "gamma") if complex_ else ("alpha", "delta", "beta", "eta")
    make = complex_ema_coefficients if complex_ else ema_coefficients

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        rows = shape.width * (2 if bidirectional else 1)
        sizes = {"theta": (rows, 1), "gamma": (rows, shape.n, 2)}
        x = normal(generator, shape.batch, shape.length, shape.width)
        return {"x": x, **{name: normal(generator, *sizes.get(name, (rows, shape.n))) for name in names}}

    def run(path: str, inputs: Inputs, _: Shape) -> Tensor:
        coefficients = make(*(inputs[name] for name in names))
        return damped_ema(inputs["x"], coefficients, bidirectional=bidirectional, path=path)[0]

    return Op(
        title=title,
        draw=draw,
        paths={
            "fft": partial(run, "torch_fft"),
            "fft_kernel": partial(run, "native_fft"),
            "scan": partial(run, "native"),
            "DxNxL": lambda inputs, _: dxnxl_ema(inputs, bidirectional),
        },
        baseline="DxNxL",
    )


def attention_op(title: str, function: str, biased: bool) -> Op:
    """Attention of one head, in chunks if the shape has chunks.

    Without a relative bias and with values as wide as the queries, torch's own fused attention is among the paths: only
    for equal widths does it form no L x L matrix.
    """
    values = lambda shape: shape.values_width if biased else shape.queries_width

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        widths = {"q": shape.queries_width, "k": shape.queries_width, "v": values(shape)}
        inputs = {name: normal(generator, *shape.chunks, width) for name, width in widths.items()}
        return {**inputs, "bias": 0.1 * normal(generator, 2 * shape.chunks[1] - 1)} if biased else inputs

    def run(path: str, inputs: Inputs, _: Shape) -> Tensor:
        bias = inputs.get("bias")
        return attention(inputs["q"], inputs["k"], inputs["v"], function=function, bias=bias, path=path)

    def sdpa(inputs: Inputs, _: Shape) -> Tensor:
        return F.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])

    return Op(
        title=title,
        draw=draw,
        paths={
            "blockwise": partial(run, "torch_blockwise"),
            "fused": partial(run, "native"),
            "blocks": partial(run, "native_blocks"),
            "triton": partial(run, "triton"),
            "explicit": partial(run, "reference"),
            **({"dense": partial(run, "torch")} if biased else {"SDPA": sdpa}),
        },
        baseline="explicit",
        power=2,
    )


def norm_op() -> Op:
    """The timestep norm, from a fresh state."""

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        x = normal(generator, shape.batch, shape.length, shape.width)
        return {"x": x, **{name: 0.1 * normal(generator, shape.width) for name in ("weight", "bias")}}

    def run(path: str, inputs: Inputs, shape: Shape) -> Tensor:
        return timestep_norm(inputs["x"], inputs["weight"], inputs["bias"], shape.groups, path=path)[0]

    return Op(
        title="timestep norm",
        draw=draw,
        paths={"native": partial(run, "native"), "torch": partial(run, "torch")},
        baseline="torch",
    )


OPS: Dict[str, Op] = {
    "ema": ema_op("EMA, causal"),
    "ema-bidirectional": ema_op("EMA, bidirectional", bidirectional=True),
    "ema-complex": ema_op("EMA, complex, causal", complex_=True),
    "attention": attention_op("attention, softmax, equal widths", "softmax", biased=False),
    "attention-softmax": attention_op("attention, softmax with relative bias", "softmax", biased=True),
    "attention-laplace": attention_op("attention, laplace with relative bias", "laplace", biased=True),
    "timestep-norm": norm_op(),
}
LM_OPS = ["ema", "attention-softmax", "timestep-norm"]
LRA_OPS = ["ema-bidirectional", "attention-laplace"]
TEXT_OPS = ["ema-bidirectional", "attention-softmax"]
# MEGA's shapes and chunks, from its tables 2, 4, 5 and 7.
PAPER: List[Tuple[List[str], Shape]] = [
    (LRA_OPS, Shape(64, 160, 16, 1024, z=96, v=320)),  # Image
    (LRA_OPS, Shape(64, 128, 16, 1024, z=64, v=256, chunk=128)),  # Pathfinder
    (TEXT_OPS, Shape(16, 128, 16, 4096, z=64, v=256)),  # Text
    (TEXT_OPS, Shape(16, 128, 16, 4096, z=64, v=256, chunk=128)),
    (LRA_OPS, Shape(4, 72, 16, 16000, z=36, v=144, chunk=1000)),  # Speech Commands
    (LM_OPS, Shape(8, 512, 16, 8192, z=128, v=1024, chunk=2048)),  # enwik8
    (LM_OPS, Shape(8, 1024, 16, 8192, z=256, v=2048, chunk=1024)),  # WikiText-103
    (LM_OPS, Shape(8, 1024, 16, 8192, z=128, v=2048, chunk=4096)),
    ([*TEXT_OPS, "ema"], Shape(128, 512, 16, 64, z=128, v=1024)),  # translation
]


def parse_shapes(shape: str, lengths: str) -> List[Shape]:
    """Return shapes from "B,D,N" and several lengths, or from one "B,D,N,L[,z,v,chunk]".

    Raises:
        ValueError: if the chunk does not divide the length.
    """
    numbers = numbers_of(shape)
    found = [Shape(*[*numbers[:3], length, *numbers[4:]]) for length in numbers[3:4] or numbers_of(lengths)]
    if any(one.length % (one.chunk or 1) for one in found):
        raise ValueError(f"--shape {shape}: the chunk must divide the length")
    return found


def shrunk(shape: Shape, factor: int) -> Shape:
    """Return the shape with lengths and chunks divided by ``factor``, and one sequence; for 1 the shape itself."""
    if factor == 1:
        return shape
    chunks = shape.length // shape.chunk if shape.chunk else 1
    chunk = max(1, shape.length // factor // chunks)
    return shape._replace(batch=1, length=chunk * chunks, chunk=chunk if shape.chunk else 0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--ops", help=f"operators, comma separated, of: {', '.join(OPS)} (default: all)")
    add("--lengths", default=LENGTHS, help="sequence lengths L, comma separated (default: %(default)s)")
    shape = "B,D,N, or B,D,N,L[,z,v,chunk] in place of --lengths (default: %(default)s)"
    add("--shape", default="4,128,16", help=shape)
    add("--preset", choices=["paper"], help="operators and shapes of MEGA's tables")
    add("--shrink", type=int, default=1, help="divide lengths and chunks of a preset by this, with a batch of 1")
    limit = "maximum seconds of a run; longer runs are skipped (default: %(default)s)"
    add("--time-limit", type=float, default=60.0, help=limit)
    add_common_options(parser, repeat=5, sweeps=2, dtypes=["float32", "bfloat16"])


def operators_and_shapes(arguments: argparse.Namespace) -> List[Tuple[str, Shape]]:
    """List the measurements that the options select."""
    chosen = chosen_of(arguments.ops, "--ops", list(OPS)) if arguments.ops else list(OPS)
    if arguments.preset:
        return [(op, shrunk(shape, arguments.shrink)) for op in chosen for ops, shape in PAPER if op in ops]
    return [(op, shape) for op in chosen for shape in parse_shapes(arguments.shape, arguments.lengths)]


def measure(arguments: argparse.Namespace, op: str, path: str, shape: Dict[str, int]) -> measuring.Figures:
    """Measure the seconds of a forward pass and of both passes, and the peak extra memory of both passes."""
    device, run = torch.device(arguments.device), OPS[op].paths[path]

    def prepared(shape: Shape) -> Tuple[Callable[[], Any], Callable[[], Any]]:
        drawn = OPS[op].draw(shape, torch.Generator().manual_seed(1))
        inputs = leaves(drawn, getattr(torch, arguments.dtype), device)
        forward = torch.no_grad()(lambda: run(inputs, shape))
        grad = torch.ones_like(forward())
        both = lambda: torch.autograd.grad(run(inputs, shape), list(inputs.values()), grad, allow_unused=True)
        return forward, both

    whole = Shape(**shape)
    prepared(whole._replace(length=min(64, whole.length), chunk=0))[1]()  # excludes one-time work
    forward, both = prepared(whole)
    found = measuring.time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": measuring.median_seconds(forward, arguments.repeat, device)}


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each operator, shape and path, compared with the operator's baseline."""
    return [
        measuring.Case(
            f"{op} {','.join(map(str, shape))} {path}",
            {"op": op, "path": path, "shape": shape._asdict()},
            against=f"{op} {','.join(map(str, shape))} {OPS[op].baseline}",
            series=f"{op} {path}",
            length=shape.length,
            power=OPS[op].power,
        )
        for op, shape in operators_and_shapes(arguments)
        for path in OPS[op].paths
    ]


def finish(
    arguments: argparse.Namespace, cases: List[measuring.Case], found: Dict[str, measuring.Figures]
) -> measuring.Figures:
    """Return the rows of the tables and pictures of documents."""
    named = ({**case.what, "title": OPS[case.what["op"]].title, "dtype": arguments.dtype} for case in cases)
    return {"rows": [{**row, "skipped": "", **found[case.subject]} for row, case in zip(named, cases)]}


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases, finish=finish), measure, SMOKE)
