"""Attention on a GPU that never writes its weights to memory, forward or backward, by kernels in Triton.

The tiles of weights stay in a multiprocessor, as in FlashAttention (Dao et al., 2022); the backward pass computes them
again. Memory is linear in the length: the result, one or two numbers per query, and for the gradient of the bias
PROGRAMS vectors of the bias's length. The same weights are dropped as by the path "native", and results do not depend
on the order in which programs run.

torch's FlexAttention computes softmax with the relative bias, but not dropout of weights; it adds the gradient of the
bias up in no fixed order, element by element, and it needs torch.compile. One mechanism for all three functions is
less than two.

Counted, not measured: no GPU has run these kernels. See :func:`prefers_triton` for the rule.
"""

import importlib.util
import os
from functools import lru_cache
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.gpus import gpu
from fairseq_mega.ops.common.operations import count
from fairseq_mega.ops.common.transforms import transform_unsupported

from .native import SCHEMA, gradients_by
from .native_blocks import Arguments, backward_operations, forward_operations, visible_counts
from .reference import Options, attention_weights

INTERPRETER = "TRITON_INTERPRET"  # Triton's variable: kernels run on a CPU, slowly, for tests
WIDEST = 256  # features of queries and keys: a block of them stays in a multiprocessor
# Widest values of which a program holds all features. Logits are computed again for every further 256, so that wider
# values are left to "native".
PIECE = 256
# Programs that add up the gradient of the bias, whatever GPU: results do not depend on its size. About two for each
# multiprocessor; a prime, because the blocks of one program shall lie at all places of a causal sequence.
PROGRAMS = 251
SHARED = 160 << 10  # bytes of a block of a kernel, at most, also where the argument chooses the path
HASHES = 1 << 24  # see csrc/common/random.h


class Blocks(NamedTuple):
    """Sizes of a kernel's blocks, and its numbers of warps and of stages of the pipeline that loads them."""

    rows: int
    columns: int
    warps: int
    stages: int


def triton_unavailable(q: Tensor, *call: Any) -> Optional[str]:
    """Return the reason why this path cannot run, for instance a missing package; None if it can."""
    if q.size(-1) > WIDEST:
        return f"it is for queries of up to {WIDEST} features, found {q.size(-1)}"
    return _unusable(q.device.type, q.device.index) or transform_unsupported()


def _unusable(kind: str, index: Optional[int]) -> Optional[str]:
    interpreted = os.environ.get(INTERPRETER) == "1"
    if kind != ("cpu" if interpreted else "cuda"):
        return f"it is for tensors on a GPU, found {kind}; {INTERPRETER}=1 runs it on a CPU, for tests"
    if importlib.util.find_spec("triton") is None:
        return "it needs the package triton, which PyTorch for CUDA brings along: pip install triton"
    return None if interpreted else _no_kernels(torch.cuda.current_device() if index is None else index)


# The compiler treats the answer as a constant, see ops/common/gpus.py.
_unusable._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=None)
def _no_kernels(index: int) -> Optional[str]:
    """Return the reason why a GPU does not run the kernels, found by running them: Triton needs a C compiler."""
    try:
        if gpu(index).shared_memory < SHARED:
            return f"a block needs up to {SHARED >> 10} KiB of shared memory, which this GPU lacks"
        if not _agree(torch.device("cuda", index)):
            return "on this GPU Triton's kernels and PyTorch compute different results"
    except Exception as error:  # of Triton, of its compiler, or of the system
        return f"Triton does not run here: {type(error).__name__}: {error}"
    return None


