"""The operators that scripts/benchmark_kernels.py compares, their paths, and a published way to compute the EMA."""

from typing import Callable, Dict, List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.benchmarks.kernel_shapes import Shape
from fairseq_mega.ops import native
from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.ema import PATHS as EMA_PATHS
from fairseq_mega.ops.ema import EMACoefficients, damped_ema, ema_coefficients
from fairseq_mega.ops.ema.coefficients import compute_dtype
from fairseq_mega.ops.ema.fft_conv import LONGEST as FFT_KERNEL_STEPS
from fairseq_mega.ops.timestep_norm import timestep_norm

Inputs = Dict[str, Tensor]


class OpPath(NamedTuple):
    """One way to compute an operator."""

    run: Callable[[Inputs, Shape], Tensor]
    needs: Callable[[Shape], int]  # rough peak of memory in bytes, forward and backward
    compiled: bool = False  # needs the extension
    cuda_only: bool = False
    longest: Optional[int] = None  # steps it can serve


class Op(NamedTuple):
    """An operator: its inputs, its paths, and the plain reference they must agree with."""

    title: str
    draw: Callable[[Shape, torch.Generator], Inputs]  # float64 on the CPU
    reference: Callable[[Inputs, Shape], Tensor]
    paths: Dict[str, OpPath]
    baseline: str  # the path that the others are compared with
    # Floats that have to be moved: what the operator reads and writes at least, parameters left out.
    forward: Callable[[Shape], int]
    backward: Callable[[Shape], int]
    quadratic: bool = False  # time grows with L squared


def _normal(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64)


def draw_ema(rows: int) -> Callable[[Shape, torch.Generator], Inputs]:
    """Parameters of an EMA with ``rows`` times D rows, and its input."""

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        size = (rows * shape.width, shape.n)
        parameters = {name: _normal(generator, *size) for name in ("alpha", "delta", "beta", "eta")}
        return {"x": _normal(generator, shape.batch, shape.length, shape.width), **parameters}

    return draw


def draw_complex_ema(shape: Shape, generator: torch.Generator) -> Inputs:
    size = (shape.width, shape.n)
    return {
        "x": _normal(generator, shape.batch, shape.length, shape.width),
        "alpha": _normal(generator, *size),
        "delta": _normal(generator, *size),
        "theta": _normal(generator, shape.width, 1),
        "gamma": _normal(generator, *size, 2),
    }


def at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(compute_dtype(tensor))


def complex_coefficients(inputs: Inputs) -> EMACoefficients:
    """Coefficients of MEGALODON's complex EMA (NeurIPS 2024, section 3.1, in the form of its code)."""
    alpha, delta, theta, gamma = (at_least_float32(inputs[name]) for name in ("alpha", "delta", "theta", "gamma"))
    expansion, n = torch.sigmoid(alpha), alpha.size(1)
    angle = torch.arange(1, n + 1, device=alpha.device, dtype=alpha.dtype) * torch.sigmoid(theta) * (2 * torch.pi / n)
    log_decay = torch.complex(torch.log1p(-expansion * torch.sigmoid(delta)), angle)
    return EMACoefficients(log_decay, expansion, torch.view_as_complex(gamma) * n**-0.5)


def our_ema(path: str, bidirectional: bool = False, complex_: bool = False) -> Callable[[Inputs, Shape], Tensor]:
    """The EMA by one of this package's paths."""

    def run(inputs: Inputs, shape: Shape) -> Tensor:
        if complex_:
            coefficients = complex_coefficients(inputs)
        else:
            coefficients = ema_coefficients(*(inputs[name] for name in ("alpha", "delta", "beta", "eta")))
        return damped_ema(inputs["x"], coefficients, bidirectional=bidirectional, path=path)[0]

    return run


def dxnxl_kernel(log_decay: Tensor, weight: Tensor, length: int) -> Tensor:
    """The EMA's kernel (K, L) from all powers at once, a tensor of K x N x L numbers, as published."""
    steps = torch.arange(length, device=weight.device).to(log_decay.real.dtype)
    powers = torch.exp(log_decay.unsqueeze(-1) * steps)
    kernel = torch.einsum("kn,knl->kl", weight, powers)
    return kernel.real if kernel.is_complex() else kernel


