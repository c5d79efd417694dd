"""The contract of all layers: streams in pieces of any lengths, causality, padding, rows, and state after padding."""

import itertools
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.layer import LayerContext, LayerOutput
from fairseq_mega.modules.llama_layer import LlamaLayer, LlamaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.attention import NormalizedGatedAttention
from fairseq_mega.modules.megalodon.complex_ema import ComplexEMA
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.megalodon.norms import TimestepNorm
from fairseq_mega.modules.s4d_layer import S4dLayer, S4dLayerConfig
from fairseq_mega.modules.state_space import DiagonalStateSpace
from fairseq_mega.modules.transformer_layer import TransformerLayer, TransformerLayerConfig
from fairseq_mega.ops.common.dispatch import VARIABLE
from tests.support.layers import reorder, run
from tests.support.numerics import assert_close

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
    "mega scalenorm": {**MEGA, "norm": "scalenorm"},
    "mega rmsnorm": {**MEGA, "norm": "rmsnorm", "normalize_before": True},
    "mega cross": {**MEGA, "cross_attention": True},
    "megalodon": {**MEGALODON, "swiglu": True},
    "megalodon one head": {**MEGALODON, "heads": 1, "layer_scale": True},
    "llama": {"heads": 2, "ffn_dim": 10},
    "transformer": {"heads": 2, "ffn_dim": 10},
    "s4d": {"ema_dim": 4, "norm": "layernorm"},
}
WITHOUT_CHUNKS = ("llama", "transformer", "s4d")
KINDS = [kind for kind in OPTIONS if kind not in ("transformer", "s4d")]  # that read streams
REMEMBERING = [kind for kind in KINDS if kind != "llama"]  # that have a memory, and chunks
PADDED = [kind for kind in REMEMBERING if kind != "mega cross"]  # cross attention counts all steps
BIDIRECTIONAL = [kind for kind in OPTIONS if kind != "llama"]
OPTIONS["mega batchnorm"] = {**MEGA, "norm": "batchnorm"}  # in evaluation
BIDIRECTIONAL.append("mega batchnorm")
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


