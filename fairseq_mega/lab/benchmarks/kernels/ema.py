"""The EMA's paths, in each form of the EMA."""

from typing import Callable

from torch import Tensor

from fairseq_mega.lab.benchmarks.kernels.ema_inputs import complex_coefficients, draw_complex_ema, draw_ema
from fairseq_mega.lab.benchmarks.kernels.operators import Inputs, Op, OpPath
from fairseq_mega.lab.benchmarks.kernels.published_ema import dxnxl_ema
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.ops.ema import damped_ema, ema_coefficients
from fairseq_mega.ops.fft_conv import LONGEST as FFT_KERNEL_STEPS


def our_ema(path: str, bidirectional: bool = False, complex_: bool = False) -> Callable[[Inputs, Shape], Tensor]:
    """The EMA by one of this package's paths."""

    def run(inputs: Inputs, shape: Shape) -> Tensor:
        if complex_:
            coefficients = complex_coefficients(inputs)
        else:
            coefficients = ema_coefficients(*(inputs[name] for name in ("alpha", "delta", "beta", "eta")))
        return damped_ema(inputs["x"], coefficients, bidirectional=bidirectional, path=path)[0]

    return run


def ema_op(title: str, bidirectional: bool = False, complex_: bool = False) -> Op:
    """One form of the EMA."""
    floats = lambda shape: 4 * shape.batch * shape.width * shape.length
    powers = lambda shape: 4 * shape.width * shape.n * shape.length * (2 if bidirectional or complex_ else 1)
    paths = {}
    recorded = {"fft": "torch_fft", "fft_kernel": "native_fft", "scan": "native"}  # names of paths in results
    for name, path in recorded.items():
        needs = (lambda shape: 6 * floats(shape)) if name == "scan" else (lambda shape: 16 * floats(shape))
        paths[name] = OpPath(our_ema(path, bidirectional, complex_), needs, compiled=name != "fft")
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
