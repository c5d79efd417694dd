"""MEGALODON's layer: streams, padding, causality, dropout, precision, initialisation, and bad shapes."""

import math
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.initialization import INIT_MODES
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from tests.support.layers import reorder, run

BATCH, WIDTH = 3, 8
SHAPE: Dict[str, Any] = {
    "embed_dim": WIDTH,
    "hidden_dim": 12,
    "z_dim": 8,
    "ffn_dim": 10,
    "heads": 2,
    "ema_dim": 3,
    "norm_groups": 2,
}
PIECES = [(1,) * 13, (13,), (3, 8, 2), (4, 4, 4, 1), (1, 12), (11, 2), (5, 5, 3), (2, 2, 9)]


def layer(seed: int = 0, **changes: Any) -> MegalodonLayer:
    torch.manual_seed(seed)
    built = MegalodonLayer(MegalodonLayerConfig(**{**SHAPE, "swiglu": True, **changes})).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(length: int, seed: int = 1) -> Tensor:
    return torch.randn(BATCH, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stream(built: Any, x: Tensor, pieces: Any, mask: Optional[Tensor] = None) -> Tuple[Tensor, Any]:
    out, outputs = None, []
    masks = [None] * len(pieces) if mask is None else mask.split(pieces, dim=1)
    for piece, own in zip(x.split(pieces, dim=1), masks):
        out = run(built, piece, out, padding_mask=own, return_state=True)
        outputs.append(out.hidden)
    return torch.cat(outputs, dim=1), out


def tensors_of(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nesting of tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors_of(part)


@pytest.mark.parametrize("chunk_size", [-1, 1, 4, 5, 13, 20])
def test_any_pieces_equal_the_whole(chunk_size: int) -> None:
    built, x = layer(chunk_size=chunk_size), hidden(13)
    whole = run(built, x, return_state=True)
    torch.testing.assert_close(whole.hidden, built(x).hidden)
    for pieces in PIECES:
        out, last = stream(built, x, pieces)
        torch.testing.assert_close(out, whole.hidden, msg=f"pieces {pieces}")
        assert len(last.cache.attention.keys) == (13 if chunk_size < 0 else 13 % chunk_size)
        for got, want in zip(tensors_of(last.memory), tensors_of(whole.memory)):
            torch.testing.assert_close(got, want, msg=f"memory after pieces {pieces}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("chunk_size", [-1, 1, 5])
def test_single_steps_of_decoding_equal_the_whole(chunk_size: int, heads: int, dtype: torch.dtype) -> None:
    """Without gradients steps go a shorter way; a beam may go on from each of them in several ways."""
    built, x = layer(chunk_size=chunk_size, heads=heads, layer_scale=True).to(dtype), hidden(13).to(dtype)
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
    steps: List[Any] = []
    with torch.no_grad():
        whole = run(built, x, return_state=True)
        for piece in x.split(1, dim=1):
            steps.append(run(built, piece, steps[-1] if steps else None, return_state=True))
        again = run(built, x[:, 8:9], steps[7], return_state=True)
    assert torch.equal(again.hidden, steps[8].hidden)
    out = torch.cat([found.hidden for found in steps], dim=1)
    torch.testing.assert_close(out, whole.hidden, rtol=0, atol=tolerance * whole.hidden.abs().max().item())
    for got, want in zip(tensors_of(steps[-1].memory), tensors_of(whole.memory)):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_a_step_prepared_before_a_change_of_weights() -> None:
    """What steps keep is of the parameters as they are."""
    built, x = layer(), hidden(6)
    with torch.no_grad():
        out = run(built, x[:, :4], None, return_state=True)
        out = run(built, x[:, 4:5], out, return_state=True)
        for name in ("kappa", "mu"):
            getattr(built.attention, name).add_(0.5)
        built.attention.ema.gamma.add_(0.5)
        changed = run(built, x[:, 5:], out, return_state=True).hidden
    torch.testing.assert_close(changed, run(built, x[:, 5:], out, return_state=True).hidden)


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_gradients_cross_pieces(chunk_size: int) -> None:
    """Memory and cache are differentiable: pieces give the gradients of the whole."""
    built, found = layer(chunk_size=chunk_size), []
    for pieces in ((13,), (4, 8, 1), (3, 5, 5)):
        x = hidden(13).requires_grad_()
        out, _ = stream(built, x, pieces)
        found.append(torch.autograd.grad(out.square().sum(), [x, *built.parameters()]))
    for others in found[1:]:
        for got, want in zip(others, found[0]):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_streams_remember_padding(chunk_size: int) -> None:
    built, x = layer(chunk_size=chunk_size), hidden(13)
    mask = torch.zeros(BATCH, 13, dtype=torch.bool)
    mask[1, :5] = True
    mask[2, 5:7] = True
    whole = run(built, x, padding_mask=mask).hidden
    for pieces in PIECES[1:]:  # none ends within the padding
        for value in (0.0, 7.0, math.nan, math.inf):
            out, _ = stream(built, x.masked_fill(mask.unsqueeze(-1), value), pieces, mask)
            torch.testing.assert_close(out[~mask], whole[~mask], msg=f"{value} at padding, pieces {pieces}")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_no_value_at_padding_reaches_a_gradient(bidirectional: bool) -> None:
    built, mask = layer(chunk_size=4, bidirectional=bidirectional), torch.zeros(BATCH, 13, dtype=torch.bool)
    mask[0, 8:] = mask[1, 2:4] = mask[2] = True
    found = []
    for value in (0.0, math.nan):
        x = hidden(13).masked_fill(mask.unsqueeze(-1), value).requires_grad_()
        out = run(built, x, padding_mask=mask).hidden[~mask]
        found.append([out, *torch.autograd.grad(out.square().sum(), list(built.parameters()))])
    for got, want in zip(found[1], found[0]):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("chunk_size", "left"), [(-1, 3), (4, 4), (4, 8)])
def test_padding_on_either_side_changes_nothing(chunk_size: int, left: int) -> None:
    """On the left of a layer with chunks as long as whole chunks: where chunks end is a matter of columns."""
    built, x = layer(chunk_size=chunk_size), hidden(6)
    mask = torch.ones(BATCH, left + 6 + 3, dtype=torch.bool)
    mask[:, left : left + 6] = False
    padded = torch.cat([hidden(left, seed=7), x, hidden(3, seed=8)], dim=1)
    torch.testing.assert_close(run(built, padded, padding_mask=mask).hidden[:, left : left + 6], built(x).hidden)


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_right_padding_of_a_bidirectional_layer_changes_nothing(chunk_size: int) -> None:
    built = layer(bidirectional=True, chunk_size=chunk_size)
    for length in (3, 4, 7):
        x, mask = hidden(length), torch.zeros(BATCH, length + 6, dtype=torch.bool)
        mask[:, length:] = True
        padded = run(built, torch.cat([x, hidden(6, seed=8)], dim=1), padding_mask=mask).hidden
        torch.testing.assert_close(padded[:, :length], built(x).hidden, msg=f"length {length}")


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_causality(chunk_size: int) -> None:
    built, x = layer(chunk_size=chunk_size), hidden(11)
    before = built(x).hidden
    x[:, 6] += 1.0
    after = built(x).hidden
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-13)
    assert (after[:, 6:] - before[:, 6:]).abs().amin(dim=(0, 2)).min() > 1e-9


def test_rows_do_not_see_each_other() -> None:
    built, x, order = layer(chunk_size=4), hidden(10), torch.tensor([2, 0, 1])
    torch.testing.assert_close(built(x[order]).hidden, built(x).hidden[order])
    first = run(built, x, return_state=True)
    after = run(built, x[:, :3], first, return_state=True).hidden
    torch.testing.assert_close(run(built, x[order, :3], reorder(first, order)).hidden, after[order])


def test_long_streams_keep_their_statistics() -> None:
    """Mean 100 and deviation 1 over 20,000 steps in pieces: float32 knows both to its rounding, and so does y."""
    built = layer().float()
    norm: Any = built.attention.norm
    state, ends = None, []
    generator = torch.Generator().manual_seed(3)
    x = 100 + torch.randn(1, 20_000, WIDTH, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for piece in x.float().split(1000, dim=1):
            y, state = norm(piece, None, state)
            ends.append(y[0, -1])
    parts = x[0].float().double().view(-1, 2, WIDTH // 2)
    mean, variance = parts.mean(dim=(0, 2)), parts.transpose(0, 1).flatten(1).var(dim=1, correction=0)
    assert state is not None and state.count.item() == 20_000
    torch.testing.assert_close(state.mean[0].double(), mean, rtol=2e-7, atol=0)
    torch.testing.assert_close(state.variance[0].double(), variance, rtol=2e-6, atol=0)
    exact = ((parts[-1] - mean[:, None]) / (variance[:, None] + 1e-5).sqrt()).flatten()
    exact = exact * (norm.weight.double() + 1) + norm.bias.double()
    torch.testing.assert_close(ends[-1].double(), exact, rtol=0, atol=5e-5)


def test_dropouts() -> None:
    """Each of them acts in training alone; keys are dropped by default, weights where asked for."""
    x = hidden(12)
    for options in (
        {"dropout": 0.5},
        {"hidden_dropout": 0.5},
        {"attention_dropout": 0.5},
        {"attention_dropout": 0.5, "attention_drops": "weights"},
    ):
        built = layer(**options)
        torch.testing.assert_close(built(x).hidden, layer()(x).hidden)
        built.train()
        torch.manual_seed(1)
        first = built(x).hidden
        assert not torch.equal(first, built(x).hidden), options
        torch.manual_seed(1)
        assert torch.equal(first, built(x).hidden), options


@pytest.mark.parametrize("drops", ["keys", "weights"])
def test_what_the_attention_drops(drops: str) -> None:
    """Values of one: DropKey gives one, or zero where all keys went; dropped weights give the rest twice."""
    attention = layer(attention_dropout=0.5, attention_drops=drops).train().attention
    zeros = torch.zeros(400, 3, 8, dtype=torch.float64)
    out = attention._attend(zeros, zeros, torch.ones(400, 3, 12, dtype=torch.float64), None)
    first, last = (set(out[:, step].flatten().tolist()) for step in (0, 2))
    if drops == "keys":
        assert first == last == {0.0, 1.0} and out[:, 2].mean() > 0.8
    else:
        assert first == {0.0, 2.0} and len(last) == 4 and abs(out.mean() - 1) < 0.05


def test_bfloat16_and_autocast() -> None:
    """Coefficients stay float32 and so does memory, statistics of norms float64."""
    exact, x = layer(layer_scale=True).float(), hidden(11).float()
    want = exact(x).hidden
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = run(exact, x, return_state=True)
    half = run(layer(layer_scale=True).bfloat16(), x.bfloat16(), return_state=True)
    assert half.hidden.dtype == torch.bfloat16
    for out in (cast, half):
        assert (out.hidden.float() - want).norm() < 0.03 * want.norm()
        ema, norm = out.memory
        assert ema.dtype == torch.complex64 and norm.mean.dtype == norm.variance.dtype == torch.float64


def test_small_scales_count_in_bfloat16() -> None:
    """1.0015 is 1 in bfloat16: the scale is made in float32."""
    built, x = layer().bfloat16(), 8 * hidden(30).bfloat16()
    parts: List[Any] = [built.feed_forward.norm, built.attention.ema_norm, built.attention.norm]
    for part in parts:
        found = []
        for value in (0.0, 0.0015):
            torch.nn.init.constant_(part.weight, value)
            out = part(x)
            found.append(out[0] if isinstance(out, tuple) else out)
        assert not torch.equal(*found)


@pytest.mark.parametrize("autocast", [False, True])
def test_float16_is_refused(autocast: bool) -> None:
    built = layer() if autocast else layer().half()
    x = hidden(4) if autocast else hidden(4).half()
    refused = pytest.raises(FieldError, match="^float16: .* give bfloat16, or use float32$")
    with refused, torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
        built(x)


STD = {"he": math.sqrt(1 / 3 / 96), "bert": 0.02, "xavier": math.sqrt(2 / (96 + 200)), "gaussian": 0.987 * 96**-0.5}


@pytest.mark.parametrize("mode", INIT_MODES)
def test_initialisation(mode: str) -> None:
    """Each matrix by itself, though some share a tensor; norms, offsets and biases zero; the EMA's as published."""
    torch.manual_seed(0)
    shape: Dict[str, Any] = {
        "embed_dim": 96,
        "hidden_dim": 200,
        "z_dim": 40,
        "ffn_dim": 200,
        "norm_groups": 4,
        "swiglu": True,
    }
    built = MegalodonLayer(MegalodonLayerConfig(**shape, init_mode=mode, layer_scale=True), index=3)
    attention, forward = built.attention, built.feed_forward
    parts = dict(zip(("z", "gate", "candidate"), attention.gate_proj.weight.split((40, 200, 96))))
    up = [attention.value_proj.weight, parts["gate"], *forward.input_proj.weight.chunk(2)]
    if mode != "none":
        for weight in up:
            assert weight.std().item() == pytest.approx(STD[mode], rel=0.03)
        factor = math.sqrt((96 + 200) / (96 + 40)) if mode == "xavier" else 1.0
        assert parts["z"].std().item() == pytest.approx(factor * STD[mode], rel=0.05)
    if mode == "gaussian":
        assert max(weight.abs().max().item() for weight in up) <= 3 * 96**-0.5
    ema = attention.ema
    zeros: List[Any] = [attention.kappa, attention.mu, attention.norm.weight, attention.norm.bias, forward.norm.weight]
    zeros += [attention.value_proj.bias, attention.gate_proj.bias, attention.ema_norm.weight, ema.gamma[..., 1]]
    assert not any(tensor.any() for tensor in zeros)
    assert not any("output_proj.bias" in name or "input_proj.bias" in name for name, _ in built.named_parameters())
    assert forward.scale is not None and (forward.scale == 0.1 / 8).all()
    assert ema.alpha.std().item() == pytest.approx(0.2, rel=0.1) and ema.omega.abs().max() <= 1
    assert ema.delta.std().item() == pytest.approx(0.2, rel=0.1)
    assert ema.gamma[..., 0].std().item() == pytest.approx(1, rel=0.1)
    angles = torch.sigmoid(ema.theta.flatten()).sort().values
    expected = torch.exp(-torch.arange(96, 0, -1.0) * math.log(96) / 96)
    torch.testing.assert_close(angles, expected)
    assert not torch.equal(torch.sigmoid(ema.theta.flatten()), angles)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z_dim": 6}, r"z_dim 6: must be a multiple of 2 x heads = 4"),
        ({"hidden_dim": 13}, "hidden_dim 13: must be a multiple of heads = 2"),
        ({"norm_groups": 3}, "embed_dim 8: must be a multiple of norm_groups = 3"),
        ({"embed_dim": 1, "norm_groups": 1}, "embed_dim 1: must be at least 2"),
        ({"ema_dim": 0}, "ema_dim 0: must be at least 1"),
        ({"chunk_size": 0}, "chunk_size 0: .*-1 for full attention"),
        ({"residual_hops": 3}, "residual_hops 3: give 1, around each sub-layer, or 2, around both"),
        ({"rope_base": 1.0}, "rope_base 1.0: must be greater than 1"),
        ({"dropout": 1.0}, r"dropout 1.0: .*\[0, 1\)"),
        ({"attention_drops": "heads"}, "attention_drops heads: choose from keys, weights"),
        ({"init_mode": "zeros"}, "init_mode zeros: choose from he, bert, xavier, gaussian, none"),
        ({"ema_norm": "batchnorm"}, "ema_norm batchnorm: choose from rmsnorm, silu"),
    ],
)
def test_bad_shapes(changes: Any, message: str) -> None:
    with pytest.raises(FieldError, match=f"^{message}"):
        MegalodonLayerConfig(**{**SHAPE, **changes})
