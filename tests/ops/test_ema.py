"""The EMA's paths against the recurrence: values, final state, every gradient.

A path is "torch_fft", or one by a set of compiled kernels: "native-cpu", "native_fft-simulator", "native-cuda", ...
"""

import math

import pytest
import torch

from fairseq_mega.ops.ema import ema_coefficients, ema_kernel, gated_ema, gated_ema_step
from fairseq_mega.ops.ema.coefficients import power_tables
from tests.ops.ema_cases import (
    BATCH,
    MODES,
    WIDTH,
    N,
    case,
    coefficients_of,
    compare,
    complex_parameters,
    parameters,
    run,
    signal,
)
from tests.support import kernels
from tests.support.numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

LENGTHS = (1, 2, 7, 31, 32, 33, 100)
SCANS = [f"native-{name}" for name in kernels.KERNELS]


@pytest.fixture(params=["torch_fft", *SCANS])
def any_path(request, kernel_choice):
    """Every fast path in turn, as (path, device)."""
    return kernel_choice(request.param)


@pytest.fixture
def kernel_choice(request, monkeypatch):
    """Selects the compiled kernels that a path's name asks for; returns (path, device)."""

    def choose(name):
        path, _, kernel = name.partition("-")
        return path, kernels.select(kernel, request, monkeypatch) if kernel else torch.device("cpu")

    return choose


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_paths_equal_recurrence(any_path, kind, mode, length):
    path, device = any_path
    tensors, options = case(mode, length, kind)
    compare(tensors, torch.float32, path, device, **options)
    if path == "torch_fft":
        compare(tensors, torch.float64, path, device, **options)


@pytest.mark.parametrize("path", ["native_fft-simulator", "native_fft-cuda"])
@pytest.mark.parametrize("mode", MODES)
def test_fft_in_shared_memory(kernel_choice, path, mode):
    path, device = kernel_choice(path)
    for kind in ("real", "complex"):
        tensors, options = case(mode, 50, kind)
        compare(tensors, torch.float32, path, device, **options)


@pytest.mark.parametrize("mode", ["carried", "two-way documents"])
@pytest.mark.parametrize("width, n", [(1, 3), (31, 1), (32, 16), (33, 17), (70, 5)])
@pytest.mark.parametrize("choice", ["torch_fft", *SCANS, "native_fft-simulator", "native_fft-cuda"])
def test_widths_and_dimensions(kernel_choice, choice, mode, width, n):
    path, device = kernel_choice(choice)
    for kind in ("real", "complex"):
        tensors, options = case(mode, 41, kind, width=width, n=n)
        assert tensors["x"].size(2) == width and tensors["alpha"].size(1) == n
        mask = torch.zeros(BATCH, 41, dtype=torch.bool)
        mask[0, :3] = mask[0, 20:22] = mask[1, 35:] = True
        compare(tensors, torch.float32, path, device, padding_mask=mask, **options)


@pytest.mark.parametrize("mode", ["causal", "carried", "shifted"])
def test_a_sequence_of_tiles(any_path, mode):
    """Long enough for every kernel to walk over several tiles, and for a GPU to split time over blocks."""
    path, device = any_path
    tensors, options = case(mode, 2311, batch=1)
    compare(tensors, torch.float32, path, device, **options)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("truncation", [1, 5, 32, 40, 99])
@pytest.mark.parametrize("choice", ["torch_fft", *SCANS, "native_fft-simulator", "native_fft-cuda"])
def test_truncation(kernel_choice, choice, truncation, bidirectional):
    path, device = kernel_choice(choice)
    dtype = torch.float64 if path == "torch_fft" else torch.float32
    reset_mask = torch.rand(BATCH, 45, generator=torch.Generator().manual_seed(3)) < 0.05
    for kind in ("real", "complex"):
        tensors, _ = case("shifted" if bidirectional else "causal", 45, kind)
        for shift in {False, bidirectional}:
            for masks in ({}, {"reset_mask": reset_mask}):
                options = {"truncation": truncation, "bidirectional": bidirectional, "shift": shift, **masks}
                compare(tensors, dtype, path, device, **options)


def test_truncation_limits_the_parallel_form_only(any_path):
    path, device = any_path
    tensors = {name: tensor.float().to(device) for name, tensor in {**parameters(), "x": signal(20)}.items()}
    limited, _ = run(tensors, path, truncation=5)
    unlimited, last = run(tensors, path, return_state=True)
    streamed, state = run(tensors, path, truncation=5, return_state=True)
    torch.testing.assert_close(limited[:, :5], unlimited[:, :5])
    assert (limited[:, 5:] - unlimited[:, 5:]).abs().max() > 1e-3
    torch.testing.assert_close(streamed, unlimited)
    torch.testing.assert_close(state, last)


