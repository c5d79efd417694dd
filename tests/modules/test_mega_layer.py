"""Streams, causality, padding and precision of whole layers."""

import pytest
import torch
from torch.nn.utils import parametrize

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from tests.support.layers import reorder, run
from tests.support.numerics import assert_close

BATCH, WIDTH, SOURCE = 3, 8, 5


def layer(seed=0, **changes):
    torch.manual_seed(seed)
    options = {"embed_dim": WIDTH, "hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "max_positions": 32}
    built = MegaLayer(MegaLayerConfig(**{**options, **changes})).double().eval()
    with torch.no_grad():  # away from the near-zero start, where attention hardly matters
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(length, seed=1):
    return torch.randn(BATCH, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stream(built, x, pieces, padding_mask=None, **source):
    out, outputs, start = None, [], 0
    for size in pieces:
        piece = slice(start, start + size)
        mask = None if padding_mask is None else padding_mask[:, piece]
        out = run(built, x[:, piece], out, padding_mask=mask, return_state=True, **source)
        outputs.append(out.hidden)
        start += size
    assert start == x.size(1)
    return torch.cat(outputs, dim=1), out


PIECES = [(1,) * 13, (13,), (3, 8, 2), (4, 4, 4, 1), (1, 12), (11, 2), (5, 5, 3), (2, 2, 9)]


def hidden_and_gradients(built, x, mask, source, source_mask):
    """Outputs at real positions, and all gradients of them: of real inputs and of the parameters."""
    leaves = [x.clone().requires_grad_(), source.clone().requires_grad_()]
    context = {"padding_mask": mask, "encoder_out": leaves[1], "encoder_padding_mask": source_mask}
    out = run(built, leaves[0], **context).hidden[~mask]
    found = torch.autograd.grad(out.square().sum(), [*leaves, *built.parameters()])
    assert all(torch.isfinite(gradient).all() for gradient in found)
    return [out, found[0][~mask], found[1][~source_mask], *found[2:]]


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("prenorm", [False, True])
@pytest.mark.parametrize("path", ["reference", "fastest"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_value_at_padding_reaches_anything(function, chunk_size, bidirectional, prenorm, path, value, monkeypatch):
    """Neither through 0 * NaN in the attention, nor into the gradients of the weights."""
    if path == "reference":
        monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", path)
    shape = {"chunk_size": chunk_size, "bidirectional": bidirectional, "normalize_before": prenorm}
    built = layer(attention_function=function, cross_attention=True, **shape).float()
    x, source = hidden(13).float(), hidden(SOURCE, seed=2).float()
    mask, source_mask = torch.zeros(BATCH, 13, dtype=torch.bool), torch.zeros(BATCH, SOURCE, dtype=torch.bool)
    mask[0, 8:] = mask[1, 2:4] = mask[2] = True
    source_mask[0, 3:] = source_mask[1] = True
    pads, source_pads = mask.unsqueeze(-1), source_mask.unsqueeze(-1)
    zeros = x.masked_fill(pads, 0.0), mask, source.masked_fill(source_pads, 0.0), source_mask
    filled = x.masked_fill(pads, value), mask, source.masked_fill(source_pads, value), source_mask
    for got, want in zip(hidden_and_gradients(built, *filled), hidden_and_gradients(built, *zeros)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("norm", ["layernorm", "scalenorm", "rmsnorm", "batchnorm"])
def test_right_padding_of_an_encoder_layer_changes_nothing(function, chunk_size, norm):
    built = layer(bidirectional=True, attention_function=function, chunk_size=chunk_size, norm=norm)
    for length in (3, 4, 7, 8):
        x = hidden(length)
        mask = torch.zeros(BATCH, length + 6, dtype=torch.bool)
        mask[:, length:] = True
        padded = run(built, torch.cat([x, hidden(6, seed=8)], dim=1), padding_mask=mask).hidden
        torch.testing.assert_close(padded[:, :length], built(x).hidden, msg=f"length {length}")


def test_state_is_reordered():
    built = layer(chunk_size=4, cross_attention=True)
    x, source, order = hidden(9), hidden(SOURCE, seed=2), torch.tensor([2, 0, 0, 1])
    mask = torch.zeros(BATCH, SOURCE, dtype=torch.bool)
    mask[1, 3:] = True
    whole = run(built, x, encoder_out=source, encoder_padding_mask=mask).hidden
    _, before = stream(built, x[:, :6], (6,), encoder_out=source, encoder_padding_mask=mask)
    out = run(built, x[order, 6:], reorder(before, order), return_state=True).hidden
    torch.testing.assert_close(out, whole[order, 6:])


def test_an_order_that_changes_nothing_copies_nothing():
    built = layer(chunk_size=4, cross_attention=True)
    _, before = stream(built, hidden(6), (6,), encoder_out=hidden(SOURCE, seed=2))
    kept = reorder(before, torch.arange(BATCH))
    assert all(same is item for same, item in zip(kept.memory, before.memory))
    assert all(same is item for same, item in zip(kept.cache.attention, before.cache.attention))
    assert all(same is item for same, item in zip(kept.cache.cross_attention, before.cache.cross_attention))
    fewer = reorder(before, torch.arange(BATCH - 1))  # its first rows are in order, too
    assert fewer.memory.ema.size(0) == fewer.cache.attention.keys.steps.size(0) == BATCH - 1
    torch.testing.assert_close(fewer.cache.attention.keys.steps, before.cache.attention.keys.steps[:-1])


@pytest.mark.parametrize("changes", [{}, {"ema_dim": 0}, {"ffn_dim": 0}, {"normalize_before": True}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_float64(changes, dtype):
    built = layer(cross_attention=True, chunk_size=8, **changes)
    x, source = hidden(30), hidden(SOURCE, seed=2)
    want = run(built, x, encoder_out=source).hidden
    assert_close("float32", run(built.float(), x.float(), encoder_out=source.float()).hidden, want)
    got = run(built.to(dtype), x.to(dtype), encoder_out=source.to(dtype)).hidden
    error = (got.double() - want).norm() / want.norm()
    assert got.dtype == dtype and error < (0.05 if dtype == torch.bfloat16 else 0.01)


def test_autocast():
    built = layer(cross_attention=True, chunk_size=8).float().train()
    x, source = hidden(30).float(), hidden(SOURCE, seed=2).float()
    want = run(built, x, encoder_out=source).hidden
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = run(built, x, encoder_out=source).hidden
    assert (out.float() - want).norm() / want.norm() < 0.05
    out.float().sum().backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


def test_new_weights_take_effect_after_evaluation():
    """Nothing is kept across a change of weights, precision or gradient mode."""
    built, other = layer(), layer(seed=9)
    x = hidden(7)
    with torch.no_grad():
        built(x)
    built.load_state_dict(other.state_dict())
    torch.testing.assert_close(built(x).hidden, other(x).hidden)
    for _ in range(2):
        built(x).hidden.sum().backward()
    assert built.attention.ema.alpha.grad.abs().sum() > 0


def outputs_of(built, x):
    """The whole, the beginning of a stream in one call and in steps, without gradients."""
    with torch.no_grad():
        return torch.stack([built(x).hidden, stream(built, x, (13,))[0], stream(built, x, (1,) * 13)[0]])


@pytest.mark.parametrize("changes", [{}, {"chunk_size": 5}, {"relative_bias": "rotary"}])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])  # decoding has kernels of its own in float32
def test_weights_written_behind_torchs_back_take_effect(changes, precision):
    """An average of a model's weights is kept in evaluation mode and written to ``parameter.data``."""
    built, other = (layer(seed, **changes).to(precision) for seed in (0, 9))
    x = hidden(13).to(precision)
    before, want = outputs_of(built, x), outputs_of(other, x)
    for parameter, value in zip(built.parameters(), other.parameters()):
        parameter.data.copy_(value)
    assert not torch.equal(before, want)
    torch.testing.assert_close(outputs_of(built, x), want, rtol=0, atol=0)


class Scaled(torch.nn.Module):
    """``factor`` times a weight."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, weight):
        return self.factor * weight


@pytest.mark.parametrize("write", [lambda factor: factor.mul_(2.0), lambda factor: factor.data.mul_(2.0)])
def test_parametrised_weights_are_never_stale(write):
    built, x = layer(relative_bias="rotary"), hidden(6)
    scales = [Scaled(), Scaled()]
    parametrize.register_parametrization(built.attention.ema, "eta", scales[0])
    parametrize.register_parametrization(built.attention.relative_bias, "alpha", scales[1])
    with torch.no_grad():
        _, before = stream(built, x[:, :5], (1,) * 5)
        for scale in scales:
            write(scale.factor)
        got = run(built, x[:, 5:], before, return_state=True).hidden
    want = run(built, x[:, 5:], before, return_state=True).hidden
    assert want.requires_grad, "with gradients nothing is ever kept"
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("batch", "length"), [(BATCH, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize("bias", ["simple", "rotary"])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_nothing_to_read_changes_nothing(batch, length, bias, chunk_size, precision):
    """No sequences or no steps: an empty result, the state as it was, and gradients of zero."""
    built = layer(relative_bias=bias, chunk_size=chunk_size, cross_attention=True).to(precision)
    x, source = (torch.randn(batch, size, WIDTH, dtype=precision) for size in (6, SOURCE))
    with torch.no_grad():
        before = run(built, x, encoder_out=source, return_state=True)
    empty = torch.empty(batch, length, WIDTH, dtype=precision, requires_grad=True)
    for past in (before, None):
        for mask in (None, torch.zeros(batch, length, dtype=torch.bool)):
            out = run(built, empty, past, padding_mask=mask, return_state=True, encoder_out=source)
            assert out.hidden.shape == empty.shape
            if length == 0 and past is not None:
                torch.testing.assert_close(out.memory.ema, past.memory.ema, rtol=0, atol=0)
                keys, kept = (state.cache.attention.keys.steps for state in (out, past))
                torch.testing.assert_close(keys, kept, rtol=0, atol=0)
            with torch.no_grad():
                steps = [
                    run(built, x[:, :1], other, return_state=True, encoder_out=source).hidden
                    for other in (out, past if length == 0 else out)
                ]
            torch.testing.assert_close(*steps)
            out.hidden.sum().backward()
    assert all(parameter.grad is None or parameter.grad.eq(0).all() for parameter in built.parameters())


def test_every_parameter_learns():
    built = layer(cross_attention=True, chunk_size=4, attention_function="laplace").train()
    out = run(built, hidden(10), encoder_out=hidden(SOURCE, seed=2)).hidden
    out.square().sum().backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
