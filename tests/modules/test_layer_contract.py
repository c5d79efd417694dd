"""The contract of all layers: streams in pieces of any lengths, causality, padding, rows, and state after padding."""

import inspect
import itertools
import math
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import Layer, LayerContext
from fairseq_mega.modules.llama_layer import LlamaLayer, LlamaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.s4d_layer import S4dLayer, S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig
from tests.support.layers import reorder, run

BATCH, WIDTH, SOURCE = 3, 8, 5
MEGA: Dict[str, Any] = {"hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "max_positions": 32}
MEGALODON: Dict[str, Any] = {"hidden_dim": 12, "z_dim": 8, "ema_dim": 3, "ffn_dim": 10, "heads": 2, "norm_groups": 2}
OPTIONS: Dict[str, Dict[str, Any]] = {
    **{
        f"mega {function} {bias}": {**MEGA, "attention_function": function, "relative_bias": bias}
        for function in ("softmax", "relu2", "laplace")
        for bias in ("simple", "rotary")
    },
    "mega prenorm": {**MEGA, "normalize_before": True},
    "mega cross": {**MEGA, "cross_attention": True},
    "megalodon": {**MEGALODON, "swiglu": True},
    "megalodon one head": {**MEGALODON, "heads": 1, "layer_scale": True},
    "llama": {"heads": 2, "ffn_dim": 10},
    "transformer": {"heads": 2, "ffn_dim": 10},
    "s4d": {"ema_dim": 4, "norm": "layernorm"},
}
KINDS = [kind for kind in OPTIONS if kind not in ("transformer", "s4d")]  # that read streams
REMEMBERING = [kind for kind in KINDS if kind != "llama"]  # that have a memory, and chunks
BIDIRECTIONAL = [kind for kind in OPTIONS if kind != "llama"]
CLASSES: Dict[str, Any] = {
    "mega": (MegaLayer, MegaLayerConfig),
    "megalodon": (MegalodonLayer, MegalodonLayerConfig),
    "llama": (LlamaLayer, LlamaLayerConfig),
    "transformer": (TransformerLayer, TransformerLayerConfig),
    "s4d": (S4dLayer, S4dLayerConfig),
}
CHUNKED = [(kind, size) for kind in REMEMBERING for size in (-1, 1, 4, 5, 13, 20)] + [("llama", -1)]
FEW = [(kind, size) for kind, size in CHUNKED if size in (-1, 4)]
PIECES = [(1,) * 13, (13,), (3, 8, 2), (4, 4, 4, 1), (1, 12), (11, 2), (5, 5, 3), (2, 2, 9)]


def layer(kind: str, chunk_size: int = -1, bidirectional: bool = False) -> Any:
    torch.manual_seed(0)
    module, config = CLASSES[kind.split()[0]]
    changes = {"chunk_size": chunk_size, "bidirectional": bidirectional} if kind in REMEMBERING else {}
    built = module(config(embed_dim=WIDTH, **OPTIONS[kind], **changes)).double().eval()
    with torch.no_grad():  # away from the near-zero start, where attention hardly matters
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(length: int, seed: int = 1, rows: int = BATCH) -> Tensor:
    return torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def source(kind: str, dtype: torch.dtype = torch.float64) -> Dict[str, Tensor]:
    """The context of a layer with cross attention."""
    return {"encoder_out": hidden(SOURCE, seed=2).to(dtype)} if "cross_attention" in OPTIONS[kind] else {}


def stream(built: Any, x: Tensor, pieces: Any, mask: Optional[Tensor] = None, **context: Any) -> Tuple[Tensor, Any]:
    out, outputs = None, []
    masks = [None] * len(pieces) if mask is None else mask.split(pieces, dim=1)
    for piece, own in zip(x.split(pieces, dim=1), masks):
        out = run(built, piece, out, padding_mask=own, return_state=True, **context)
        outputs.append(out.hidden)
    return torch.cat(outputs, dim=1), out


def tensors_of(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nesting of tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors_of(part)


@pytest.mark.parametrize("kind", [module for module, _ in CLASSES.values()])
def test_layers_follow_the_protocol(kind: Any) -> None:
    wanted, found = (inspect.signature(function).parameters for function in (Layer.__call__, kind.forward))
    assert list(wanted.values()) == list(found.values())


@pytest.mark.parametrize(("kind", "chunk_size"), CHUNKED)
def test_any_pieces_equal_the_whole(kind: str, chunk_size: int) -> None:
    built, x, context = layer(kind, chunk_size), hidden(13), source(kind)
    whole = run(built, x, return_state=True, **context)
    torch.testing.assert_close(whole.hidden, run(built, x, **context).hidden)
    for pieces in PIECES:
        out, last = stream(built, x, pieces, **context)
        torch.testing.assert_close(out, whole.hidden, msg=f"pieces {pieces}")
        assert len(last.cache.attention.keys) == (13 if chunk_size < 0 else 13 % chunk_size)
        assert not context or last.cache.cross_attention.step == 13
        for got, want in zip(tensors_of(last.memory), tensors_of(whole.memory)):
            torch.testing.assert_close(got, want, msg=f"memory after pieces {pieces}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kind", "chunk_size"), [pair for pair in CHUNKED if pair[1] in (-1, 1, 5)])
def test_single_steps_of_decoding_equal_the_whole(kind: str, chunk_size: int, dtype: torch.dtype) -> None:
    """Without gradients steps go a shorter way; a beam may go on from each of them in several ways."""
    built, x, context = layer(kind, chunk_size).to(dtype), hidden(13).to(dtype), source(kind, dtype)
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
    steps: List[Any] = []
    with torch.no_grad():
        whole = run(built, x, return_state=True, **context)
        for piece in x.split(1, dim=1):
            steps.append(run(built, piece, steps[-1] if steps else None, return_state=True, **context))
        again = run(built, x[:, 8:9], steps[7], return_state=True, **context)
    assert torch.equal(again.hidden, steps[8].hidden)
    out = torch.cat([found.hidden for found in steps], dim=1)
    torch.testing.assert_close(out, whole.hidden, rtol=0, atol=tolerance * whole.hidden.abs().max().item())
    for got, want in zip(tensors_of(steps[-1].memory), tensors_of(whole.memory)):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(DTYPES, 2)), ids=str)
