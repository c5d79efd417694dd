"""The measured operators: their shapes, their inputs, their paths, and the reference."""

from functools import partial
from typing import Callable, Dict, List, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.lab.benchmarks.command import numbers_of
from fairseq_mega.lab.benchmarks.published import Inputs, dxnxl_ema
from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.ema import complex_ema_coefficients, damped_ema, ema_coefficients
from fairseq_mega.ops.linear import linear
from fairseq_mega.ops.timestep_norm import timestep_norm


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
            "explicit": partial(run, "reference"),
            **({"dense": partial(run, "torch")} if biased else {"SDPA": sdpa}),
        },
        baseline="explicit",
        power=2,
    )


def linear_op() -> Op:
    """A map from the model's width to the values' width: its product, and the two products of its gradients."""

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        inputs, outputs = shape.width, shape.values_width
        return {
            "x": normal(generator, shape.batch, shape.length, inputs),
            "weight": normal(generator, outputs, inputs) * inputs**-0.5,
            "bias": 0.1 * normal(generator, outputs),
        }

    def run(path: str, inputs: Inputs, _: Shape) -> Tensor:
        return linear(inputs["x"], inputs["weight"], inputs["bias"], path=path)

    return Op(
        title="linear map",
        draw=draw,
        paths={"native": partial(run, "native"), "torch": partial(run, "reference")},
        baseline="torch",
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
    "linear": linear_op(),
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
