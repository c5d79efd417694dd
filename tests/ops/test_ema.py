"""The EMA's paths against the recurrence: values, final state, every gradient.

A path is "fft", or one by a set of compiled kernels: "scan-cpu", "fft_kernel-simulator", "scan-cuda", ...
"""

from typing import Any, Dict

import pytest
import torch
from numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves, once

from fairseq_mega.ops import native
from fairseq_mega.ops.ema import EMACoefficients, damped_ema, ema_coefficients, ema_kernel, gated_ema_step
from fairseq_mega.ops.ema.coefficients import power_tables
from fairseq_mega.ops.ema.fft import fast_fft_size
from tests import kernels

BATCH, WIDTH, N = 2, 3, 4
LENGTHS = (1, 2, 7, 31, 32, 33, 100)
SCANS = [f"scan-{name}" for name in kernels.KERNELS]
STREAMED = ("carried", "documents")
MODES = (*STREAMED, "causal", "bidirectional", "shifted", "two-way documents", "shifted documents")


@pytest.fixture(params=["fft", *SCANS])
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


def parameters(rows=WIDTH, n=N, spread=1.0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = {name: torch.randn(rows, n, generator=generator, dtype=torch.float64) for name in ("beta", "eta")}
    for name in ("alpha", "delta"):
        draw[name] = spread * torch.randn(rows, n, generator=generator, dtype=torch.float64)
    return draw


def complex_parameters(rows=WIDTH, n=N, seed=1):
    """Real parameters plus the angle of a step and the imaginary part of the projection."""
    generator = torch.Generator().manual_seed(seed + 100)
    extra = {name: torch.randn(rows, n, generator=generator, dtype=torch.float64) for name in ("theta", "eta_imag")}
    return {**parameters(rows, n, seed=seed), **extra}


def signal(length, batch=BATCH, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, WIDTH, generator=generator, dtype=torch.float64)


def coefficients_of(tensors):
    found = ema_coefficients(*(tensors[name] for name in ("alpha", "delta", "beta", "eta")))
    if "theta" not in tensors:
        return found
    eta = torch.complex(found.projection, tensors["eta_imag"])
    return EMACoefficients(torch.complex(found.log_decay, tensors["theta"]), found.expansion, eta)


def run(tensors, path, **options):
    state = tensors.get("state")
    if "state_imag" in tensors:
        state = torch.complex(state, tensors["state_imag"])
    return damped_ema(tensors["x"], coefficients_of(tensors), state=state, path=path, **options)


def outputs_and_gradients(tensors, dtype, path, device="cpu", **options):
    """Outputs by name, and the gradients of a projection of all of them."""
    inputs = leaves({name: tensor.to(device) for name, tensor in tensors.items()}, dtype)
    masks = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    y, state = run(inputs, path, **masks)
    outputs = {"y": y}
    if state is not None:
        outputs["state"] = torch.view_as_real(state) if state.is_complex() else state
    found = gradients(torch.cat([value.flatten() for value in outputs.values()]), inputs)
    return {name: value.detach().cpu() for name, value in outputs.items()}, {n: g.cpu() for n, g in found.items()}


def compare(tensors, dtype, path, device="cpu", **options):
    """Run a path in ``dtype`` and compare with the recurrence in float64: outputs, state and all gradients."""
    wanted = once(outputs_and_gradients, tensors, torch.float64, "reference", **options)
    baselines = once(outputs_and_gradients, tensors, dtype, "reference", **options)
    found = outputs_and_gradients(tensors, dtype, path, device, **options)
    # The rounding of an FFT goes with its largest terms, and no path can be measured by float64 in float64: RMS only.
    measured = dtype == torch.float32 and (path == "scan" or "theta" not in tensors)
    for kind, factor, *dictionaries in (
        ("", OUTPUT_FACTOR, wanted[0], baselines[0], found[0]),
        ("gradient of ", GRADIENT_FACTOR, wanted[1], baselines[1], found[1]),
    ):
        want, baseline, got = dictionaries
        for name in want:
            assert_close(kind + name, got[name], want[name], baseline[name] if measured else None, factor)


def case(mode, length, kind="real", batch=BATCH, seed=7):
    """Tensors and options of one comparison."""
    bidirectional = mode not in (*STREAMED, "causal")
    rows = 2 * WIDTH if bidirectional else WIDTH
    tensors = complex_parameters(rows, N) if kind == "complex" else parameters(rows, N)
    tensors["x"] = signal(length, batch)
    generator = torch.Generator().manual_seed(seed)
    if mode in STREAMED:
        for name in ("state", "state_imag")[: 2 if kind == "complex" else 1]:
            tensors[name] = torch.randn(batch, WIDTH, N, generator=generator, dtype=torch.float64)
    options: Dict[str, Any] = {"bidirectional": bidirectional, "shift": "shifted" in mode}
    options["return_state"] = mode in STREAMED
    if "documents" in mode:
        options["reset_mask"] = torch.rand(batch, length, generator=generator) < 0.2
    return tensors, options


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_paths_equal_recurrence(any_path, kind, mode, length):
    path, device = any_path
    tensors, options = case(mode, length, kind)
    compare(tensors, torch.float32, path, device, **options)
    if path == "fft":
        compare(tensors, torch.float64, path, device, **options)


@pytest.mark.parametrize("path", ["fft_kernel-simulator", "fft_kernel-cuda"])
@pytest.mark.parametrize("mode", MODES)
def test_fft_in_shared_memory(kernel_choice, path, mode):
    path, device = kernel_choice(path)
    for kind in ("real", "complex"):
        tensors, options = case(mode, 50, kind)
        compare(tensors, torch.float32, path, device, **options)


@pytest.mark.parametrize("mode", ["carried", "two-way documents"])
@pytest.mark.parametrize("width, n", [(1, 3), (31, 1), (32, 16), (33, 17), (70, 5)])
def test_widths_and_dimensions(any_path, mode, width, n, monkeypatch):
    path, device = any_path
    monkeypatch.setitem(globals(), "WIDTH", width)
    monkeypatch.setitem(globals(), "N", n)
    for kind in ("real", "complex"):
        tensors, options = case(mode, 41, kind)
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
def test_truncation(any_path, truncation, bidirectional):
    path, device = any_path
    dtype = torch.float64 if path == "fft" else torch.float32
    reset_mask = torch.rand(BATCH, 45, generator=torch.Generator().manual_seed(3)) < 0.05
    for kind in ("real", "complex"):
        tensors, _ = case("shifted" if bidirectional else "causal", 45, kind)
        for shift in {False, bidirectional}:
            for masks in ({}, {"reset_mask": reset_mask}):
                options = {"truncation": truncation, "bidirectional": bidirectional, "shift": shift, **masks}
                compare(tensors, dtype, path, device, **options)


def test_truncation_limits_the_parallel_form_only():
    tensors = {**parameters(), "x": signal(20)}
    limited, _ = run(tensors, "fft", truncation=5)
    unlimited, _ = run(tensors, "fft")
    streamed, _ = run(tensors, "fft", truncation=5, return_state=True)
    torch.testing.assert_close(limited[:, :5], unlimited[:, :5])
    assert (limited[:, 5:] - unlimited[:, 5:]).abs().max() > 1e-3
    torch.testing.assert_close(streamed, unlimited)


@pytest.mark.parametrize("path", ["reference", "fft", "auto"])
def test_padding_counts_as_zero(path):
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


@pytest.mark.parametrize("pieces", [(1,) * 11, (4, 4, 3), (1, 10), (10, 1), (11,), (3, 1, 1, 6)])
def test_pieces_equal_the_whole(pieces):
    tensors = {**parameters(), "x": signal(11)}
    want, last = run(tensors, "reference", return_state=True)
    state, outputs = None, []
    for piece in tensors["x"].split(pieces, dim=1):
        y, state = run(
            {**tensors, "x": piece, **({} if state is None else {"state": state})}, "auto", return_state=True
        )
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, dim=1), want)
    torch.testing.assert_close(state, last)