@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_a_stream_goes_on_in_another_precision(
    kind: str, chunk_size: int, before: torch.dtype, after: torch.dtype, grad: bool
) -> None:
    """The layer is converted between two steps, or two pieces; the state of the stream is that of the first type."""
    built, x = layer(kind, chunk_size), hidden(13)
    whole = run(built, x, **source(kind)).hidden
    tolerance = 0.1 if torch.bfloat16 in (before, after) else 2e-5
    for pieces in ((1, 1, 1), (6, 6, 1), (6, 1, 6)):
        out, read = None, 0
        for piece, dtype in zip(pieces, (before, after, before)):
            with torch.set_grad_enabled(grad):
                given = x[:, read : read + piece].to(dtype)
                out = run(built.to(dtype), given, out, return_state=True, **source(kind, dtype))
            assert out.hidden.dtype == dtype
            want = whole[:, read : read + piece]
            torch.testing.assert_close(out.hidden.double(), want, rtol=0, atol=tolerance * whole.abs().max().item())
            read += piece
        built.double()


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_gradients_cross_pieces(kind: str, chunk_size: int) -> None:
    """Memory and cache are differentiable: pieces give the gradients of the whole."""
    built, found = layer(kind, chunk_size), []
    for pieces in ((13,), (4, 8, 1), (3, 5, 5)):
        x = hidden(13).requires_grad_()
        out, _ = stream(built, x, pieces, **source(kind))
        found.append(torch.autograd.grad(out.square().sum(), [x, *built.parameters()]))
    for others in found[1:]:
        for got, want in zip(others, found[0]):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_causality(kind: str, chunk_size: int) -> None:
    built, x, context = layer(kind, chunk_size), hidden(11), source(kind)
    before = run(built, x, **context).hidden
    x[:, 6] += hidden(1, seed=9)[:, 0]
    after = run(built, x, **context).hidden
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-13)
    assert (after[:, 6:] - before[:, 6:]).abs().amax(dim=(0, 2)).min() > 1e-9


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_streams_remember_padding(kind: str, chunk_size: int) -> None:
    """Padded steps, at the start or inside, stay padded for later steps, whatever their value."""
    built, x, context = layer(kind, chunk_size), hidden(13), source(kind)
    mask = torch.zeros(BATCH, 13, dtype=torch.bool)
    mask[1, :5] = True
    mask[2, 5:7] = True
    whole = run(built, x, padding_mask=mask, **context).hidden
    for pieces in PIECES[1:]:  # none ends within the padding
        for value in (0.0, 7.0, math.nan, math.inf):
            out, _ = stream(built, x.masked_fill(mask.unsqueeze(-1), value), pieces, mask, **context)
            torch.testing.assert_close(out[~mask], whole[~mask], msg=f"{value} at padding, pieces {pieces}")


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_no_value_at_padding_reaches_a_gradient(kind: str, chunk_size: int, bidirectional: bool) -> None:
    built, context = layer(kind, chunk_size, bidirectional), source(kind)
    mask = torch.zeros(BATCH, 13, dtype=torch.bool)
    mask[0, 8:] = mask[1, 2:4] = mask[2] = True
    found = []
    for value in (0.0, math.nan):
        x = hidden(13).masked_fill(mask.unsqueeze(-1), value).requires_grad_()
        out = run(built, x, padding_mask=mask, **context).hidden[~mask]
        found.append([out, *torch.autograd.grad(out.square().sum(), list(built.parameters()))])
    for got, want in zip(found[1], found[0]):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not source(kind)])  # cross attention counts all steps
