"""The timestep norm's paths against its recurrence: values, final statistics, every gradient."""

import math

import pytest
import torch

from fairseq_mega.ops import native
from fairseq_mega.ops.timestep_norm import PATHS, TimestepNormState, timestep_norm
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves, once

LENGTHS = (1, 2, 7, 64, 65, 131)
SHAPES = ((24, 1), (24, 2), (24, 24), (80, 2), (320, 1), (27, 9))  # D, G: groups of 24, 12, 1, 40, 320 and 3 features
COUNTS = (0, 5, 3, 0, 40, 1)  # of the sequences; where it is 0, the carried mean and variance play no part
BATCH = len(COUNTS)


def draw(length, width=24, groups=2, batch=BATCH, seed=3):
    """Parameters, input and carried statistics in float64."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    return {
        "x": normal(batch, length, width) * 1.5 + 0.7,
        "weight": 0.5 * normal(width),
        "bias": 0.5 * normal(width),
        "mean": normal(batch, groups),
        "variance": 0.2 + normal(batch, groups).square(),
    }


def call(tensors, path, count, mask=None):
    """y and the new state of one call."""
    state = TimestepNormState(count, tensors["mean"], tensors["variance"])
    groups = tensors["mean"].size(1)
    return timestep_norm(
        tensors["x"], tensors["weight"], tensors["bias"], groups, state=state, padding_mask=mask, path=path
    )


def run(tensors, path, counts=COUNTS, mask=None):
    """y, mean and variance of one call; its count is checked here."""
    count = torch.tensor(counts, device=tensors["x"].device)
    y, state = call(tensors, path, count, mask)
    steps = tensors["x"].size(1) if mask is None else (~mask).sum(1)
    assert torch.equal(state.count, count + steps)
    return {"y": y, "mean": state.mean, "variance": state.variance}


def gradients_from_all(outputs, inputs, dtype):
    """Gradients where every output has a random one, that of y exact in `dtype`."""
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(value.shape, generator=generator).to(dtype).to(value) for value in outputs.values()]
    found = torch.autograd.grad(list(outputs.values()), list(inputs.values()), grads)
    return dict(zip(inputs, found))


def outputs_and_gradients(tensors, x_dtype, precision, dtype, path, device, counts, mask):
    """Both by name, with x in ``x_dtype``, all else in ``precision``, and y's gradient exact in ``dtype``."""
    inputs = leaves({name: value.to(device) for name, value in tensors.items()}, precision)
    inputs["x"] = inputs["x"].detach().to(x_dtype).requires_grad_()
    outputs = run(inputs, path, counts, None if mask is None else mask.to(device))
    assert outputs["y"].dtype == x_dtype
    found = gradients_from_all(outputs, inputs, dtype)
    return tuple({name: value.detach().cpu() for name, value in part.items()} for part in (outputs, found))


def compare(tensors, dtype, path, device="cpu", counts=COUNTS, mask=None):
    """Run a path with x in `dtype` and compare with the recurrence in float64."""
    tensors = {**tensors, "x": tensors["x"].to(dtype).double()}  # the same numbers in every precision
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    want, baselines = (
        once(outputs_and_gradients, tensors, *precisions, dtype, "reference", "cpu", counts, mask)
        for precisions in ((torch.float64, torch.float64), (dtype, wide))
    )
    got = outputs_and_gradients(tensors, dtype, wide, dtype, path, device, counts, mask)
    for index, factor in ((0, OUTPUT_FACTOR), (1, GRADIENT_FACTOR)):
        for name, value in want[index].items():
            label = name if index == 0 else f"gradient of {name}"
            baseline = None if dtype == torch.float64 else baselines[index][name]  # no truth is that exact
            assert_close(label, got[index][name], value, baseline, factor)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("width", "groups"), SHAPES)
def test_kernels_equal_recurrence(width, groups, length, kernel_device):
    compare(draw(length, width, groups), torch.float32, "native", kernel_device)


@pytest.mark.parametrize(("batch", "length"), [(520, 70), (1, 2180)])
def test_kernels_with_many_sequences_or_tiles(batch, length, kernel_device):
    """Where a GPU is full, a block goes through all tiles; where it is not, every tile has a block of its own."""
    counts = tuple(COUNTS[i % len(COUNTS)] for i in range(1, batch + 1))
    compare(draw(length, 8, 1, batch), torch.float32, "native", kernel_device, counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("width", "groups"), SHAPES[:3])