def layer(kind: str, chunk_size: int = -1, bidirectional: bool = False, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    module, config = CLASSES[kind.split()[0]]
    changes = {} if kind in WITHOUT_CHUNKS else {"chunk_size": chunk_size, "bidirectional": bidirectional}
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


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
def test_a_saved_state_continues(kind: str, chunk_size: int, tmp_path: Path) -> None:
    built, x, context = layer(kind, chunk_size), hidden(13), source(kind)
    with torch.no_grad():
        first = run(built, x[:, :6], return_state=True, **context)
        torch.save((first.memory, first.cache), tmp_path / "state.pt")
        saved = first._replace(**dict(zip(("memory", "cache"), torch.load(tmp_path / "state.pt"))))
        want, got = (run(built, x[:, 6:], state, return_state=True, **context) for state in (first, saved))
    assert torch.equal(got.hidden, want.hidden)


@pytest.mark.parametrize("shape", [(13, WIDTH), (2, 3, 13, WIDTH)], ids=str)
@pytest.mark.parametrize("kind", REMEMBERING)
def test_an_input_without_the_three_axes_is_an_error(kind: str, shape: Tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must be \(B, L, \d+\)"):
        run(layer(kind), torch.zeros(shape, dtype=torch.float64))


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
        run(built, x[:, :1], steps[7], return_state=True, **context)
        again = [run(built, x[:, at : at + 1], steps[at - 1], return_state=True, **context) for at in (9, 8)]
    assert torch.equal(again[0].hidden, steps[9].hidden) and torch.equal(again[1].hidden, steps[8].hidden)
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


PARTS: Dict[str, Any] = {  # of layers, that read streams
    "gated attention": lambda size: GatedAttention(MegaLayerConfig(embed_dim=WIDTH, chunk_size=size, **MEGA)),
    "normalized gated attention": lambda size: NormalizedGatedAttention(
        MegalodonLayerConfig(embed_dim=WIDTH, chunk_size=size, **MEGALODON)
    ),
    "ema": lambda _: MultiDimensionalDampedEMA(WIDTH, 3),
    "complex ema": lambda _: ComplexEMA(WIDTH, 3),
    "timestep norm": lambda _: TimestepNorm(WIDTH, 2),
    "state space": lambda _: DiagonalStateSpace(WIDTH, 4),
}
MEMORIES = ("ema", "complex ema", "timestep norm", "state space")  # without a cache
STREAMED = [(kind, size) for kind in (*REMEMBERING, *list(PARTS)[:2]) for size in (-1, 1, 4)]
STREAMED += [(kind, -1) for kind in ("llama", *MEMORIES)]


def stream_of(kind: str, chunk_size: int) -> Tuple[Any, Any]:
    """A layer or a part, and its function of steps, padding mask and earlier result; a result has ``hidden``."""
    built = part(kind, chunk_size) if kind in PARTS else layer(kind, chunk_size)
    context = source(kind) if kind in OPTIONS else {}

    def read(x: Tensor, mask: Tensor, after: Any) -> Any:
        if kind not in MEMORIES:
            return run(built, x, after, padding_mask=mask, return_state=True, **context)
        before = None if after is None else after.memory
        if kind == "timestep norm":
            return LayerOutput(*built(x, mask, before))
        return LayerOutput(*built(x, padding_mask=mask, state=before, return_state=True))

    return built, read


def part(kind: str, chunk_size: int) -> Any:
    torch.manual_seed(0)
    built = PARTS[kind](chunk_size).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def mask_of(*rows: str) -> Tensor:
    """Mask from a line for each row, with a dot at padding."""
    return torch.tensor([[step == "." for step in row] for row in rows])


PADDINGS = [
    mask_of(".....rrrrrrrr", "rrrrrr..rrrrr", "rrrrrrrrr...."),
    mask_of("..rr....rrrrr", ".rrr.r......r", "............."),
    mask_of("rr.rr.rrr.r.r", "rrrr.........", "........rrr.."),
]


def is_refused(mask: Tensor, pieces: Any, chunk_size: int) -> bool:
    """Return whether a row that has real steps ends in padding within a chunk and goes on in the next piece."""
    read = 0
    for piece, following in itertools.pairwise(pieces):
        read += piece
        inside = chunk_size < 0 or read % chunk_size > 0
        begun, goes_on = (~mask[:, :read]).any(1), (~mask[:, read : read + following]).any(1)
        if inside and bool((begun & mask[:, read - 1] & goes_on).any()):
            return True
    return False


@pytest.mark.parametrize(("kind", "chunk_size"), STREAMED)
@pytest.mark.parametrize("mask", PADDINGS, ids=range(len(PADDINGS)))
def test_padded_streams_in_pieces_equal_the_whole(kind: str, chunk_size: int, mask: Tensor) -> None:
    """Padding on the left, on the right and inside; pieces cut everywhere; whatever the values at padding."""
    built, read = stream_of(kind, chunk_size)
    parameters, results, refused = list(built.parameters()), {}, set()
    for pieces in [(13,), (1,) * 13, *((cut, 13 - cut) for cut in range(1, 13)), *PIECES]:
        value = 0.0 if len(pieces) == 1 else 7.0 if kind in PARTS else math.nan
        x, outputs = hidden(13).masked_fill(mask.unsqueeze(-1), value).requires_grad_(), []
        out: Any = None
        if kind not in MEMORIES and is_refused(mask, pieces, chunk_size):
            with pytest.raises(ValueError, match="ends in padding within a chunk"):
                for steps, absent in zip(x.split(pieces, 1), mask.split(pieces, 1)):
                    out = read(steps, absent, out)
            refused.add(pieces)
            continue
        for steps, absent in zip(x.split(pieces, 1), mask.split(pieces, 1)):
            out = read(steps, absent, out)
            outputs.append(out.hidden)
        y = torch.cat(outputs, 1)[~mask]
        gradients = torch.autograd.grad(y.square().sum(), [x, *parameters], materialize_grads=True)
        results[pieces] = [y, *tensors_of(out.memory), gradients[0][~mask], *gradients[1:]]
    assert len(results) > 3 or (chunk_size < 0 and len(refused) > 3)
    for pieces, found in results.items():
        for got, want in zip(found, results[(13,)]):
            torch.testing.assert_close(got, want, msg=f"pieces {pieces}")


ROWS = [(1, "..rrr.r..rrr."), (4, "....rrrr....r"), (4, "rrrr........r"), (-1, "...rrrrrr....")]
KINDS_OF_ROWS = [*PADDED, *PARTS, *(f"{kind} both ways" for kind in PADDED), "s4d"]


@pytest.mark.parametrize(
    ("kind", "chunk_size", "row"), [*((kind, *row) for kind in KINDS_OF_ROWS for row in ROWS), ("llama", *ROWS[-1])]
)
def test_a_padded_row_is_the_row_without_padding(kind: str, chunk_size: int, row: str) -> None:
    """Padding of whole chunks, whose steps attend to each other alone, or on both sides of one attention."""
    name = kind.removesuffix(" both ways")
    built = part(name, chunk_size) if kind in PARTS else layer(name, chunk_size, name != kind)
    mask = mask_of(row)
    x = hidden(13, rows=1).requires_grad_()
    found = []
    for given, absent in ((x, mask), (x[:, ~mask[0]], None)):
        if kind in MEMORIES:
            y, _ = built(given, padding_mask=absent)
        else:
            y = run(built, given, padding_mask=absent).hidden
        y = y if absent is None else y[:, ~absent[0]]
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *built.parameters()], materialize_grads=True)])
    for got, want in zip(*found):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_value_at_padding_reaches_anything(
    kind: str, chunk_size: int, bidirectional: bool, path: str, dtype: Any, value: float, monkeypatch: Any
) -> None:
    """Neither through 0 * NaN in the attention, nor into the gradients of inputs, the encoder's output and weights."""
    monkeypatch.setenv(VARIABLE, path)
    built = layer(kind, chunk_size, bidirectional and kind != "llama").to(dtype)
    mask, source_mask = torch.zeros(BATCH, 13, dtype=torch.bool), torch.zeros(BATCH, SOURCE, dtype=torch.bool)
    mask[0, 8:] = mask[1, 2:4] = mask[2] = True
    source_mask[0, 3:] = source_mask[1] = True
    found = []
    for padding_value in (0.0, value):
        given = [hidden(13).to(dtype).masked_fill(mask.unsqueeze(-1), padding_value).requires_grad_()]
        context: Dict[str, Any] = {"padding_mask": mask}
        if source(kind):
            given.append(source(kind, dtype)["encoder_out"].masked_fill(source_mask.unsqueeze(-1), padding_value))
            context.update(encoder_out=given[1].requires_grad_(), encoder_padding_mask=source_mask)
        out = run(built, given[0], **context).hidden[~mask]
        gradients = torch.autograd.grad(out.square().sum(), [*given, *built.parameters()])
        assert all(gradient.isfinite().all() for gradient in gradients)
        real = [gradient[~absent] for gradient, absent in zip(gradients, (mask, source_mask)[: len(given)])]
        found.append([out, *real, *gradients[len(given) :]])
    for got, want in zip(*found):
        torch.testing.assert_close(got, want)


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)  # decoding has kernels of its own in float32
def test_state_follows_its_rows(kind: str, chunk_size: int, dtype: torch.dtype) -> None:
    built, x, order = layer(kind, chunk_size).to(dtype), hidden(13).to(dtype), torch.tensor([2, 0, 0, 1])
    context = source(kind, dtype)
    with torch.no_grad():
        whole = run(built, x, **context).hidden
        for pieces in ((10,), (1,) * 10):
            _, before = stream(built, x[:, :10], pieces, **context)
            after, out = [], reorder(before, order)
            for step in x[order, 10:].split(1, dim=1):
                out = run(built, step, out, return_state=True)
                after.append(out.hidden)
            torch.testing.assert_close(torch.cat(after, dim=1), whole[order, 10:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["mega cross", "megalodon"])
def test_an_order_that_changes_nothing_copies_nothing(kind: str) -> None:
    built, context = layer(kind, 4), source(kind)
    before = run(built, hidden(6), return_state=True, **context)
    kept = reorder(before, torch.arange(BATCH))
    assert all(same is part for same, part in zip(tensors_of(kept.memory), tensors_of(before.memory)))
    assert all(same is part for same, part in zip(kept.cache.attention, before.cache.attention))
    fewer = reorder(before, torch.arange(BATCH - 1))  # its first rows are in order, too
    for some, every in zip(tensors_of(fewer.memory), tensors_of(before.memory)):
        assert torch.equal(some, every[:-1])
    assert torch.equal(fewer.cache.attention.keys.steps, before.cache.attention.keys.steps[:-1])


@pytest.mark.parametrize(("batch", "length"), [(BATCH, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nothing_to_read_changes_nothing(kind: str, chunk_size: int, batch: int, length: int, dtype: Any) -> None:
    """No sequences or no steps: an empty result, the state as it was, and gradients of zero."""
    built = layer(kind, chunk_size).to(dtype)
    context = {name: tensor[:batch] for name, tensor in source(kind, dtype).items()}
    x = hidden(6, rows=batch).to(dtype)
    with torch.no_grad():
        before = run(built, x, return_state=True, **context)
    empty = torch.empty(batch, length, WIDTH, dtype=dtype, requires_grad=True)
    for past in (before, None):
        for mask in (None, torch.zeros(batch, length, dtype=torch.bool)):
            out = run(built, empty, past, padding_mask=mask, return_state=True, **context)
            assert out.hidden.shape == empty.shape
            if length == 0 and past is not None:
                for got, want in zip(tensors_of(out.memory), tensors_of(past.memory)):
                    torch.testing.assert_close(got, want, rtol=0, atol=0)
                assert torch.equal(out.cache.attention.keys.steps, past.cache.attention.keys.steps)
            with torch.no_grad():
                after = [out, past if length == 0 else out]
                steps = [run(built, x[:, :1], other, return_state=True, **context).hidden for other in after]
            torch.testing.assert_close(*steps)
            out.hidden.sum().backward()
    assert all(parameter.grad is None or parameter.grad.eq(0).all() for parameter in built.parameters())


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_near_float64(kind: str, chunk_size: int, dtype: torch.dtype) -> None:
    """As weights and under autocast; what crosses chunks keeps at least float32."""
    if dtype == torch.float16 and kind.startswith("megalodon"):
        pytest.skip("MEGALODON refuses float16, see the contracts of the models")
    built, x, context = layer(kind, chunk_size), hidden(13), source(kind)
    want = run(built, x, **context).hidden
    assert_close("float32", run(built.float(), x.float(), **source(kind, torch.float32)).hidden, want)
    with torch.autocast("cpu", dtype):
        cast = run(built, x.float(), return_state=True, **source(kind, torch.float32))
    half = run(built.to(dtype), x.to(dtype), return_state=True, **source(kind, dtype))
    assert half.hidden.dtype == dtype
    for out in (cast, half):
        assert (out.hidden.double() - want).norm() / want.norm() < (0.05 if dtype == torch.bfloat16 else 0.01)
        assert all(tensor.dtype not in (torch.bfloat16, torch.float16) for tensor in tensors_of(out.memory))


def outputs_of(built: Any, x: Tensor, context: Any) -> Tensor:
    """The whole, the beginning of a stream in one call and in steps, without gradients."""
    with torch.no_grad():
        streamed = [stream(built, x, pieces, **context)[0] for pieces in ((13,), (1,) * 13)]
        return torch.stack([run(built, x, **context).hidden, *streamed])


@pytest.mark.parametrize(("kind", "chunk_size"), FEW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)  # decoding has kernels of its own in float32
@pytest.mark.parametrize("write", ["copy_", "data", "load_state_dict"])
def test_new_weights_take_effect(kind: str, chunk_size: int, dtype: torch.dtype, write: str) -> None:
    """Nothing is kept across a change of weights, those behind torch's back included, as of an average of them."""
    built, other = (layer(kind, chunk_size, seed=seed).to(dtype) for seed in (0, 9))
    x, context = hidden(13).to(dtype), source(kind, dtype)
    before, want = outputs_of(built, x, context), outputs_of(other, x, context)
    if write == "load_state_dict":
        built.load_state_dict(other.state_dict())
    else:
        for parameter, value in zip(built.parameters(), other.parameters()):
            (parameter.data if write == "data" else parameter.detach()).copy_(value)
    assert not torch.equal(before, want)
    torch.testing.assert_close(outputs_of(built, x, context), want, rtol=0, atol=0)


LENGTHS = (9, 4, 6, 0, 1)  # real steps of rows that end in padding


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
@pytest.mark.parametrize("lengths", [(3, 2), (5, 4), (7, 4)])
def test_a_cache_that_ends_in_padding_is_not_read_on(kind: str, chunk_size: int, lengths: Tuple[int, int]) -> None:
    """Also if the second row's part of the unfinished chunk is nothing but padding."""
    built, total = layer(kind, chunk_size), lengths[0]
    first = run(built, hidden(total, rows=2), padding_mask=padding(lengths, total), return_state=True)
    for following in (hidden(1, 3, 2), hidden(5, 3, 2)):
        with pytest.raises(ValueError, match="a row ends in padding within a chunk"):
            run(built, following, first, return_state=True)
    ended = padding((4, 0), 4)
    assert run(built, hidden(4, rows=2), first, padding_mask=ended, return_state=True).hidden.isfinite().all()
    fresh = run(built, hidden(total, rows=2), padding_mask=padding((total, 0), total), return_state=True)
    assert run(built, hidden(4, rows=2), fresh, return_state=True).hidden.isfinite().all()
