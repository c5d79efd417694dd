"""The contract of the timestep norm's paths: values, statistics and every gradient are those of its recurrence."""

import math
from typing import Tuple

import pytest
import torch

from fairseq_mega.ops.timestep_norm import TimestepNormState, timestep_norm
from fairseq_mega.ops.timestep_norm.native import timestep_norm_native
from tests.ops.timestep_norm_cases import COUNTS, LENGTHS, SHAPES, compare, draw, exact, padding, run
from tests.support.kernels import KERNELS, KINDS, select
from tests.support.numerics import assert_close, gradients, leaves

ALL = ("reference", "torch", *KERNELS)
FAST = ALL[1:]


@pytest.fixture
def choose(request, monkeypatch):
    """Return the path and the device of a name of ALL."""

    def chosen(name):
        if name in ALL[:2]:
            return name, torch.device("cpu")
        torch.use_deterministic_algorithms(True, warn_only=True)  # NaN in what the extension allocates
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
        return "native", select(name, request, monkeypatch)

    return chosen


@pytest.fixture(params=ALL)
def any_path(request, choose):
    return choose(request.param)


@pytest.fixture(params=FAST)
def fast_path(request, choose):
    return choose(request.param)


@pytest.fixture(params=KINDS)
def kernels(request, choose):
    return choose(request.param)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("width", "groups"), SHAPES)
def test_equals_the_recurrence(width, groups, length, fast_path):
    path, device = fast_path
    tensors = draw(length, width, groups)
    compare(tensors, torch.float32, path, device)
    if path == "torch" and (width, groups) in SHAPES[:3]:
        compare(tensors, torch.float64, path, device)


@pytest.mark.parametrize(("batch", "length"), [(520, 70), (1, 2180)])
def test_many_sequences_or_tiles(batch, length, kernels):
    """Kernels are right where a full GPU has one block for all tiles, and where every tile has its own block."""
    counts = tuple(COUNTS[i % len(COUNTS)] for i in range(1, batch + 1))
    path, device = kernels
    compare(draw(length, 8, 1, batch), torch.float32, path, device, counts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, fast_path):
    path, device = fast_path
    compare(draw(67, 80, 2), dtype, path, device, mask=padding("interior", 67))


@pytest.mark.parametrize("kind", ["left", "right", "interior", "one", "everything"])
@pytest.mark.parametrize("length", [7, 65, 131])
def test_padding(kind, length, fast_path):
    path, device = fast_path
    compare(draw(length), torch.float32, path, device, mask=padding(kind, length))
    if path == "torch":
        compare(draw(length), torch.float64, "torch", mask=padding(kind, length))


def test_padding_is_never_seen(any_path):
    path, device = any_path
    mask = padding("interior", 40).to(device)
    tensors = {name: value.to(device) for name, value in draw(40).items()}
    clean, spoilt = leaves(tensors, torch.float32), leaves(tensors, torch.float32)
    want = run(clean, path, mask=mask)
    with torch.no_grad():
        spoilt["x"].masked_fill_(mask.unsqueeze(-1), math.nan)
    got = run(spoilt, path, mask=mask)
    assert (got["y"].masked_select(mask.unsqueeze(-1)) == 0).all()
    for name, value in want.items():
        assert torch.equal(got[name], value), name
    want_gradients = gradients(want["y"].cpu(), clean)
    for name, value in gradients(got["y"].cpu(), spoilt).items():
        assert torch.equal(value, want_gradients[name]), f"gradient of {name}"
    found = torch.autograd.grad(run(spoilt, path, mask=mask)["y"].sum(), spoilt["x"])[0]
    assert (found.masked_select(mask.unsqueeze(-1)) == 0).all()


def test_no_digit_is_lost_in_a_long_stream(fast_path):
    """Far from zero and late in a stream, nothing is lost."""
    path, device = fast_path
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


@pytest.mark.parametrize("jump", [slice(0, 1), slice(70, None)])
def test_a_jump_costs_no_digits(jump, fast_path):
    """A first step far away from the others: sums of squares around it would cancel."""
    path, device = fast_path
    tensors = draw(100)
    tensors["x"][:, jump] += 3e3
    compare(tensors, torch.float32, path, device, counts=(0,) * len(COUNTS))


def test_a_fresh_stream_ignores_statistics_without_weight(any_path):
    """However large they are: nothing of them may be left after rounding."""
    path, device = any_path
    tensors = {name: value.float().to(device) for name, value in draw(6).items()}
    fresh = (0,) * len(COUNTS)
    want = run({**tensors, "mean": 0 * tensors["mean"], "variance": 0 * tensors["variance"]}, path, fresh)
    got = run({**tensors, "mean": tensors["mean"] + 1e20, "variance": tensors["variance"] + 1e20}, path, fresh)
    for name, value in want.items():
        assert torch.equal(got[name], value), name