def test_torch_equals_recurrence(width, groups, length, dtype):
    compare(draw(length, width, groups), dtype, "torch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_in_half_precision(dtype, kernel_device):
    mask = padding("interior", 67)
    compare(draw(67, 80, 2), dtype, "native", kernel_device, mask=mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torch_in_half_precision(dtype):
    compare(draw(67, 80, 2), dtype, "torch", mask=padding("interior", 67))


def padding(kind, length):
    """Masks that differ between even and odd sequences; `one` leaves a single step."""
    mask = torch.zeros(len(COUNTS), length, dtype=torch.bool)
    if kind == "left":
        mask[::2, : length // 2] = True
        mask[1::2, : length // 4] = True
    elif kind == "right":
        mask[::2, length // 2 :] = True
        mask[1::2, length - 1 :] = True
    elif kind == "interior":
        mask[:, 2::3] = True
        mask[1::2, length // 4 : length // 2] = True
    elif kind == "one":
        mask[:] = True
        mask[:, length // 2] = False
    else:
        mask[:] = True
    return mask


@pytest.mark.parametrize("kind", ["left", "right", "interior", "one", "everything"])
@pytest.mark.parametrize("length", [7, 65, 131])
def test_padding_in_kernels(kind, length, kernel_device):
    compare(draw(length), torch.float32, "native", kernel_device, mask=padding(kind, length))


@pytest.mark.parametrize("kind", ["left", "right", "interior", "one", "everything"])
@pytest.mark.parametrize("length", [7, 65])
def test_padding_in_torch(kind, length):
    compare(draw(length), torch.float64, "torch", mask=padding(kind, length))
    compare(draw(length), torch.float32, "torch", mask=padding(kind, length))


def check_that_padding_is_never_seen(path, device):
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


def test_padding_is_never_seen_by_kernels(kernel_device):
    check_that_padding_is_never_seen("native", kernel_device)


@pytest.mark.parametrize("path", ["reference", "torch"])
def test_padding_is_never_seen(path):
    check_that_padding_is_never_seen(path, "cpu")


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


def exact(x, groups, count=0, mean=0.0, variance=0.0):
    """Normalised x by sums in float64 (weight and bias 0), independent of the recurrence."""
    values = x.double().unflatten(-1, (groups, -1)) - 1000.0
    n = count + torch.arange(1, x.size(1) + 1, dtype=torch.float64).view(1, -1, 1)
    sums = values.mean(-1).cumsum(1) + count * (mean - 1000.0)
    squares = values.square().mean(-1).cumsum(1) + count * (variance + (mean - 1000.0) ** 2)
    means = sums / n
    variances = squares / n - means.square()
    y = (values - means.unsqueeze(-1)) / (variances + 1e-5).sqrt().unsqueeze(-1)
    return y.flatten(2), means[:, -1] + 1000.0, variances[:, -1]


def check_digits(path, device):
    """Far from zero and late in a stream, nothing is lost but the rounding of the returned mean."""
    generator = torch.Generator().manual_seed(5)
    for length, count, shift in ((20_000, 0, 0.0), (4_000, 1_000_000, 2.0)):
        x = (1000.0 + shift + torch.randn(1, length, 8, generator=generator)).to(device)
        mean = torch.full((1, 2), 1000.0, device=device)
        state = TimestepNormState(torch.tensor([count], device=device), mean, torch.ones_like(mean))
        zero = torch.zeros(8, device=device)
        y, state = timestep_norm(x, zero, zero, 2, state=state, path=path)
        want_y, want_mean, want_variance = exact(x.cpu(), 2, count, 1000.0, 1.0)
        assert (y.cpu().double() - want_y).abs().max() < 3e-6
        assert (state.mean.cpu().double() - want_mean).abs().max() < 4e-5  # half a unit in the last place of 1000
        assert (state.variance.cpu().double() - want_variance).abs().max() < 2e-6
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


def test_kernels_take_any_layout(kernel_device):
    tensors = {name: value.float().to(kernel_device) for name, value in draw(9).items()}
    want = run(tensors, "native")["y"]
    tensors["x"] = tensors["x"].transpose(0, 1).contiguous().transpose(0, 1)
    tensors["mean"] = tensors["mean"].t().contiguous().t()
    assert torch.equal(run(tensors, "native")["y"], want)


def test_kernels_repeat_themselves_bit_by_bit(kernel_device):
    results = []
    for _ in range(2):
        inputs = leaves({name: value.to(kernel_device) for name, value in draw(131).items()}, torch.float32)
        outputs = run(inputs, "native")
        results.append([*outputs.values(), *gradients(outputs["y"].cpu(), inputs).values()])
    assert all(torch.equal(first, second) for first, second in zip(*results))


def test_gradcheck():
    inputs = leaves(draw(5, 4, 2), torch.float64)
    names = list(inputs)
    mask = padding("interior", 5)

    def outputs(*values):
        return tuple(run(dict(zip(names, values)), "torch", mask=mask).values())

    assert torch.autograd.gradcheck(outputs, tuple(inputs.values()))


GOLDEN_FIRST = [2.264182, 1.341406, -0.681409, -1.127257, -1.206937, 0.444995, 1.887516, -0.186353]
GOLDEN_LAST = [-0.216537, -1.235175, 0.128369, 0.783967, 0.109611, -0.097327, -1.346475, -1.548377]


def check_golden_values(path, device):
    """Row "timestep norm" of the published arithmetic: parameters 0.5 sin(1), 0.5 sin(2), ..., x a cosine wave."""
    t, b, j = torch.arange(6.0)[None, :, None], torch.arange(2.0)[:, None, None], torch.arange(8.0)[None, None]
    x = torch.cos(0.3 * t + 0.7 * b + 1.1 * j).to(device)
    parameter = 0.5 * torch.sin(torch.arange(1.0, 9.0)).to(device)
    y, _ = timestep_norm(x, parameter, parameter, 2, path=path)
    torch.testing.assert_close(y[0, 0].cpu(), torch.tensor(GOLDEN_FIRST), atol=2e-5, rtol=0)
    torch.testing.assert_close(y[1, 5].cpu(), torch.tensor(GOLDEN_LAST), atol=2e-5, rtol=0)
    assert y.double().sum().item() == pytest.approx(-14.180963, abs=2e-5)


def test_golden_values_of_kernels(kernel_device):
    check_golden_values("native", kernel_device)


@pytest.mark.parametrize("path", ["reference", "torch"])
def test_golden_values(path):
    check_golden_values(path, "cpu")


@pytest.mark.parametrize("masked", [False, True])
def test_operators_are_registered_properly(masked, kernel_device):
    inputs = leaves({name: value.to(kernel_device) for name, value in draw(5).items()}, torch.float32)
    count = torch.tensor(COUNTS, device=kernel_device)
    mask = padding("interior", 5).to(kernel_device) if masked else None
    tensors = (inputs["x"], inputs["weight"], inputs["bias"], count, inputs["mean"], inputs["variance"], mask, 1e-5)
    torch.library.opcheck(native.operators.timestep_norm.default, tensors)
    x, mean = inputs["x"].detach(), inputs["mean"].detach()
    rest = [value.detach() if isinstance(value, torch.Tensor) else value for value in tensors[3:]]
    backward = native.operators.timestep_norm_backward.default
    torch.library.opcheck(backward, (torch.ones_like(x), mean, mean, x, inputs["weight"].detach(), *rest))


@pytest.mark.parametrize("path", ["torch", "native"])
def test_compiles_without_a_break(path, kernel_device):
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    mask = padding("interior", 9).to(kernel_device)
    results = []
    for function in (call, compiled):
        inputs = leaves({name: value.to(kernel_device) for name, value in draw(9).items()}, torch.float32)
        y, state = function(inputs, path, torch.tensor(COUNTS, device=kernel_device), mask)
        results.append([y, *state, *gradients(y.cpu(), inputs).values()])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


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


def test_errors(monkeypatch):
    tensors = {name: value.float() for name, value in draw(4).items()}
    x, weight, bias = tensors["x"], tensors["weight"], tensors["bias"]
    with pytest.raises(ValueError, match="7 groups .norm_num_groups. do not divide 24"):
        timestep_norm(x, weight, bias, 7)
    with pytest.raises(ValueError, match="weight has shape"):
        timestep_norm(x, weight[1:], bias, 2)
    with pytest.raises(ValueError, match=r"padding mask has shape .*expected \(6, 4\)"):
        timestep_norm(x, weight, bias, 2, padding_mask=torch.zeros(6, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="must be bool"):
        timestep_norm(x, weight, bias, 2, padding_mask=torch.zeros(6, 4))
    with pytest.raises(ValueError, match="count must be int64"):
        run({**tensors}, None, counts=(0.5,) * len(COUNTS))
    with pytest.raises(ValueError, match="state mean has shape"):
        timestep_norm(x, weight, bias, 2, state=TimestepNormState(torch.zeros(6).long(), x[:, 0], x[:, 0]))
    monkeypatch.setenv(PATHS.variable, "fastest")
    with pytest.raises(ValueError, match=f"{PATHS.variable}.*choose from"):
        timestep_norm(x, weight, bias, 2)
    monkeypatch.setattr(native, "PROBLEM", "it is missing in this test")
    monkeypatch.setenv(PATHS.variable, "native")
    with pytest.raises(RuntimeError, match="needs the compiled kernels.*build it with"):
        timestep_norm(x, weight, bias, 2)
    monkeypatch.setattr(native, "PROBLEM", None)
    with pytest.raises(TypeError, match="float64"):
        timestep_norm(x.double(), weight, bias, 2)


def test_kernels_are_the_choice_where_they_can_be(kernel_device):
    tensors = {name: value.float().to(kernel_device) for name, value in draw(20).items()}
    assert torch.equal(run(tensors, None)["y"], run(tensors, "native")["y"])
    with pytest.raises(RuntimeError, match="must be float32"):
        native.operators.timestep_norm(
            tensors["x"],
            tensors["weight"].double(),
            tensors["bias"],
            torch.tensor(COUNTS, device=kernel_device),
            tensors["mean"],
            tensors["variance"],
            None,
            1e-5,
        )