ROWS = 6


def padding(length):
    """Mask of rows with padding on the left, on the right, inside, everywhere, on all sides, and nowhere."""
    mask = torch.zeros(ROWS, length, dtype=torch.bool)
    mask[0, :5] = mask[1, 9:] = mask[2, 3:7] = mask[3] = True
    mask[4, [0, 1, 4, 6, 7, length - 1]] = True
    return mask


@pytest.fixture(params=[False, True], ids=["looks", "never looks"])
def any_look(request, monkeypatch):
    """Padding is moved where that is necessary, as on a CPU, or always, as on a GPU and in compiled graphs."""
    if request.param:
        monkeypatch.setattr("fairseq_mega.ops.ema.must_move_padding", lambda *_: True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_paths_pass_over_padding(any_path, any_look, kind, mode):
    path, device = any_path
    tensors, options = case(mode, 13, kind, batch=ROWS)
    for mask in (padding(13), padding(13).flip(0), padding(13)[:, :1]):
        if mask.size(1) == 1:  # a single step
            tensors["x"] = tensors["x"][:, :1]
            options.update({name: value[:, :1] for name, value in options.items() if name == "reset_mask"})
        compare(tensors, torch.float32, path, device, padding_mask=mask, **options)
        if path == "torch_fft":
            compare(tensors, torch.float64, path, device, padding_mask=mask, **options)


@pytest.mark.parametrize("path", ["reference", "torch_fft"])
@pytest.mark.parametrize("truncation", [None, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_padding_does_not_exist(path, any_look, kind, mode, truncation):
    """A padded row is the row without its padded steps; a document begins at its first real step."""
    tensors, options = case(mode, 13, kind, batch=ROWS)
    mask = padding(13)
    rows = [name for name in ("x", "state", "state_imag") if name in tensors]
    filled = {**tensors, "x": tensors["x"].masked_fill(mask.unsqueeze(-1), math.nan)}
    y, last = run(filled, path, padding_mask=mask, truncation=truncation, **options)
    for row, absent in enumerate(mask):
        alone = {**tensors, **{name: tensors[name][row : row + 1] for name in rows}}
        alone["x"] = alone["x"][:, ~absent]
        own, began = options, torch.zeros(1, dtype=torch.bool)
        if "reset_mask" in options:
            documents = options["reset_mask"][row].cumsum(0)
            begins = documents[~absent].diff(prepend=documents.new_zeros(1)) > 0
            own = {**options, "reset_mask": begins.unsqueeze(0)}
            began = documents[-1] > documents.masked_fill(absent, 0).amax()  # a document, after the last real step
        want, state = run(alone, "reference", truncation=truncation, **own)
        torch.testing.assert_close(y[row, ~absent], want[0], msg=f"row {row}")
        if last is not None:
            torch.testing.assert_close(last[row], state[0].masked_fill(began, 0.0), msg=f"state of row {row}")


@pytest.mark.parametrize("path", ["reference", "torch_fft", "auto"])
def test_padding_outside_counts_as_zero(path, any_look):
    """Outputs at such padding are the published code's, which batch norm reads in training."""
    tensors = {**parameters(2 * WIDTH), "x": signal(12)}
    mask = torch.zeros(BATCH, 12, dtype=torch.bool)
    mask[0, 9:] = True
    mask[1, :4] = True
    out, _ = run(tensors, path, bidirectional=True, padding_mask=mask)
    tensors["x"] = tensors["x"].masked_fill(mask.unsqueeze(-1), 0.0)
    want, _ = run(tensors, "reference", bidirectional=True)
    torch.testing.assert_close(out, want)
    short, _ = run({**tensors, "x": tensors["x"][:1, :9]}, path, bidirectional=True)
    torch.testing.assert_close(out[:1, :9], short)


@pytest.mark.parametrize("kernels", SCANS)
def test_coefficients_are_the_definition(kernel_choice, kernels):
    """Also where alpha delta is near one and where it is near zero, to the digits that float32 has."""
    _, device = kernel_choice(kernels)
    logits = torch.tensor([-9.0, -4.0, -1.0, 0.0, 0.8, 1.0, 3.0, 8.0], dtype=torch.float64)
    alpha, delta = (grid.reshape(8, 8) for grid in torch.meshgrid(logits, logits, indexing="ij"))
    beta, eta = (torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    p, a = torch.sigmoid(alpha), torch.sigmoid(delta)
    want = torch.log1p(-p * a), p * beta, eta / 8**0.5
    assert (p * a).max() > 0.99 and (p * a).min() < 1e-7
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-6)):
        found = ema_coefficients(*(tensor.to(device, dtype) for tensor in (alpha, delta, beta, eta)))
        for got, exact in zip(found, want):
            torch.testing.assert_close(got.double().cpu(), exact, rtol=tolerance, atol=0)


@pytest.mark.parametrize("logit", [20.0, -20.0, 200.0, -200.0])
def test_extreme_decays_stay_finite(logit, any_path):
    path, device = any_path
    tensors = {**parameters(), "x": signal(50)}
    tensors["alpha"] = torch.full_like(tensors["alpha"], logit)
    tensors["delta"] = torch.full_like(tensors["delta"], logit)
    compare(tensors, torch.float32, path, device, return_state=True)


def test_slow_decays_keep_their_digits():
    """The float32 kernel of a slow decay agrees with float64 over 16,384 steps (plain 1 - p q loses four digits)."""
    tensors = parameters()
    tensors["alpha"], tensors["delta"] = tensors["alpha"] - 6.0, tensors["delta"] - 6.0
    names = ("alpha", "delta", "beta", "eta")
    want = ema_kernel(ema_coefficients(*(tensors[name] for name in names)), 16384)
    got = ema_kernel(ema_coefficients(*(tensors[name].float() for name in names)), 16384)
    assert_close("kernel", got, want)
    assert ((got.double() - want).norm() / want.norm()).item() < 2e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["carried", "bidirectional"])
def test_half_precision_computes_in_float32(any_path, mode, dtype):
    path, device = any_path
    tensors, options = case(mode, 300)
    tensors["alpha"] = tensors["alpha"] - 2.0
    rounded = {name: tensor.to(dtype).to(device) for name, tensor in tensors.items()}
    if "state" in rounded:
        rounded["state"] = rounded["state"].float()
    inputs = {name: tensor.detach().requires_grad_() for name, tensor in rounded.items()}
    y, state = run(inputs, path, **options)
    assert y.dtype == dtype and (state is None or state.dtype == torch.float32)
    exact = {name: tensor.detach().cpu().double().requires_grad_() for name, tensor in rounded.items()}
    want, last = run(exact, "reference", **options)
    assert_close("y", y.cpu(), want, want.to(dtype))
    if state is not None:
        assert_close("state", state.cpu(), last)
    found, expected = gradients(y.float(), inputs), gradients(want.to(dtype).double(), exact)
    for name, gradient in found.items():
        assert gradient.dtype == inputs[name].dtype
        assert_close(f"gradient of {name}", gradient.cpu(), expected[name], expected[name].to(dtype), GRADIENT_FACTOR)


def test_kernel_holds_no_table_over_time():
    """The two tables of powers grow with the root of the length, and so does what autograd keeps of them."""
    log_decay = torch.full((8, 16), -0.01, requires_grad=True)
    for length in (1, 2, 3, 1000, 65536, 1_000_000):
        coarse, fine = power_tables(log_decay, length)
        assert coarse.size(-1) * fine.size(-1) >= length
        assert coarse.size(-1) + fine.size(-1) <= 4 * int(length**0.5) + 2
    kept = []

    def note(tensor):
        kept.append(tensor.numel())
        return tensor

    coefficients = ema_coefficients(*(torch.randn(8, 16, requires_grad=True) for _ in range(4)))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        ema_kernel(coefficients, 65536)
    assert max(kept) <= 8 * 16 * 1024


def test_errors():
    tensors = {**parameters(), "x": signal(4)}
    with pytest.raises(ValueError, match="EMA: x must be"):
        run(tensors, None, bidirectional=True)
    with pytest.raises(ValueError, match="truncation must be at least 1.*found 0"):
        run(tensors, None, truncation=0)
    with pytest.raises(ValueError, match="FAIRSEQ_MEGA_PATHS"):
        run(tensors, "fast")
    with pytest.raises(ValueError, match="cannot carry a state"):
        run({**parameters(2 * WIDTH), "x": signal(4)}, None, bidirectional=True, return_state=True)


@pytest.mark.parametrize("mode", ["documents", "two-way documents", "shifted documents"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_borders_of_documents(kernel_device, kind, mode):
    """At the first, the second and the last step, where a scan's loops begin and end."""
    for places in ((0,), (1,), (-1,), (0, 1), (-2, -1), (0, 1, 32, -1)):
        tensors, options = case(mode, 34, kind)
        mask = torch.zeros(BATCH, 34, dtype=torch.bool)
        mask[0, list(places)] = True  # the other sequence is one document
        compare(tensors, torch.float32, "native", kernel_device, **{**options, "reset_mask": mask})


def test_transforms_may_map_over_masks():
    tensors, _ = case("causal", 9)
    masks = torch.zeros(BATCH, 9, dtype=torch.bool)
    masks[0, 3:5] = masks[1, :2] = True

    def loss(x, mask):
        y, state = run({**tensors, "x": x[None]}, "torch_fft", padding_mask=mask[None], return_state=True)
        return y[0, :, 0].masked_fill(mask, 0.0).square().sum() + state.sum()

    got = torch.vmap(torch.func.grad(loss))(tensors["x"], masks)
    for row, mask in enumerate(masks):
        x = tensors["x"][row].clone().requires_grad_()
        torch.testing.assert_close(got[row], torch.autograd.grad(loss(x, mask), x)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("activated", [False, True])
def test_one_fused_step(kernel_device, dtype, fresh, activated):
    tensors, _ = case("carried", 1)
    tensors["omega"] = torch.randn(WIDTH, dtype=torch.float64)
    if fresh:
        del tensors["state"]
    rounded = {name: tensor.to(dtype).to(kernel_device) for name, tensor in tensors.items()}
    if not fresh:
        rounded["state"] = rounded["state"].float()
    with torch.no_grad():
        given = (rounded["x"][:, 0], coefficients_of(rounded), rounded["omega"], rounded.get("state"))
        out, state = gated_ema_step(*given, activated=activated)
    exact = {name: tensor.cpu().double() for name, tensor in rounded.items()}
    y, last = run(exact, "reference", return_state=True)
    want = (y + exact["omega"] * exact["x"])[:, 0]
    want = torch.nn.functional.silu(want) if activated else want
    assert out.dtype == dtype
    assert_close("output", out.cpu(), want, want.to(dtype))
    assert_close("state", state.cpu(), last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("mode, padded", [("causal", False), ("carried", False), ("carried", True), ("shifted", True)])
def test_what_follows_the_scan(kernel_device, mode, padded, activated, dtype):
    """The skip connection and the SiLU, in the scan's kernel on a GPU."""
    tensors, options = case(mode, 150, batch=ROWS)
    tensors["omega"] = torch.randn(WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    if padded:
        options["padding_mask"] = padding(150)

    def outputs(tensors, path, dtype, device="cpu"):
        rounded = {
            name: tensor.to(device, tensor.dtype if name == "state" else dtype) for name, tensor in tensors.items()
        }
        inputs = {name: tensor.detach().requires_grad_() for name, tensor in rounded.items()}
        given = {name: value.to(device) if name == "padding_mask" else value for name, value in options.items()}
        y, state = gated_ema(
            inputs["x"],
            coefficients_of(inputs),
            inputs["omega"],
            activated=activated,
            state=inputs.get("state"),
            path=path,
            **given,
        )
        if padded:  # outputs at padding inside a row have no meaning
            y = y.masked_fill(given["padding_mask"].unsqueeze(-1), 0.0)
        found = {"y": y} if state is None else {"y": y, "state": state}
        of = torch.cat([value.flatten().to(y.dtype if state is None else state.dtype) for value in found.values()])
        made = gradients(of, inputs)
        return {**found, **{f"gradient of {name}": value for name, value in made.items()}}

    rounded = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    if "state" in rounded:
        rounded["state"] = rounded["state"].float()
    exact = {name: tensor.double() for name, tensor in rounded.items()}
    want, baseline = outputs(exact, "reference", torch.float64), outputs(rounded, "reference", dtype)
    found = outputs(rounded, "native", dtype, kernel_device)
    for name, value in want.items():
        got = (
            found[name].detach().to("cpu", dtype)
        )  # the argument of the SiLU is rounded, and so the gradient of the state
        assert_close(name, got, value.detach(), baseline[name].detach(), GRADIENT_FACTOR)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_no_subnormal_number_is_computed_with(kind, cpu_level):
    """Some CPUs are fifty times as slow with them; after the kernels torch counts them as before."""
    length, least = 600, torch.finfo(torch.float32).tiny
    tensors = parameters(WIDTH, N) if kind == "real" else complex_parameters(WIDTH, N)
    x = torch.zeros(1, length, WIDTH)
    x[:, 0] = 1.0  # and nothing else: the memory fades away
    inputs = leaves({"x": x, **tensors}, torch.float32)
    y, _ = run(inputs, "native")
    (found,) = torch.autograd.grad(y[:, -1].sum(), inputs["x"])
    assert (torch.full((), least) / 2).item() > 0
    reference, _ = run(inputs, "reference")
    (expected,) = torch.autograd.grad(reference[:, -1].sum(), inputs["x"])
    for got, want in ((y, reference), (found, expected)):
        assert ((want != 0) & (want.abs() < least)).any()
        assert not ((got != 0) & (got.abs() < least)).any()