@pytest.mark.parametrize(("chunk_size", "left"), [(-1, 3), (4, 4), (4, 8)])
def test_padding_on_either_side_changes_nothing(kind: str, chunk_size: int, left: int) -> None:
    """On the left of a layer with chunks as long as whole chunks: where chunks end is a matter of columns."""
    built, x, context = layer(kind, chunk_size), hidden(6), source(kind)
    mask = torch.ones(BATCH, left + 6 + 3, dtype=torch.bool)
    mask[:, left : left + 6] = False
    padded = torch.cat([hidden(left, seed=7), x, hidden(3, seed=8)], dim=1)
    got = run(built, padded, padding_mask=mask, **context).hidden[:, left : left + 6]
    torch.testing.assert_close(got, run(built, x, **context).hidden)


@pytest.mark.parametrize(("kind", "chunk_size"), [(kind, size) for kind in BIDIRECTIONAL for size in (-1, 4)])
def test_right_padding_of_a_bidirectional_layer_changes_nothing(kind: str, chunk_size: int) -> None:
    built, context = layer(kind, chunk_size, bidirectional=True), source(kind)
    for length in (3, 4, 7, 8):
        x, mask = hidden(length), torch.zeros(BATCH, length + 6, dtype=torch.bool)
        mask[:, length:] = True
        padded = run(built, torch.cat([x, hidden(6, seed=8)], dim=1), padding_mask=mask, **context).hidden
        want = run(built, x, **context).hidden
        torch.testing.assert_close(padded[:, :length], want, msg=f"length {length}")