def _agree(device: torch.device) -> bool:
    """Return whether a small call in bfloat16 and its gradients are close to the reference in float32."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, gate, grad = (torch.randn(2, 150, 32, generator=generator).to(device, torch.bfloat16) for _ in range(5))
    bias = torch.randn(299, generator=generator).to(device)
    a = Arguments(q, k, v, bias, None, None, "softmax", True, 0.0, 0.0, 0.2)
    out, statistics = _forward(gate, a)
    found = (out, *_backward(grad, out, statistics, gate, a))
    with torch.enable_grad(), torch.autocast(device.type, enabled=False):
        gate, q, k, v, bias = inputs = [tensor.float().requires_grad_() for tensor in (gate, q, k, v, bias)]
        weights = attention_weights(q, k, Options("softmax", bias, causal=True, scale=0.2))
        out = torch.matmul(weights, v) * torch.nn.functional.silu(gate)
        wanted = (out, *torch.autograd.grad(out, inputs, grad.float()))
    return all((got.float() - want).norm() <= 0.02 * want.norm() for got, want in zip(found, wanted))


def prefers_triton(q: Tensor, weights: int, values: int) -> bool:
    """Return whether this path is faster than "native" by count.

    For a weight, with queries of 64 and values of 256 features in 16 bits, "native" moves 12 bytes forward and 26
    backward, 11 ps of an H100's 3.35 TB/s, and has 2,048 operations, 3 ps at 600 TFLOP/s. This path moves next to
    nothing and has 2,688 operations, 7 ps at 400 TFLOP/s, beside some 100 instructions, 3 ps. It computes logits again
    for every further 256 features of values: of 512 both are equal, of 1,024 "native" is faster. Queries of more than
    128 features leave too few registers, and products in float32 do without tensor cores.
    """
    if not q.is_cuda or q.size(-1) > 128 or values > PIECE or q.size(-2) < 16:
        return False
    return _type_of(q) != torch.float32


def _type_of(q: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype(q.device.type) if torch.is_autocast_enabled(q.device.type) else q.dtype


def multiplies_by_gate(q: Tensor, values: int) -> bool:
    """Return whether the kernels multiply their result by a gate's SiLU.

    They keep the product alone, and divide it by the SiLU again: float16 has no numbers that are small enough.
    """
    return values <= PIECE and _type_of(q) != torch.float16


def blocks_for(kernel: str, dtype: torch.dtype) -> Blocks:
    """Return the sizes of blocks of a kernel of :mod:`.triton_kernels`.

    Compiled for compute capability 8.0 or 9.0, with queries of up to 128 features, no register goes to memory.
    """
    return Blocks(64 if kernel == "forward" and dtype != torch.float32 else 32, 32, 8, 2)


def _width(features: int) -> int:
    """Return the width of a block that holds so many features; products need 16."""
    return max(16, 1 << (features - 1).bit_length())


class _Call:
    """The arguments that all kernels share, and their launches."""

    def __init__(self, a: Arguments) -> None:
        (self.groups, self.queries, z), (_, self.keys, width) = a.q.shape, a.v.shape
        self.dtype = a.q.dtype
        self.piece = min(_width(width), PIECE)
        self.pieces = -(-width // self.piece)
        padding = None if a.padding is None else a.padding.contiguous()
        drop_key = int(a.drop_key * HASHES + 0.5)
        self.arguments: Dict[str, Any] = {
            "bias": None if a.bias is None else a.bias.contiguous(),
            "padding": None if padding is None else padding.view(torch.uint8),
            "counts": None if padding is None else visible_counts(padding, self.queries, a.causal),
            "seed": a.seed,
            "queries": self.queries,
            "keys": self.keys,
            "z": z,
            "width": width,
            "scale": a.scale,
            "drop_key": drop_key,
            "drop": drop_key + int(a.dropout * (HASHES - drop_key) + 0.5),
            "kept": 0.0 if a.dropout == 1.0 else 1.0 / (1.0 - a.dropout),
            "FUNCTION": a.function,
            "CAUSAL": a.causal,
            "OWN_SCALE": a.scale == 0.0,
            "Z": _width(z),
            "WIDTH": self.piece,
            "WHOLE": self.pieces == 1,
        }

    def blocks(self, kernel: str) -> Blocks:
        return blocks_for(kernel, self.dtype)

    def launch(self, kernel: str, programs: int, *own: Any) -> None:
        """Run a kernel, whose own arguments come first."""
        from . import triton_kernels  # Triton is imported where it is used

        rows, columns, warps, stages = self.blocks(kernel)
        options = {"ROWS": rows, "COLUMNS": columns, "num_warps": warps, "num_stages": stages}
        with torch.cuda.device_of(own[0]):
            getattr(triton_kernels, kernel)[(programs,)](*own, **self.arguments, **options)


def _rows_of(gate: Optional[Tensor]) -> Tuple[Optional[Tensor], int]:
    """Return a gate (G, n, width), a copy where its rows are not equally far apart, and their distance."""
    if gate is None:
        return None, 0
    apart = gate.size(1) * gate.stride(1)
    if gate.stride(2) != 1 or (gate.size(0) > 1 and gate.stride(0) != apart):
        gate = gate.contiguous()
    return gate, gate.stride(1)


def _forward(gate: Optional[Tensor], a: Arguments) -> Tuple[Tensor, Tensor]:
    a = a._replace(q=a.q.contiguous(), k=a.k.contiguous(), v=a.v.contiguous())
    call, (gate, stride) = _Call(a), _rows_of(gate)
    out = torch.empty(call.groups, call.queries, a.v.size(2), dtype=a.q.dtype, device=a.q.device)
    rows = call.queries if a.function == "softmax" else 0
    statistics = torch.empty(call.groups, rows, dtype=torch.float32, device=a.q.device)
    programs = call.groups * call.pieces * -(-call.queries // call.blocks("forward").rows)
    call.launch("forward", programs, a.q, a.k, a.v, gate, out, statistics, stride)
    return out, statistics


def _backward(
    grad_out: Tensor, out: Tensor, statistics: Tensor, gate: Optional[Tensor], a: Arguments
) -> Tuple[Tensor, ...]:
    q, k, v, grad_out = (tensor.contiguous() for tensor in (a.q, a.k, a.v, grad_out))
    call, (gate, stride) = _Call(a), _rows_of(gate)
    grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
    grad_gate, attended = (None, None) if gate is None else (torch.empty_like(grad_out), torch.empty_like(grad_out))
    means = torch.empty_like(statistics)
    programs, diagonals = call.groups * -(-call.queries // call.blocks("queries_gradient").rows), None
    grad_bias = q.new_empty(0 if a.bias is None else a.bias.size(0), dtype=torch.float32)
    if a.bias is not None:
        programs = min(programs, PROGRAMS)
        diagonals = q.new_empty(programs, a.bias.size(0), dtype=torch.float32)
    own: Tuple[Any, ...] = (q, k, v, gate, out, statistics, grad_out, means, grad_q, grad_gate, attended, diagonals)
    call.launch("queries_gradient", programs, *own, stride, call.groups)
    own = (q, k, v, statistics, grad_out if attended is None else attended, means, grad_k, grad_v, diagonals, grad_bias)
    blocks = -(-call.keys // call.blocks("keys_gradient").columns)
    call.launch("keys_gradient", call.groups * call.pieces * blocks, *own, programs)
    return q.new_empty(0) if grad_gate is None else grad_gate, grad_q, grad_k, grad_v, grad_bias


def _forward_of(gate: Optional[Tensor], *arguments: Any) -> Tuple[Tensor, Tensor]:
    return _forward(gate, Arguments(*arguments))


def _backward_of(
    grad_out: Tensor, out: Tensor, statistics: Tensor, gate: Optional[Tensor], *arguments: Any
) -> Tuple[Tensor, ...]:
    return _backward(grad_out, out, statistics, gate, Arguments(*arguments))


def _fake(gate: Optional[Tensor], *arguments: Any) -> Tuple[Tensor, Tensor]:
    a = Arguments(*arguments)
    groups, queries, _ = a.q.shape
    rows = queries if a.function == "softmax" else 0
    return a.q.new_empty(groups, queries, a.v.size(2)), a.q.new_empty(groups, rows, dtype=torch.float32)


def _fake_backward(
    grad_out: Tensor, out: Tensor, statistics: Tensor, gate: Optional[Tensor], *arguments: Any
) -> Tuple[Tensor, ...]:
    a = Arguments(*arguments)
    q, k, v = (tensor.new_empty(tensor.shape) for tensor in a[:3])
    return (
        q.new_empty(0 if gate is None else gate.shape),
        q,
        k,
        v,
        q.new_empty(0 if a.bias is None else a.bias.size(0), dtype=torch.float32),
    )


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.options = inputs[7:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:7])


_NAME = f"{native.NAMESPACE}::triton_attention"
_SCHEMA = f"Tensor? gate, {SCHEMA}"
_attention = torch.library.custom_op(_NAME, _forward_of, mutates_args=(), schema=f"({_SCHEMA}) -> (Tensor, Tensor)")
_attention.register_fake(_fake)
_attention_backward = torch.library.custom_op(
    f"{_NAME}_backward",
    _backward_of,
    mutates_args=(),
    schema=f"(Tensor grad_out, Tensor out, Tensor statistics, {_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_attention_backward.register_fake(_fake_backward)
native.register_gradients(
    _NAME, gradients_by(_attention_backward), _save, in_python=(_forward_of, gradients_by(_backward_of))
)
count(
    triton_attention=lambda gate, *shapes: forward_operations(shapes, Arguments(*shapes).causal),
    triton_attention_backward=lambda grad, out, statistics, gate, *shapes: backward_operations(
        shapes, Arguments(*shapes).causal
    ),
)
_operators = native.Operators(native.NAMESPACE)


def triton_attention(a: Arguments, gate: Optional[Tensor] = None) -> Tensor:
    """Attention (G, n, v) by kernels in Triton, with a gate (G, n, v) times its SiLU."""
    dtype = torch.promote_types(torch.promote_types(a.q.dtype, a.k.dtype), a.v.dtype)
    bias = None if a.bias is None else a.bias.to(torch.float32)
    given = a._replace(q=a.q.to(dtype), k=a.k.to(dtype), v=a.v.to(dtype), bias=bias)
    gate = None if gate is None else gate.to(dtype)
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return _attention(gate, *given)[0].to(a.v.dtype)  # as one operator, which a mode may count
    return _operators.triton_attention(gate, *given)[0].to(a.v.dtype)