def test_causality_and_reversal():
    tensors = {**parameters(), "x": signal(16)}
    before, _ = run(tensors, "fft")
    tensors["x"][:, 9] += 1.0
    after, _ = run(tensors, "fft")
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert (before[:, 9:] - after[:, 9:]).abs().max() > 1e-3

    both = {**parameters(2 * WIDTH), "x": signal(16)}
    swapped = {name: torch.cat([both[name][WIDTH:], both[name][:WIDTH]]) for name in ("alpha", "delta", "beta", "eta")}
    forward, _ = run(both, "fft", bidirectional=True)
    backward, _ = run({**swapped, "x": both["x"].flip(1)}, "fft", bidirectional=True)
    torch.testing.assert_close(forward, backward.flip(1))


@pytest.mark.parametrize("logit", [20.0, -20.0, 200.0, -200.0])
def test_extreme_decays_stay_finite(logit, any_path):
    path, device = any_path
    tensors = {**parameters(), "x": signal(50)}
    tensors["alpha"] = torch.full_like(tensors["alpha"], logit)
    tensors["delta"] = torch.full_like(tensors["delta"], logit)
    compare(tensors, torch.float32, path, device, return_state=True)


def test_slow_decays_keep_their_digits_in_a_scan(kernel_choice):
    """The rounding of q itself must not add up: with q = 1 - 6e-6, float32 steps of it would be 3e-3 off after L."""
    tensors = parameters()
    tensors["alpha"], tensors["delta"] = tensors["alpha"] - 6.0, tensors["delta"] - 6.0
    tensors["x"] = torch.ones(1, 20000, WIDTH, dtype=torch.float64)
    path, _ = kernel_choice("scan-cpu")
    want, last = run(tensors, "fft", return_state=True)
    inputs = leaves(tensors, torch.float32)
    y, state = run(inputs, path, return_state=True)
    for got, exact in ((y, want), (state, last)):
        assert ((got.double() - exact).norm() / exact.norm()).item() < 5e-6
    single, steps = torch.zeros(1, WIDTH, N), 4000
    with torch.no_grad():
        coefficients = coefficients_of(inputs)
        for t in range(steps):
            _, single = gated_ema_step(inputs["x"][:, t], coefficients, torch.zeros(WIDTH), single)
    _, exact = run({**tensors, "x": tensors["x"][:, :steps]}, "fft", return_state=True)
    assert ((single.double() - exact).norm() / exact.norm()).item() < 5e-6