@pytest.mark.parametrize("kind", BIDIRECTIONAL)
def test_rows_of_a_bidirectional_layer_do_not_see_each_other(kind: str) -> None:
    built, x, order = layer(kind, 4, bidirectional=True), hidden(10), torch.tensor([2, 0, 1])
    context = source(kind)
    moved = {name: tensor[order] for name, tensor in context.items()}
    torch.testing.assert_close(run(built, x[order], **moved).hidden, run(built, x, **context).hidden[order])


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_state_follows_its_rows(kind: str, chunk_size: int) -> None:
    built, x, order, context = layer(kind, chunk_size), hidden(13), torch.tensor([2, 0, 0, 1]), source(kind)
    whole = run(built, x, **context).hidden
    before = run(built, x[:, :10], return_state=True, **context)
    after = run(built, x[order, 10:], reorder(before, order), return_state=True).hidden
    torch.testing.assert_close(after, whole[order, 10:])


LENGTHS = (9, 4, 6, 0, 1)  # real steps of rows that end in padding
PADDED = [kind for kind in REMEMBERING if kind != "mega cross"]


def padding(lengths: Any, total: int, left: int = 0) -> Tensor:
    """Mask of rows of real steps after ``left`` padded ones."""
    places = torch.arange(total)
    return torch.stack([(places < left) | (places >= left + length) for length in lengths])


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize(("begins", "left"), [(None, 0), (None, 4), (8, 0)])
def test_memory_is_that_of_the_last_real_step(kind: str, chunk_size: int, begins: Optional[int], left: int) -> None:
    """Each row has the memory of being read alone, at the beginning of a stream and later in one."""
    built, rows = layer(kind, chunk_size), len(LENGTHS)
    before = None if begins is None else run(built, hidden(begins, 2, rows), return_state=True)
    memory = None if before is None else before.memory
    total = left + max(LENGTHS) + 2
    x, mask = hidden(total, rows=rows), padding(LENGTHS, total, left)
    got = built(x.masked_fill(mask.unsqueeze(-1), 5.0), LayerContext(padding_mask=mask, return_state=True), memory)
    for row, length in enumerate(LENGTHS):
        alone = None if before is None else run(built, hidden(8, 2, rows)[row : row + 1], return_state=True).memory
        want = built(x[row : row + 1, left : left + length], LayerContext(return_state=True), alone)
        for found, expected in zip(tensors_of(got.memory), tensors_of(want.memory)):
            torch.testing.assert_close(found[row], expected[0], msg=f"row of {length} steps")


@pytest.mark.parametrize("kind", PADDED)
def test_reading_on_begins_a_chunk(kind: str) -> None:
    """Rows that end after whole chunks read on as if alone; gradients cross the padding."""
    built, lengths = layer(kind, 4), (8, 4)
    x, mask, following = hidden(8, rows=2).requires_grad_(), padding(lengths, 8), hidden(5, 3, 2)
    first = run(built, x, padding_mask=mask, return_state=True)
    second = built(following, LayerContext(), first.memory).hidden
    (gradient,) = torch.autograd.grad(second.square().sum(), x)
    for row, length in enumerate(lengths):
        alone = x.detach()[row : row + 1, :length].requires_grad_()
        joined = torch.cat([alone, following[row : row + 1]], dim=1)
        want = built(joined).hidden[:, length:]
        torch.testing.assert_close(second[row : row + 1], want)
        (expected,) = torch.autograd.grad(want.square().sum(), alone)
        torch.testing.assert_close(gradient[row, :length], expected[0])


@pytest.mark.parametrize(("kind", "chunk_size"), [pair for pair in FEW if pair[0] in (*PADDED, "llama")])
def test_a_cache_that_ends_in_padding_is_not_read_on(kind: str, chunk_size: int) -> None:
    built, mask = layer(kind, chunk_size), padding((3, 2), 3)
    first = run(built, hidden(3, rows=2), padding_mask=mask, return_state=True)
    for following in (hidden(1, 3, 2), hidden(5, 3, 2)):
        with pytest.raises(ValueError, match="a row ends in padding within a chunk"):
            run(built, following, first, return_state=True)
    ended = padding((4, 0), 4)
    assert run(built, hidden(4, rows=2), first, padding_mask=ended, return_state=True).hidden.isfinite().all()
