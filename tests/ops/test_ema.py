"""The EMA's paths against the recurrence: values, final state, every gradient."""

import pytest
import torch
from numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

from fairseq_mega.ops.ema import damped_ema, ema_coefficients, ema_kernel
from fairseq_mega.ops.ema.coefficients import power_tables
from fairseq_mega.ops.ema.fft import fast_fft_size

BATCH, WIDTH, N = 2, 3, 4
LENGTHS = (1, 2, 3, 7, 8, 9, 31, 64, 100)


def parameters(rows=WIDTH, n=N, spread=1.0, seed=1):
    generator = torch.Generator().manual_seed(seed)
    draw = {name: torch.randn(rows, n, generator=generator, dtype=torch.float64) for name in ("beta", "eta")}
    for name in ("alpha", "delta"):
        draw[name] = spread * torch.randn(rows, n, generator=generator, dtype=torch.float64)
    return draw


def signal(length, batch=BATCH, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, WIDTH, generator=generator, dtype=torch.float64)


def run(tensors, path, **options):
    coefficients = ema_coefficients(*(tensors[name] for name in ("alpha", "delta", "beta", "eta")))
    state = tensors.get("state")
    return damped_ema(tensors["x"], coefficients, state=state, path=path, **options)


def compare(tensors, dtype, **options):
    """Run the FFT path in ``dtype`` and compare with the recurrence in float64."""
    results = {}
    for key, path, precision in (
        ("want", "reference", torch.float64),
        ("baseline", "reference", dtype),
        ("got", "fft", dtype),
    ):
        inputs = leaves(tensors, precision)
        y, state = run(inputs, path, **options)
        outputs = {"y": y} if state is None else {"y": y, "state": state}
        flat = torch.cat([value.flatten() for value in outputs.values()])
        results[key] = (outputs, gradients(flat, inputs))
    for index, factor in ((0, 2.0), (1, GRADIENT_FACTOR)):
        for name, want in results["want"][index].items():
            label = name if index == 0 else f"gradient of {name}"
            baseline = results["baseline"][index][name] if dtype == torch.float32 else None
            assert_close(label, results["got"][index][name], want, baseline, factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mode", ["causal", "carried", "bidirectional", "shifted"])
def test_fft_equals_recurrence(mode, length, dtype):
    bidirectional = mode in ("bidirectional", "shifted")
    tensors = parameters(2 * WIDTH if bidirectional else WIDTH)
    tensors["x"] = signal(length)
    options = {"bidirectional": bidirectional, "shift": mode == "shifted"}
    if mode == "carried":
        tensors["state"] = torch.randn(BATCH, WIDTH, N, dtype=torch.float64)
        options["return_state"] = True
    compare(tensors, dtype, **options)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("truncation", [1, 2, 5, 30, 99])
def test_truncation(truncation, bidirectional):
    tensors = parameters(2 * WIDTH if bidirectional else WIDTH)
    tensors["x"] = signal(31)
    compare(tensors, torch.float64, truncation=truncation, bidirectional=bidirectional)
    if bidirectional:
        compare(tensors, torch.float64, truncation=truncation, bidirectional=True, shift=True)


def test_truncation_limits_the_parallel_form_only():
    tensors = {**parameters(), "x": signal(20)}
    limited, _ = run(tensors, "fft", truncation=5)
    unlimited, _ = run(tensors, "fft")
    streamed, _ = run(tensors, "fft", truncation=5, return_state=True)
    torch.testing.assert_close(limited[:, :5], unlimited[:, :5])
    assert (limited[:, 5:] - unlimited[:, 5:]).abs().max() > 1e-3
    torch.testing.assert_close(streamed, unlimited)


@pytest.mark.parametrize("path", ["reference", "fft"])
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
@pytest.mark.parametrize("path", ["reference", "fft"])
def test_extreme_decays_stay_finite(logit, path):
    tensors = {**parameters(), "x": signal(50)}
    tensors["alpha"] = torch.full_like(tensors["alpha"], logit)
    tensors["delta"] = torch.full_like(tensors["delta"], logit)
    inputs = leaves(tensors, torch.float32)
    y, state = run(inputs, path, return_state=True)
    assert torch.isfinite(y).all() and torch.isfinite(state).all()
    for name, gradient in gradients(y, inputs).items():
        assert torch.isfinite(gradient).all(), name


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
def test_half_precision_computes_in_float32(dtype):
    tensors = parameters()
    tensors["alpha"] = tensors["alpha"] - 4.0
    tensors["x"] = signal(500)
    rounded = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    y, state = run(rounded, "auto", return_state=True)
    assert y.dtype == dtype and state.dtype == torch.float32
    want, last = run({name: tensor.double() for name, tensor in rounded.items()}, "reference", return_state=True)
    assert_close("y", y, want, want.to(dtype))
    assert_close("state", state, last)


def test_no_ema():
    tensors = {**parameters(n=0), "x": signal(5)}
    y, state = run(tensors, "auto", return_state=True)
    assert y.eq(0).all() and state.shape == (BATCH, WIDTH, 0)


@pytest.mark.parametrize("path", ["reference", "fft"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradcheck(path, bidirectional):
    tensors = leaves({**parameters(2 * WIDTH if bidirectional else WIDTH), "x": signal(6)}, torch.float64)
    if not bidirectional:
        tensors["state"] = torch.randn(BATCH, WIDTH, N, dtype=torch.float64, requires_grad=True)
    names = list(tensors)

    def function(*values):
        y, state = run(dict(zip(names, values)), path, bidirectional=bidirectional, return_state=not bidirectional)
        return (y,) if bidirectional else (y, state)

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