# The statistics are carried in float64: no call rounds them, however many there are.
BATCH, LENGTH, GROUPS, FEATURES, COUNT = 2, 5, 3, 4, 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_call_rounds_the_statistics(dtype, any_path):
    """Groups of equal features, whose mean and variance have no rounding of their own, against sums in float64."""
    path, device = any_path
    generator = torch.Generator().manual_seed(2)
    values = torch.randint(90, 110, (BATCH, LENGTH, GROUPS), generator=generator)
    x = values.repeat_interleave(FEATURES, dim=-1).to(device, dtype)
    before = torch.rand(4, BATCH, GROUPS, generator=generator, dtype=torch.float64)
    mean, variance = (100 + before[0]).requires_grad_(), (1 + before[1]).requires_grad_()
    count = torch.full((BATCH,), COUNT, device=device)
    zero = torch.zeros(GROUPS * FEATURES, device=device)
    carried = TimestepNormState(count, mean.to(device), variance.to(device))
    y, state = timestep_norm(x, zero, zero, GROUPS, state=carried, path=path)
    assert y.dtype == dtype
    got = [state.mean.cpu(), state.variance.cpu()]
    got += torch.autograd.grad(got, (mean, variance), list(before[2:]))
    _, *want = exact(x.cpu(), GROUPS, 100.0, COUNT, mean.unsqueeze(1), variance.unsqueeze(1))
    want += torch.autograd.grad(want, (mean, variance), list(before[2:]))
    # A kernel's backward pass has the way of a mean in float32: 1e-9 here, where a rounded gradient is off by 3e-8.
    bounds = {"mean": 1e-13, "variance": 1e-13, "gradient of mean": 5e-9, "gradient of variance": 5e-9}
    for (name, bound), value, expected in zip(bounds.items(), got, want):
        assert value.dtype == torch.float64, name
        error = (value - expected).abs().max()
        assert error <= bound, f"{name}: {error:.3g}"


@pytest.mark.parametrize("name", ["reference", "torch", "cpu"])
@torch.no_grad()
def test_no_single_step_rounds_the_statistics(name, choose):
    """Without gradients a CPU has a kernel for them."""
    path, _ = choose(name)
    generator = torch.Generator().manual_seed(2)
    values = torch.randint(90, 110, (BATCH, 50, GROUPS), generator=generator)
    x, zero, state = values.repeat_interleave(FEATURES, dim=-1).float(), torch.zeros(12), None
    for step in x.split(1, dim=1):
        _, state = timestep_norm(step, zero, zero, GROUPS, state=state, path=path)
    _, mean, variance = exact(x, GROUPS, 100.0)
    assert state is not None and state.count.tolist() == [50] * BATCH
    assert (state.mean - mean).abs().max() <= 1e-12 and (state.variance - variance).abs().max() <= 1e-12


@pytest.mark.parametrize("path", ["reference", "torch", None])
@pytest.mark.parametrize("length", [0, 2])
def test_statistics_of_less_precision_are_widened(path, length):
    mean, variance = torch.rand(2, BATCH, 1).requires_grad_()
    zero = torch.zeros(FEATURES)
    state = TimestepNormState(torch.full((BATCH,), COUNT), mean, variance)
    y, state = timestep_norm(torch.rand(BATCH, length, FEATURES), zero, zero, 1, state=state, path=path)
    assert y.dtype == torch.float32 and state.mean.dtype == state.variance.dtype == torch.float64
    found = torch.autograd.grad(state.mean.sum() + state.variance.sum(), (mean, variance))
    assert all(gradient.dtype == torch.float32 and gradient.abs().min() > 0.9 for gradient in found)


@pytest.mark.parametrize("groups", [1, 4, 12])
@pytest.mark.parametrize("away", [0.0, 1000.0])
@torch.no_grad()
def test_single_steps(away, groups, choose):
    """Their kernel's results are the reference's from unused statistics of any value, and from used ones."""
    path, _ = choose("cpu")
    tensors = draw(5, 12, groups)
    tensors.update(x=away + tensors["x"], mean=away + tensors["mean"])
    results = []
    for name, dtype in ((path, torch.float32), ("reference", torch.float64), ("reference", torch.float32)):
        given, outputs = {key: value.to(dtype) for key, value in tensors.items()}, []
        counts: Tuple[int, ...] = COUNTS
        for step in given["x"].split(1, dim=1):
            found = run({**given, "x": step}, name, counts)
            outputs.append(found["y"])
            given.update(mean=found["mean"], variance=found["variance"])
            counts = tuple(count + 1 for count in counts)
        results.append((torch.cat(outputs, dim=1), given["mean"].to(dtype), given["variance"].to(dtype)))
    for part, *found in zip(("y", "mean", "variance"), *results):
        assert_close(part, *found)


@pytest.mark.parametrize("name", KINDS[1:])
def test_kernels_for_gpus_write_a_second_result_in_bfloat16(name, choose):
    _, device = choose(name)
    tensors = leaves({key: value.to(device) for key, value in draw(70).items()}, torch.float32)
    x, weight, bias, mean, variance = tensors.values()
    state = TimestepNormState(torch.tensor(COUNTS, device=device), mean.double(), variance.double())
    y, second, _ = timestep_norm_native(x, weight, bias, 2, state, None, 1e-5, narrow=True)
    assert torch.equal(second, y.bfloat16())
    grad = torch.randn_like(y)
    found = torch.autograd.grad((y, second), (x, weight, bias), (grad, grad.bfloat16()))
    y, _, _ = timestep_norm_native(x, weight, bias, 2, state, None, 1e-5)
    want = torch.autograd.grad(y, (x, weight, bias), grad + grad.bfloat16())
    assert all(map(torch.equal, found, want))


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 4)])
def test_another_shape_is_an_error_of_python(shape) -> None:
    with pytest.raises(ValueError, match="x must be"):
        timestep_norm(torch.ones(shape), torch.ones(8), torch.ones(8), 2)


def test_kernels_are_the_choice_where_they_can_be(kernels):
    path, device = kernels
    tensors = {name: value.float().to(device) for name, value in draw(20).items()}
    assert torch.equal(run(tensors, None)["y"], run(tensors, path)["y"])
