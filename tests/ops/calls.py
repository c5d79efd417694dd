"""Calls of every compiled operator, and a view of the arguments that they pass.

Widths and lengths are no multiples of a vector or a tile, where a kernel's tail is.
"""

import copy
import functools
import itertools
from typing import Any, Callable, Dict, List, Sequence, Tuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.packed_linear import pack_linear_maps
from fairseq_mega.modules.trunk import Trunk
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.attention import FUNCTIONS, attention
from fairseq_mega.ops.common import native
from fairseq_mega.ops.cross_entropy import cross_entropy
from fairseq_mega.ops.dropout import dropout
from fairseq_mega.ops.ema import EMACoefficients, complex_ema_coefficients, ema_coefficients, gated_ema_step
from fairseq_mega.ops.ema.native import ema_native
from fairseq_mega.ops.gate import Addition, gated_residual
from fairseq_mega.ops.linear import linear, linear_parts, silu_linear
from fairseq_mega.ops.norm import norm_of_sum, row_norm
from fairseq_mega.ops.packed_linear import KINDS, MOST_ROWS, PackedMatrix, pack, packed_linear
from fairseq_mega.ops.query_key import query_key
from fairseq_mega.ops.rotary import normalized_query_key
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics, timestep_norm
from tests.support.layers import run

Arguments = Dict[str, Any]  # of an operator, by name


def each(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Return an argument with its tensor, or each of a list's, changed."""
    if isinstance(value, (list, tuple)):
        return [each(change, part) for part in value]
    return change(value) if isinstance(value, Tensor) else value


def tensors_of(value: Any) -> List[Tensor]:
    """Tensors of an argument, none where it is something else."""
    found: List[Tensor] = []
    each(found.append, value)
    return found


class Watch(TorchDispatchMode):
    """See every call of an operator of this package; :meth:`call` makes it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = func.namespace == native.NAMESPACE
        return self.named_call(func, *args, **(kwargs or {})) if ours else func(*args, **(kwargs or {}))

    def named_call(self, operator: Any, *args: Any, **kwargs: Any) -> Any:
        names = [argument.name for argument in operator._schema.arguments]
        return self.call(operator, {**dict(zip(names, args)), **kwargs})

    def call(self, operator: Any, arguments: Arguments) -> Any:
        return operator(**arguments)

    def __enter__(self) -> Any:
        """Also see the operators that write in place: they are called within an operator of Python, unseen by modes."""
        self._patch = mock.patch.object(native, "operators", _Watched(self, native.operators))
        self._patch.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.stop()


class _Watched:
    def __init__(self, watch: Watch, operators: Any) -> None:
        self._watch, self._operators = watch, operators

    def __getattr__(self, name: str) -> Any:
        operator = getattr(self._operators, name)
        return functools.partial(self._watch.named_call, operator.default) if name.endswith("_") else operator


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers that take a gradient."""
    return torch.randn(*shape, dtype=torch.float32).to(dtype).requires_grad_()


def backward(*outputs: Tensor) -> None:
    """Gradients of outputs that have random ones themselves."""
    torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])


def run_ema(dtype: torch.dtype) -> None:
    """Both directions, truncated or with a state, real and complex, masked."""
    for width, dims, kind in itertools.product((1, 19, 37), (1, 3), (torch.float32, torch.complex64)):
        for bidirectional, truncation, streaming in ((True, 5, False), (False, 7, False), (False, None, True)):
            rows = width * (1 + bidirectional)
            decay = -torch.rand(rows, dims).to(kind) - 0.01
            parts = decay, torch.randn(rows, dims), torch.randn(rows, dims, dtype=kind)
            coefficients = EMACoefficients(*(part.requires_grad_() for part in parts))
            masks: Dict[str, Any] = {"padding_mask": torch.rand(2, 45) < 0.2, "reset_mask": torch.rand(2, 45) < 0.1}
            state = torch.randn(2, width, dims, dtype=kind).requires_grad_() if streaming else None
            options: Dict[str, Any] = {"bidirectional": bidirectional, "truncation": truncation, "state": state}
            y, last = ema_native(draw(2, 45, width, dtype=dtype), coefficients, **masks, **options)
            backward(y, *(() if last is None or not streaming else (last,)))


def run_coefficients() -> None:
    """The coefficients of the EMA, real and complex."""
    for width, dims in itertools.product((1, 19, 37), (1, 3)):
        alpha, delta, beta, eta = (draw(width, dims) for _ in range(4))
        backward(*ema_coefficients(alpha, delta, beta, eta))
        backward(*complex_ema_coefficients(alpha, delta, draw(width, 1), draw(width, dims, 2)))


@torch.no_grad()
def run_ema_steps() -> None:
    """Single steps of an EMA, real and complex."""
    for width, dims, kind in itertools.product((1, 19, 37), (1, 3), (torch.float32, torch.complex64)):
        decay, state = -torch.rand(width, dims).to(kind), torch.randn(2, width, dims, dtype=kind)
        coefficients = EMACoefficients(decay, torch.randn(width, dims), torch.randn(width, dims, dtype=kind))
        gated_ema_step(torch.randn(2, width), coefficients, torch.randn(width), state)