def dxnxl_ema(inputs: Inputs, shape: Shape, bidirectional: bool = False, complex_: bool = False) -> Tensor:
    """The EMA in the arrangement of the published code: that kernel, then an FFT of twice the length.

    Bidirectional: the two kernels side by side as one of 2 L - 1 taps, the input with L - 1 zeros before it, and an FFT
    of 2 (2 L - 1) numbers (MEGA, Appendix A and its code; MEGALODON for the complex form).
    """
    if complex_:
        log_decay, expansion, projection = complex_coefficients(inputs)
    else:
        alpha, delta, beta, eta = (at_least_float32(inputs[name]) for name in ("alpha", "delta", "beta", "eta"))
        p, a = torch.sigmoid(alpha), torch.sigmoid(delta)
        log_decay, expansion, projection = torch.log(1 - p * a), p * beta, eta * shape.n**-0.5
    kernel = dxnxl_kernel(log_decay, expansion * projection, shape.length)
    x, reach = at_least_float32(inputs["x"]).transpose(1, 2), shape.length - 1  # FFTs know no 16 bits
    if bidirectional:
        past, future = kernel[: shape.width], kernel[shape.width :]
        kernel = F.pad(past, (reach, 0)) + F.pad(future.flip(-1), (0, reach))
        x = F.pad(x, (reach, 0))
    size = 2 * kernel.size(-1)
    y = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)
    first = 2 * reach if bidirectional else 0
    return y[..., first : first + shape.length].transpose(1, 2).to(inputs["x"].dtype)


def ema_op(title: str, bidirectional: bool = False, complex_: bool = False) -> Op:
    """One form of the EMA."""
    floats = lambda shape: 4 * shape.batch * shape.width * shape.length
    powers = lambda shape: 4 * shape.width * shape.n * shape.length * (2 if bidirectional or complex_ else 1)
    paths = {}
    for name in EMA_PATHS.names:
        if name != "reference":
            needs = (lambda shape: 6 * floats(shape)) if name == "scan" else (lambda shape: 16 * floats(shape))
            paths[name] = OpPath(our_ema(name, bidirectional, complex_), needs, compiled=name != "fft")
            if name == "fft_kernel":
                paths[name] = paths[name]._replace(cuda_only=True, longest=FFT_KERNEL_STEPS)
    paths["DxNxL"] = OpPath(
        lambda inputs, shape: dxnxl_ema(inputs, shape, bidirectional, complex_),
        lambda shape: 4 * powers(shape) + 24 * floats(shape),
    )
    return Op(
        title=title,
        draw=draw_complex_ema if complex_ else draw_ema(2 if bidirectional else 1),
        reference=our_ema("reference", bidirectional, complex_),
        paths=paths,
        baseline="DxNxL",
        forward=lambda shape: 2 * shape.batch * shape.width * shape.length,  # reads x, writes y
        backward=lambda shape: 3 * shape.batch * shape.width * shape.length,  # reads x and grad y, writes grad x
    )


def attention_op(title: str, function: str, biased: bool) -> Op:
    """Attention of one head, in chunks where the shape has some.

    Without a relative bias and with values as wide as the queries, torch's own fused attention is among the paths: it
    forms no L x L matrix for equal widths only.
    """
    values = lambda shape: shape.values_width if biased else shape.queries_width

    def draw(shape: Shape, generator: torch.Generator) -> Inputs:
        widths = {"q": shape.queries_width, "k": shape.queries_width, "v": values(shape)}
        inputs = {name: _normal(generator, *shape.chunks, width) for name, width in widths.items()}
        return {**inputs, "bias": 0.1 * _normal(generator, 2 * shape.chunks[1] - 1)} if biased else inputs

    def ours(path: str) -> Callable[[Inputs, Shape], Tensor]:
        def run(inputs: Inputs, shape: Shape) -> Tensor:
            bias = inputs.get("bias")
            return attention(inputs["q"], inputs["k"], inputs["v"], function=function, bias=bias, path=path)

        return run

    def sdpa(inputs: Inputs, shape: Shape) -> Tensor:
        return F.scaled_dot_product_attention(inputs["q"], inputs["k"], inputs["v"])

    inputs_bytes = lambda shape: 4 * shape.batch * shape.length * (2 * shape.queries_width + 2 * values(shape))
    weights = lambda shape: 4 * shape.chunks[0] * shape.chunks[1] ** 2
    linear = lambda shape: 8 * inputs_bytes(shape) + 2**28
    paths = {
        "blockwise": OpPath(ours("blockwise"), linear),
        "fused": OpPath(ours("fused"), linear, compiled=True),
        "explicit": OpPath(ours("reference"), lambda shape: 6 * weights(shape) + linear(shape)),
    }
    if biased:
        paths["dense"] = OpPath(ours("dense"), lambda shape: 6 * weights(shape) + linear(shape))
    else:
        paths["SDPA"] = OpPath(sdpa, linear)
    return Op(
        title=title,
        draw=draw,
        reference=ours("reference"),
        paths=paths,
        baseline="explicit",
        # Reads q, k, v and writes y; then reads those three and grad y and writes three gradients.
        forward=lambda shape: 2 * shape.batch * shape.length * (shape.queries_width + values(shape)),
        backward=lambda shape: shape.batch * shape.length * (4 * shape.queries_width + 3 * values(shape)),
        quadratic=True,
    )


