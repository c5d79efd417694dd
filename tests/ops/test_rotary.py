"""Normalised, turned queries and keys: the kernel against the definition, gradients and recomputation included."""

from typing import Any, Dict

import pytest
import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.rotary import normalized_query_key, rotate
from tests.support.numerics import (
    GRADIENT_FACTOR,
    assert_close,
    gradients,
    leaves,
)

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
# Batch, steps, heads, features of a head, first position, chunk: around vectors of 8 and 16 features and parts of 256
# rows; chunks that begin within the steps, before them, and none.
CASES = [(1, 1, 1, 2, 0, -1), (2, 5, 3, 6, 0, -1), (2, 9, 2, 16, 3, 4), (3, 100, 1, 34, 0, 64), (1, 300, 2, 18, 7, 128)]
CASES += [(2, 4, 1, 64, 1000, -1), (1, 3, 2, 8, 2, 5)]


def numbers(case: Any) -> Dict[str, Tensor]:
    batch, steps, heads, features, _, _ = case
    generator = torch.Generator().manual_seed(1)
    sizes = {"x": (batch, steps, heads * features), "scale": (2, heads, features), "offset": (2, heads, features)}
    return {name: torch.randn(size, generator=generator, dtype=torch.float64) for name, size in sizes.items()}


def both(tensors: Dict[str, Tensor], case: Any, path: str, unit: float = 0.0) -> Tensor:
    given: Dict[str, Any] = {**tensors, "first": case[4], "chunk_size": case[5], "base": 100.0, "eps": 1e-5}
    found = normalized_query_key(**given, unit=unit, path=path)
    return torch.cat(found, dim=-1)


def test_the_definition_turns_pairs_by_the_angle_of_their_position():
    case = (1, 6, 1, 4, 2, 3)
    tensors = numbers(case)
    normed = tensors["x"] / (tensors["x"].square().mean(-1, keepdim=True) + 1e-5).sqrt()
    found = both(tensors, case, "reference").unflatten(-1, (2, 4))
    for step in range(6):
        for kind in range(2):
            v = normed[0, step] * tensors["scale"][kind, 0] + tensors["offset"][kind, 0]
            for pair in range(2):
                angle = torch.tensor((2 + step) % 3 * 100.0 ** (-pair / 2), dtype=torch.float64)
                a, b = v[2 * pair], v[2 * pair + 1]
                want = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()])
                torch.testing.assert_close(found[0, step, kind, 2 * pair : 2 * pair + 2], want)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("unit", [0.0, 0.3])
def test_the_kernel_equals_the_definition(case, dtype, unit, any_kernels):
    plain = numbers(case)
    rounded = {name: tensor.to(dtype if name == "x" else torch.float32) for name, tensor in plain.items()}
    results = []
    for path, kind in (("native", None), ("reference", torch.float64), ("reference", None)):
        device = any_kernels if path == "native" else "cpu"
        moved = {name: tensor.to(device) for name, tensor in rounded.items()}
        inputs = {name: leaves({name: tensor}, kind or tensor.dtype)[name] for name, tensor in moved.items()}
        out = both(inputs, case, path, unit)
        results.append((out.cpu(), {name: gradient.cpu() for name, gradient in gradients(out, inputs).items()}))
    (out, found), (want, exact), (baseline, usual) = results
    assert out.dtype == dtype
    assert_close("query and key", out, want, baseline)
    for name in plain:
        assert found[name].dtype == rounded[name].dtype
        got, expected = found[name].to(dtype), usual[name].to(dtype)  # sums over upstream gradients of that precision
        assert_close(f"gradient of {name}", got, exact[name], expected, GRADIENT_FACTOR)


@needs_kernels
def test_strides_and_empty_sequences(kernel_device):
    tensors = {name: tensor.float().to(kernel_device) for name, tensor in numbers((2, 7, 2, 6, 0, 4)).items()}
    for x in (tensors["x"].transpose(0, 1), tensors["x"][:, ::2], tensors["x"][:, :0], tensors["x"][:0]):
        inputs = leaves({**tensors, "x": x}, torch.float32)
        got, want = (both({**inputs, "x": x}, (0, 0, 0, 0, 1, 4), path) for path in ("native", "reference"))
        torch.testing.assert_close(got, want)
        found = gradients(both(inputs, (0, 0, 0, 0, 1, 4), "native"), inputs)
        for name, expected in gradients(both(inputs, (0, 0, 0, 0, 1, 4), "reference"), inputs).items():
            torch.testing.assert_close(found[name], expected, msg=name)


@needs_kernels
def test_results_need_not_be_kept():
    inputs = leaves(numbers((2, 30, 1, 8, 0, 16)), torch.float32)
    kept = set()

    def keep(tensor: Tensor) -> Tensor:
        kept.add(tensor.data_ptr())
        return tensor

    found = []
    for call in (recomputing, lambda function, *arguments: function(*arguments)):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            query, key = normalized_query_key(**inputs, first=0, chunk_size=16, base=100.0, eps=1e-5, path="native")
        out = call(torch.bmm, query, key.transpose(1, 2))
        assert kept >= {tensor.data_ptr() for tensor in inputs.values()}
        assert kept.isdisjoint({query.data_ptr(), key.data_ptr()})
        found.append(gradients(out, inputs))
    for name in inputs:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=0, atol=0, msg=name)


def test_rotation_keeps_lengths_and_depends_on_distances_alone():
    q, k = torch.randn(2, 1, 40, 8, dtype=torch.float64)
    q, k = (rotate(x[:, :1].expand(-1, 40, -1), 0, -1, 1e4) for x in (q, k))
    scores = torch.matmul(q, k.mT)
    for distance in (0, 3, 17):
        diagonal = scores.diagonal(distance, 1, 2)
        torch.testing.assert_close(diagonal, diagonal[:, :1].expand_as(diagonal))


@torch.no_grad()
def test_an_export_leaves_nothing_behind():
    """The tables of its tensors without numbers belong to it alone."""

    class Turned(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return rotate(x, 0, -1, 77.0)  # a base that no other test has

    x = torch.randn(1, 5, 1, 6)
    exported = torch.export.export(Turned(), (x,)).module()(x)
    torch.testing.assert_close(rotate(x, 0, -1, 77.0), exported)