def run_attention(dtype: torch.dtype, paths: Sequence[str] = ("native", "native_blocks")) -> None:
    """Every function, with and without a bias, causal or not, masked and dropping."""
    widths = [(path, 13, 11) for path in paths] + [("native_blocks", 14, 38)] * (len(paths) - 1)
    for function, causal, biased, (queries, keys), (path, z, v) in itertools.product(
        FUNCTIONS, (False, True), (False, True), ((21, 21), (3, 37), (1, 5)), widths
    ):
        out = attention(
            *(draw(2, length, width, dtype=dtype) for length, width in ((queries, z), (keys, z), (keys, v))),
            function=function,
            bias=torch.randn(queries + keys - 1).requires_grad_() if biased else None,
            causal=causal,
            padding_mask=torch.rand(2, keys) < 0.2,
            dropout=0.1,
            drop_key=0.1,
            path=path,
        )
        backward(out)


def run_gate_and_statistics(dtype: torch.dtype) -> None:
    """The update gate and the timestep norm, whose rows end in the middle of a vector."""
    for width, count, p in itertools.product((1, 7, 33), (3, 4), (0.0, 0.3)):
        inputs = (draw(2, 5, width, dtype=dtype) for _ in range(count))
        backward(gated_residual(*inputs, dropout=p, path="native"))
    for width, groups in ((27, 9), (24, 1), (7, 7), (36, 9), (24, 3), (48, 3)):
        x, weight, bias = draw(3, 19, width, dtype=dtype), draw(width), draw(width)
        before, *moments = fresh_statistics(x, groups)
        carried = TimestepNormState(before + 3, *(moment.requires_grad_() for moment in moments))
        for state in (None, carried):
            padding_mask = torch.rand(3, 19) < 0.2
            y, after = timestep_norm(x, weight, bias, groups, state=state, padding_mask=padding_mask, path="native")
            backward(y, after.mean, after.variance)


def run_rows(dtype: torch.dtype) -> None:
    """Dropout and losses, whose rows end in the middle of a vector."""
    for width in (1, 7, 33):
        backward(dropout(draw(2, 5, width, dtype=dtype), 0.3, path="native"))
        backward(*cross_entropy(draw(5, width, dtype=dtype), torch.arange(5) % width, path="native"))


def run_activations(dtype: torch.dtype) -> None:
    """Activations, queries and keys, whose rows end in the middle of a vector."""
    for width in (1, 7, 33):
        x, factor, skip = (draw(2, 5, width, dtype=dtype) for _ in range(3))
        backward(silu(x, factor, skip=skip, omega=draw(width), path="native"))
        backward(*query_key(x, draw(2, width), draw(2, width), path="native"))
    for heads, features in itertools.product((1, 3), (2, 6, 34)):
        x, columns = draw(3, 90, heads * features, dtype=dtype), (draw(2, heads, features) for _ in range(2))
        options: Dict[str, Any] = {"first": 3, "chunk_size": 7, "base": 100.0, "eps": 1e-5}
        backward(*normalized_query_key(x, *columns, **options, path="native"))


def run_norms(dtype: torch.dtype) -> None:
    """Layer and RMS norm of rows that lie together or apart, also into bfloat16."""
    for width, centred, gap in itertools.product((1, 7, 33), (False, True), (0, 3)):
        for columns, result in itertools.product((0, 1, 2), (dtype, torch.bfloat16)):
            x = draw(4, 65, width + 2 * gap, dtype=dtype)[..., gap : gap + width]  # more rows than one part has
            coefficients = (draw(width) for _ in range(columns))
            backward(row_norm(x, *coefficients, centred=centred, eps=1e-5, dtype=result, path="native"))


def run_sums_with_norms() -> None:
    """Norms of a sum in one kernel, which GPUs alone have; with the sum, or with a copy of the norm."""
    rows, columns = [draw(2, 5, 7) for _ in range(4)], [draw(7) for _ in range(3)]
    for keeps_sum, dtype in ((True, torch.float32), (True, torch.bfloat16), (False, torch.bfloat16)):
        added = Addition(rows[0], rows[1], rows[2], columns[0], 0.3)
        norm: Dict[str, Any] = {"added": added, "keeps_sum": keeps_sum, "dtype": dtype, "centred": True, "eps": 1e-5}
        first, second = norm_of_sum(rows[3], *columns[1:], **norm)
        assert second is not None
        backward(first, second)


def stream(layer: Any, dtype: torch.dtype, batch: int) -> None:
    """Single steps of a layer, past the end of a chunk of five."""
    layer, out = layer.eval().to(dtype), None
    for _ in range(12):
        out = run(layer, torch.randn(batch, 1, 19).to(dtype), out, return_state=True)


