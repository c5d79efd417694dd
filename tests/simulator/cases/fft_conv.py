"""Cases of the FFT convolution."""

from typing import Iterator

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients


def cases() -> Iterator[Case]:
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