def test_slow_decays_keep_their_digits():
    """In float32 the kernel of a slow decay agrees with float64 over 16,384 steps (plain 1 - p q loses four digits)."""
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


def test_no_ema():
    tensors = {**parameters(n=0), "x": signal(5)}
    y, state = run(tensors, "auto", return_state=True)
    assert y.eq(0).all() and state.shape == (BATCH, WIDTH, 0)


@pytest.mark.parametrize("path", ["reference", "fft"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_gradcheck(path, mode, kind):
    tensors, options = case(mode, 6, kind)
    tensors = leaves(tensors, torch.float64)
    names = list(tensors)

    def function(*values):
        y, state = run(dict(zip(names, values)), path, **options)
        return (y,) if state is None else (y, torch.view_as_real(state) if state.is_complex() else state)

    assert torch.autograd.gradcheck(function, tuple(tensors.values()))


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


def test_fft_sizes():
    for minimum in range(1, 3000):
        size = fast_fft_size(minimum)
        assert size >= minimum and size % 2 == 0
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1


def test_errors():
    tensors = {**parameters(), "x": signal(4)}
    with pytest.raises(ValueError, match="rows"):
        run(tensors, None, bidirectional=True)
    with pytest.raises(ValueError, match="truncation must be at least 1.*found 0"):
        run(tensors, None, truncation=0)
    with pytest.raises(ValueError, match="FAIRSEQ_MEGA_EMA_PATH"):
        run(tensors, "fast")
    with pytest.raises(ValueError, match="cannot carry a state"):
        run({**parameters(2 * WIDTH), "x": signal(4)}, None, bidirectional=True, return_state=True)


@pytest.mark.parametrize("mode", ["carried", "shifted"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_operators_keep_torchs_rules(kernel_device, mode, kind):
    tensors, options = case(mode, 5, kind)
    inputs = leaves({name: tensor.to(kernel_device) for name, tensor in tensors.items()}, torch.float32)
    calls = []

    class Recorder:
        def __getattr__(self, name):
            def call(*arguments):
                calls.append((getattr(operators, name).default, arguments))
                return getattr(operators, name)(*arguments)

            return call

    operators = native.ops()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "ops", Recorder)
        run(inputs, "scan", **options)
    (operator, arguments), *_ = calls
    detached = [a.detach().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments]
    torch.library.opcheck(operator, tuple(detached))
    plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
    torch.library.opcheck(operators.ema_scan_backward.default, (torch.randn_like(plain[0]), None, *plain))
    if mode == "carried":
        torch.library.opcheck(operators.ema_step.default, (plain[0][:, 0], *plain[1:4], None, plain[4]))


def test_compiles_into_one_graph(kernel_device):
    tensors, options = case("carried", 9)
    inputs = leaves({name: tensor.to(kernel_device) for name, tensor in tensors.items()}, torch.float32)
    names = list(inputs)

    def function(*values):
        y, state = run(dict(zip(names, values)), "scan", **options)
        return torch.cat([y.flatten(), state.flatten()])

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    got, want = compiled(*inputs.values()), function(*inputs.values())
    torch.testing.assert_close(got, want)
    found, expected = gradients(got, inputs), gradients(want, inputs)
    for name in names:
        torch.testing.assert_close(found[name], expected[name], msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fresh", [False, True])
def test_one_fused_step(kernel_device, dtype, fresh):
    tensors, _ = case("carried", 1)
    tensors["omega"] = torch.randn(WIDTH, dtype=torch.float64)
    if fresh:
        del tensors["state"]
    rounded = {name: tensor.to(dtype).to(kernel_device) for name, tensor in tensors.items()}
    if not fresh:
        rounded["state"] = rounded["state"].float()
    with torch.no_grad():
        out, state = gated_ema_step(
            rounded["x"][:, 0], coefficients_of(rounded), rounded["omega"], rounded.get("state")
        )
    exact = {name: tensor.cpu().double() for name, tensor in rounded.items()}
    y, last = run(exact, "reference", return_state=True)
    want = torch.nn.functional.silu(y + exact["omega"] * exact["x"])[:, 0]
    assert out.dtype == dtype
    assert_close("output", out.cpu(), want, want.to(dtype))
    assert_close("state", state.cpu(), last)


def test_kernels_read_any_strides(kernel_device):
    tensors, options = case("carried", 40)
    plain = {name: tensor.float().to(kernel_device) for name, tensor in tensors.items()}
    turned = {**plain, "x": plain["x"].transpose(0, 1).contiguous().transpose(0, 1)}
    assert not turned["x"].is_contiguous()
    torch.testing.assert_close(run(turned, "scan", **options), run(plain, "scan", **options))


def test_kernel_errors(kernel_device):
    x = torch.zeros(2, 5, 3, device=kernel_device)
    rows = [torch.zeros(3, 4, device=kernel_device) for _ in range(3)]
    scan = native.ops().ema_scan
    rest = (None, None, None, False, False, 0)
    for arguments, message in (
        ((x[0], *rows, *rest), "x must be \\(B, L, D\\)"),
        ((x.double(), *rows, *rest), "float32, bfloat16 or float16"),
        ((x, rows[0], rows[1][:2], rows[2], *rest), "coefficients must have D rows"),
        ((x, rows[0], rows[1].double(), rows[2], *rest), "expansion must be float32"),
        ((x, rows[0][:, :2], rows[1], rows[2], *rest), "log_decay and projection must both be"),
        ((x, *rows, x.new_zeros(2, 3, 5), *rest[1:]), "state must be \\(B, D, N\\)"),
        ((x, *rows, None, x[..., 0], *rest[2:]), "padding_mask must be bool"),
        ((x, *rows, None, None, x[:, :4, 0] > 0, *rest[3:]), "reset_mask must be \\(B, L\\)"),
        ((x, *rows, x.new_zeros(2, 3, 4), None, None, False, False, 3), "truncated EMA carries no state"),
    ):
        with pytest.raises(RuntimeError, match=message):
            scan(*arguments)


def test_a_missing_extension_is_named(monkeypatch):
    monkeypatch.setattr(native, "PROBLEM", "it is not there")
    with pytest.raises(RuntimeError, match="the EMA's scan needs .*it is not there; build it with: "):
        run({**parameters(), "x": signal(4)}, "scan")
    monkeypatch.undo()
    if native.PROBLEM is None:
        with pytest.raises(TypeError, match="float64"):
            run({**parameters(), "x": signal(4)}, "scan")