class Layers(Trunk, nn.Module):
    """Layers by themselves."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.add_layers(layers, None)


def stream_of_joined(*layers: nn.Module) -> None:
    """Single steps of layers all at once."""
    trunk, state = Layers(*layers).eval(), None
    for _ in range(12):
        state = trunk.run_layers(torch.randn(3, 1, 19), LayerContext(return_state=True), state).state


@torch.no_grad()
def run_decoding(dtype: torch.dtype) -> None:
    """Single steps of layers of odd widths, in one call and in parts; the kernels for whole steps take float32 only."""
    widths: Dict[str, Any] = {"embed_dim": 19, "hidden_dim": 13, "ffn_dim": 9}
    batches = (3, MOST_ROWS + 1)  # of more rows the linear maps are PyTorch's
    for batch, chunk, function, dims in itertools.product(batches, (-1, 5), ("softmax", "laplace", "relu2"), (1, 3)):
        shape = {**widths, "z_dim": 5, "ema_dim": dims, "chunk_size": chunk}
        stream(MegaLayer(MegaLayerConfig(**shape, attention_function=function)), dtype, batch)
    variants: Tuple[Dict[str, Any], ...] = (
        {"z_dim": 6, "ema_dim": 3, "chunk_size": 5},
        {"z_dim": 10, "ema_dim": 1, "ema_norm": "silu", "swiglu": True},
        {"z_dim": 6, "ema_dim": 2, "norm_affine": False, "layer_scale": True},
        {"z_dim": 12, "ema_dim": 3, "heads": 2, "hidden_dim": 14},
    )
    for batch, variant in itertools.product(batches, variants):
        stream(MegalodonLayer(MegalodonLayerConfig(**{**widths, "norm_groups": 19, **variant})), dtype, batch)
    for variant in variants:
        config = MegalodonLayerConfig(**{**widths, "norm_groups": 19, **variant})
        stream_of_joined(MegalodonLayer(config), MegalodonLayer(config))
    for bias, chunk in itertools.product(("simple", "rotary"), (-1, 5)):
        shape = {**widths, "z_dim": 6, "ema_dim": 3, "chunk_size": chunk, "normalize_before": True}
        stream_of_joined(*(MegaLayer(MegaLayerConfig(**shape, relative_bias=bias)) for _ in range(2)))


@torch.no_grad()
def run_packed() -> None:
    """Linear maps of odd sizes with packed matrices, and single steps with them."""
    widths: Dict[str, Any] = {"embed_dim": 19, "hidden_dim": 13, "ffn_dim": 9, "z_dim": 6, "ema_dim": 3}
    mega = MegaLayer(MegaLayerConfig(**widths, normalize_before=True))
    megalodon = MegalodonLayer(MegalodonLayerConfig(**widths, norm_groups=19, layer_scale=True, swiglu=True))
    for layer in (mega, megalodon):
        pack_linear_maps(layer, "int8")
        stream(layer, torch.float32, 3)
        stream_of_joined(layer, copy.deepcopy(layer))
    for rows, inputs, outputs in itertools.product((1, 3, 9), (1, 17, 37), (1, 3, 19)):
        for kind in KINDS:
            matrix = pack(torch.randn(outputs, inputs), kind)
            packed_linear(torch.randn(rows, inputs), matrix, torch.randn(outputs), path="native")
        plain = PackedMatrix(torch.randn(outputs, inputs), None)
        packed_linear(torch.randn(rows, inputs), plain, torch.randn(outputs), path="native")


def run_linear(dtype: torch.dtype) -> None:
    """Linear maps of odd sizes, in pairs of bfloat16 and one by one, with rows that lie apart."""
    for rows, inputs, outputs in itertools.product((1, 25, 257), (1, 18, 37), (2, 33)):
        x = torch.randn(rows, inputs + 4).to(dtype)[:, 2 : inputs + 2]
        backward(linear(x, draw(outputs, inputs, dtype=dtype), draw(outputs, dtype=dtype), path="native"))
        for factor in (None, draw(rows, inputs, dtype=dtype)):
            weight, bias = draw(outputs, inputs, dtype=dtype), draw(outputs, dtype=dtype)
            backward(silu_linear(x.requires_grad_(), factor, weight, bias, path="native"))
        weight = draw(64 + outputs, inputs, dtype=dtype)
        backward(*linear_parts(x, weight, draw(64 + outputs, dtype=dtype), (32, 32, outputs), path="native"))


def run_all(dtypes: Tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)) -> None:
    """Call every operator of the CPU."""
    torch.manual_seed(1)
    run_ema_steps()
    for dtype in dtypes:
        run_ema(dtype)
        run_attention(dtype)
        run_gate_and_statistics(dtype)
        run_rows(dtype)
        run_activations(dtype)
        run_norms(dtype)
        run_linear(dtype)
        run_decoding(dtype)
    run_packed()