def draw_norm(shape: Shape, generator: torch.Generator) -> Inputs:
    return {
        "x": _normal(generator, shape.batch, shape.length, shape.width),
        "weight": 0.1 * _normal(generator, shape.width),
        "bias": 0.1 * _normal(generator, shape.width),
    }


def norm_op() -> Op:
    """The timestep norm, from a fresh state."""

    def ours(path: str) -> Callable[[Inputs, Shape], Tensor]:
        return lambda inputs, shape: timestep_norm(
            inputs["x"], inputs["weight"], inputs["bias"], shape.groups, path=path
        )[0]

    floats = lambda shape: 4 * shape.batch * shape.width * shape.length
    return Op(
        title="timestep norm",
        draw=draw_norm,
        reference=ours("reference"),
        paths={
            "native": OpPath(ours("native"), lambda shape: 6 * floats(shape), compiled=True),
            "torch": OpPath(ours("torch"), lambda shape: 16 * floats(shape)),
        },
        baseline="torch",
        forward=lambda shape: 2 * shape.batch * shape.width * shape.length,
        backward=lambda shape: 3 * shape.batch * shape.width * shape.length,
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


def leaves(inputs: Inputs, dtype: torch.dtype, device: torch.device) -> Inputs:
    """Fresh inputs of the given precision that need gradients."""
    return {name: value.detach().to(device, dtype).clone().requires_grad_() for name, value in inputs.items()}


def missing(path: OpPath, device: torch.device) -> Optional[str]:
    """Why a path cannot run on the device, or None."""
    if path.cuda_only and device.type != "cuda":
        return "a path for CUDA"
    if not path.compiled:
        return None
    if native.obstacle(device) is None:
        return None
    return "no compiled kernels" if native.PROBLEM is not None else "no compiled kernels for this device"


# Largest error of a path, relative to the norm of the result. Laplace weights that torch computes in bfloat16, as the
# published code does, lose most of their digits to 1 + erf where they are small.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15}
SMALLEST_NORM = 0.1  # what is exactly zero, as with a single softmax weight, has an error like everything else


def disagreements(op: Op, shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32) -> List[str]:
    """What differs between the paths and the reference in float64 on the same numbers: outputs and all gradients."""
    drawn = op.draw(shape, torch.Generator().manual_seed(1))
    drawn = {name: value.to(dtype).double() for name, value in drawn.items()}
    weights = None
    results = {}
    for name, run in {"reference": op.reference, **{name: path.run for name, path in op.paths.items()}}.items():
        if name != "reference" and missing(op.paths[name], device) is not None:
            continue
        exact = name == "reference"
        place = torch.device("cpu") if exact else device
        inputs = leaves(drawn, torch.float64 if exact else dtype, place)
        y = run(inputs, shape)
        if weights is None:
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        found = torch.autograd.grad(y, list(inputs.values()), weights.to(y), allow_unused=True)
        outputs = {"output": y}
        for key, leaf, value in zip(inputs, inputs.values(), found):
            outputs[f"gradient of {key}"] = torch.zeros_like(leaf) if value is None else value
        results[name] = {key: value.detach().cpu().double() for key, value in outputs.items()}
    found_wrong = []
    for name, outputs in results.items():
        for key, want in results["reference"].items():
            error = ((outputs[key] - want).norm() / want.norm().clamp(min=SMALLEST_NORM)).item()
            if not error < TOLERANCE[dtype]:  # NaN is wrong too
                found_wrong.append(f"{op.title}, {name}, L = {shape.length}: {key} is off by {error:.2g}")
    return found_wrong
