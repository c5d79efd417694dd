"""The timestep norm over streams: pieces, statistics that are handed on, digits far from zero and late in a stream."""

import pytest
import torch

from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from tests.ops.timestep_norm_cases import COUNTS, compare, draw, exact, run
from tests.support.numerics import assert_close, gradients, leaves


def check_pieces(path, device, pieces):
    """The whole sequence in pieces, the statistics handed on: outputs, statistics, and gradients through them."""
    tensors = draw(70)
    want_inputs = leaves(tensors, torch.float64)
    want = run(want_inputs, "reference")
    inputs = leaves({name: value.to(device) for name, value in tensors.items()}, torch.float32)
    outputs, state = [], {"mean": inputs["mean"], "variance": inputs["variance"]}
    counts = COUNTS
    for piece in inputs["x"].split(pieces, dim=1):
        found = run({**inputs, **state, "x": piece}, path, counts)
        outputs.append(found["y"])
        state = {name: found[name] for name in state}
        counts = tuple(count + piece.size(1) for count in counts)
    got = {"y": torch.cat(outputs, dim=1), **state}
    for name, value in want.items():
        error = (got[name].cpu().double() - value).abs().max()
        assert error < 2e-5, f"{name}: {error:.3g}"
    join = lambda results: torch.cat([value.flatten() for value in results.values()])
    want_gradients = gradients(join(want), want_inputs)
    for name, value in gradients(join(got).cpu(), inputs).items():
        assert_close(f"gradient of {name}", value.cpu(), want_gradients[name])


PIECES = [(1,) * 70, (64, 6), (1, 65, 4), (33, 37)]


@pytest.mark.parametrize("pieces", PIECES)
def test_pieces_equal_the_whole_in_kernels(pieces, kernel_device):
    check_pieces("native", kernel_device, pieces)


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("path", ["reference", "torch"])
def test_pieces_equal_the_whole(path, pieces):
    check_pieces(path, "cpu", pieces)


def check_digits(path, device):
    """Far from zero and late in a stream, nothing is lost."""
    generator = torch.Generator().manual_seed(5)
    for length, count, shift in ((20_000, 0, 0.0), (4_000, 1_000_000, 2.0)):
        x = (1000.0 + shift + torch.randn(1, length, 8, generator=generator)).to(device)
        mean = torch.full((1, 2), 1000.0, device=device)
        state = TimestepNormState(torch.tensor([count], device=device), mean, torch.ones_like(mean))
        zero = torch.zeros(8, device=device)
        y, state = timestep_norm(x, zero, zero, 2, state=state, path=path)
        want_y, want_mean, want_variance = exact(x.cpu(), 2, 1000.0, count, 1000.0, 1.0)
        assert (y.cpu().double() - want_y).abs().max() < 3e-6
        assert (state.mean.cpu() - want_mean).abs().max() < 1e-6  # half a unit in the last place of 1000 is 3e-5
        assert (state.variance.cpu() - want_variance).abs().max() < 2e-6
        assert state.count.item() == count + length


def test_digits_of_kernels(kernel_device):
    check_digits("native", kernel_device)


def test_digits_of_torch():
    check_digits("torch", "cpu")


def test_a_jump_costs_no_digits_in_kernels(kernel_device):
    """A first step far away from the others: sums of squares around it would cancel."""
    tensors = draw(100)
    tensors["x"][:, 0] += 3e3
    compare(tensors, torch.float32, "native", kernel_device, counts=(0,) * len(COUNTS))


def test_a_jump_costs_no_digits_in_torch():
    tensors = draw(100)
    tensors["x"][:, 70:] += 3e3
    compare(tensors, torch.float32, "torch", counts=(0,) * len(COUNTS))


def test_empty_input_leaves_the_state():
    tensors = draw(0)
    out = run(tensors, None)
    assert out["y"].shape == (len(COUNTS), 0, 24)
    assert torch.equal(out["mean"], tensors["mean"])


def test_fresh_stream_ignores_statistics_without_weight():
    tensors = draw(6)
    want, _ = timestep_norm(tensors["x"], tensors["weight"], tensors["bias"], 2, path="torch")
    got = run(tensors, "torch", counts=(0,) * len(COUNTS))["y"]
    torch.testing.assert_close(got, want)


def test_kernels_ignore_statistics_without_weight(kernel_device):
    """However large they are: nothing of them may be left after rounding."""
    tensors = {name: value.float().to(kernel_device) for name, value in draw(6).items()}
    fresh = (0,) * len(COUNTS)
    want = run({**tensors, "mean": 0 * tensors["mean"], "variance": 0 * tensors["variance"]}, "native", fresh)
    got = run({**tensors, "mean": tensors["mean"] + 1e20, "variance": tensors["variance"] + 1e20}, "native", fresh)
    for name, value in want.items():
        assert torch.equal(got[name], value), name
