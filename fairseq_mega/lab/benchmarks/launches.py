"""Kernels that a layer launches on a GPU, counted without a GPU."""

import argparse
import collections
import contextlib
import functools
from typing import Any, Callable, Counter, Dict, Iterator, List, NamedTuple, Tuple
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, chosen_of
from fairseq_mega.modules.attention_cache import FixedCache
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.state import LayerCache
from fairseq_mega.ops import rotary
from fairseq_mega.ops.attention import native as attention
from fairseq_mega.ops.attention import triton_flash
from fairseq_mega.ops.common import dispatch, native
from fairseq_mega.ops.common.operations import attention_operations
from fairseq_mega.ops.decoding import place_of, weights
from fairseq_mega.ops.dropout import SEEDS
from fairseq_mega.ops.linear import casting_once

LAUNCH = 4e-6  # seconds of a launch by a busy host
BANDWIDTH = 3.35e12  # bytes per second of an H100's memory
# Operations per second of its products: of numbers of 2 and 4 bytes, and of those within Triton's attention.
RATES, RATE_IN_TRITON = {2: 600e12, 4: 50e12}, 400e12
GPU = torch.device("cuda", 0)
SIZES = {"hidden_dim": 256, "z_dim": 64, "ema_dim": 16, "ffn_dim": 256, "dropout": 0.1}
DESCRIPTION = f"""\
Nothing is computed and no GPU is needed: the layer runs on tensors without data that claim to be on a GPU, through the
paths that an A100 or H100 chooses, after a layer of its kind. By default it runs as --precision bf16 trains and scores:
weights in float32, products in bfloat16 under autocast, whose copies of activations and gradients are counted.
In 16 bits the attention is Triton's, whether Triton is installed or not. Bytes are those of an operator's inputs and
results. The time is an estimate for an H100, not a measurement: for each kernel {1e6 * LAUNCH:.0f} microseconds, its
bytes at {BANDWIDTH / 1e12} TB/s or its matrix products at {RATES[2] / 1e12:.0f} TFLOP/s in 16 bits
({RATE_IN_TRITON / 1e12:.0f} in Triton's kernels) and {RATES[4] / 1e12:.0f} in float32, whichever is longest.
The seeds of dropout and the copies of weights, which a trunk makes for all its layers at once, are not counted.
The EMA is counted as for batches that fill a GPU; fewer sequences are cut into segments, and each way needs two
launches more.
"""
# Launches of an operator, where it is not one; of ours by csrc.
LAUNCHES = {
    **dict.fromkeys(("aten.empty_like", "aten.empty", "aten.new_empty", "aten.promote_types", "aten.alias"), 0),
    **dict.fromkeys(("aten.lift_fresh", "aten._local_scalar_dense", "aten.empty_strided", "aten._unsafe_view"), 0),
    **dict.fromkeys(("aten.constant_pad_nd", "aten.select_backward", "aten.slice_backward"), 2),  # fill, then copy
    "aten.native_layer_norm_backward": 2,
}
# Operators of ours in Python, whose own operators are counted.
IN_PYTHON: Dict[str, Callable[..., Any]] = {
    "fairseq_mega.attention": attention.forward_of,
    "fairseq_mega.attention_backward": attention.backward_of,
    "fairseq_mega.triton_attention": triton_flash._forward_of,
    "fairseq_mega.triton_attention_backward": triton_flash._backward_of,
}
# Products of Triton's kernels: those with queries and keys, and those with values.
TRITON = {"forward": (1, 1), "queries_gradient": (2, 1), "keys_gradient": (2, 2)}
# Functions that layers call and autocast computes in its type, and those that it computes in float32.
PRODUCTS = ("addmm", "baddbmm", "bmm", "linear", "matmul", "mm")
IN_FLOAT32 = ("cumsum", "exp", "layer_norm", "log", "pow", "rsqrt", "softmax", "softplus", "sum")


class OnGpu(Tensor):
    """A tensor without data that claims to be on a GPU."""

    data_free: Tensor  # on torch's device "meta"

    @staticmethod
    def __new__(cls, data_free: Tensor) -> "OnGpu":
        data_free = data_free.resolve_conj()
        made = Tensor._make_wrapper_subclass(
            cls,
            data_free.shape,
            strides=data_free.stride(),
            storage_offset=data_free.storage_offset(),
            dtype=data_free.dtype,
            device=torch.device("meta"),
        )
        made.data_free = data_free
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given, options = tree_map_only(OnGpu, lambda tensor: tensor.data_free, (args, kwargs or {}))
        if "device" in options:
            options["device"] = torch.device("meta")
        results = func(*given, **options)
        if func._schema.is_mutable and results is not None:  # in place
            return kwargs["out"] if "out" in options else args[0]
        return tree_map_only(Tensor, cls, results)


class _Functions(TorchFunctionMode):
    """Make new tensors of a GPU without data, and drop as a GPU does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        # torch chooses these operators by the device that it finds.
        if func is torch.nn.functional.dropout:
            return torch.native_dropout(args[0], options.get("p", args[1] if len(args) > 1 else 0.5), True)[0]
        if func is torch.nn.functional.rms_norm:  # fused on a GPU: as many kernels as a layer norm
            return torch.native_layer_norm(args[0], args[1], options.get("weight"), None, options["eps"])[0]
        if options.get("device") is None:
            return func(*args, **options)
        made = func(*args, **{**options, "device": torch.device("meta")})
        return made if isinstance(made, OnGpu) else OnGpu(made)


class Autocast(TorchFunctionMode):
    """Convert as autocast to bfloat16 does: torch's own finds no GPU.

    A weight is copied once, as within one context of autocast.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: Dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options, dtype = kwargs or {}, torch.bfloat16 if func.__name__ in PRODUCTS else None
        if func.__name__ in IN_FLOAT32 and options.get("dtype") is None:
            dtype = torch.float32
        if dtype is not None and torch.is_autocast_enabled("cuda"):
            args, options = tree_map_only(Tensor, lambda tensor: self.converted(tensor, dtype), (args, options))
        return func(*args, **options)

    def converted(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(dtype)
        if id(tensor) not in self.copies:
            self.copies[id(tensor)] = tensor.to(dtype)
        return self.copies[id(tensor)]


@contextlib.contextmanager
def autocast(dtype: str) -> Iterator[None]:
    """Convert tensors if ``dtype`` is "autocast"."""
    if dtype != "autocast":
        yield
        return
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with Autocast():
            yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)


class Launch(NamedTuple):
    """A kernel: its operator, the bytes that it reads and writes, and the seconds that its matrix products need."""

    operator: str
    moved: int
    products: float = 0.0


class Launches(TorchDispatchMode):
    """Record the kernels that operators launch."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: List[Launch] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if name in IN_PYTHON:
            with self, _Functions(), torch.no_grad(), mock.patch.object(triton_flash._Call, "launch", self._in_triton):
                return IN_PYTHON[name](*args)
        results = OnGpu.__torch_dispatch__(func, types, args, kwargs)
        if not func.is_view:
            moved = sum(tensor.nbytes for tensor in tree_leaves((args, kwargs, results)) if isinstance(tensor, Tensor))
            launches = LAUNCHES.get(name, 1)
            if name == "fairseq_mega.attention_weights_backward_" and args[4] is not None:
                launches += 2  # sums of the bias along diagonals, their total
            self.launched += [
                Launch(name, moved // max(launches, 1), _products(func, args, kwargs, results))
            ] * launches
        return results

    @property
    def _in_triton(self) -> Callable[..., None]:
        """The method of a call of Triton's attention that launches a kernel."""

        def launch(call: triton_flash._Call, kernel: str, programs: int, *own: Any) -> None:
            given = *own, *call.arguments.values()
            moved = sum(tensor.nbytes for tensor in given if isinstance(tensor, Tensor))
            a, (keys, values) = call.arguments, TRITON[kernel]
            width = keys * a["z"] + values * a["width"]
            operations = call.groups * attention_operations(width, call.queries, call.keys, a["CAUSAL"])
            self.launched.append(Launch(f"triton.{kernel}", moved, operations / RATE_IN_TRITON))

        return launch

    @property
    def seconds(self) -> float:
        """The estimate of the time."""
        return sum(max(LAUNCH, launch.moved / BANDWIDTH, launch.products) for launch in self.launched)

    def by_operator(self) -> Counter[str]:
        """Count the launches of each operator."""
        return collections.Counter(launch.operator for launch in self.launched)


def _products(func: Any, args: Any, kwargs: Any, results: Any) -> float:
    """Return the seconds of a product of matrices by torch at RATES; 0 for other operators."""
    formula = flop_registry.get(func.overloadpacket)
    if formula is None or func.namespace != "aten":
        return 0.0
    return float(formula(*args, **(kwargs or {}), out_val=results)) / RATES[args[0].element_size()]


@contextlib.contextmanager
def on_gpu() -> Iterator[None]:
    """Choose the paths of a GPU that runs the compiled kernels."""
    tables, signed = (
        functools.lru_cache(table.__wrapped__)  # type: ignore[attr-defined]
        for table in (rotary.rotations, rotary._signed_turns)
    )
    with contextlib.ExitStack() as stack:
        for where, name, value in (
            (native, "HAS_CUDA", True),
            (native, "has_kernel", lambda *_: True),
            (dispatch, "gpu_unsupported", lambda _: None),
            (triton_flash, "_unusable", lambda *_: None),
            (rotary, "rotations", tables),
            (rotary, "_signed_turns", signed),
            (weights, "rotations", tables),
        ):
            stack.enter_context(mock.patch.object(where, name, value))
        stack.enter_context(_Functions())
        yield


def mega(chunk_size: int = -1) -> MegaLayer:
    """Return a causal MEGA layer of width 128."""
    return MegaLayer(MegaLayerConfig(embed_dim=128, chunk_size=chunk_size, max_positions=8192, **SIZES))  # type: ignore[arg-type]


def megalodon() -> MegalodonLayer:
    """Return a MEGALODON layer of width 128."""
    return MegalodonLayer(MegalodonLayerConfig(embed_dim=128, chunk_size=128, **SIZES))  # type: ignore[arg-type]


LAYERS: Dict[str, Callable[[], torch.nn.Module]] = {
    "mega": mega,
    "mega-chunk": lambda: mega(128),
    "megalodon-chunk": megalodon,
}


def on_device(layer: torch.nn.Module, dtype: str = "float32") -> torch.nn.Module:
    """Replace the parameters and buffers of a layer by tensors that claim to be on a GPU."""
    if dtype == "bfloat16":
        layer.bfloat16()
    for module in layer.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(OnGpu(parameter.detach().to("meta")))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = OnGpu(buffer.to("meta"))
    return layer


def _tokens(batch: int, length: int, dtype: str) -> Tensor:
    of = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    return OnGpu(torch.empty(batch, length, 128, device="meta", dtype=of))


def count_training(name: str, batch: int, length: int, dtype: str = "autocast") -> Tuple[Launches, Launches]:
    """Return the launches of a layer's forward and backward pass over (batch, length, 128)."""
    layer, forward, backward = on_device(LAYERS[name](), dtype).train(), Launches(), Launches()
    x = _tokens(batch, length, dtype).requires_grad_()
    context = LayerContext(seeds=OnGpu(torch.empty(SEEDS, device="meta", dtype=torch.long)))  # of the trunk
    with on_gpu():
        with autocast(dtype), Launches():
            made = layer(x, context).products  # also makes the tables of angles
        context = context._replace(products=None if made is None else made.detach().requires_grad_())

        @casting_once
        def run(layer: Any, x: Tensor) -> Tensor:
            with forward:
                return layer(x, context).hidden

        with autocast(dtype):
            y = run(layer, x)
        gradient = torch.empty_like(y)
        with backward:
            y.backward(gradient)
    return forward, backward


def count_step(name: str, batch: int, past: int, dtype: str = "autocast") -> Launches:
    """Return the launches of a step of decoding after ``past`` tokens."""
    layer, context, launches = on_device(LAYERS[name](), dtype).eval(), LayerContext(return_state=True), Launches()
    token = _tokens(batch, 1, dtype)
    with on_gpu(), autocast(dtype), torch.no_grad():
        with Launches():
            state = layer(_tokens(batch, past, dtype), context)
            state = layer(token, context, state.memory, state.cache)  # prepares the weights of steps
        with launches:
            layer(token, context, state.memory, state.cache)
    return launches


def count_graph_step(name: str, batch: int, dtype: str = "float32") -> Launches:
    """Return the kernels of a step within a CUDA graph, which is one launch for all layers together."""
    layer, launches, token = on_device(LAYERS[name](), dtype).eval(), Launches(), _tokens(batch, 1, dtype)
    attention: Any = layer.attention
    with on_gpu(), torch.no_grad():
        state = layer(token, LayerContext(return_state=True))
        cache = LayerCache(FixedCache.like(state.cache.attention, attention.heads, attention.chunk_size))
        place = place_of(torch.zeros(1, dtype=torch.long, device=GPU), attention.chunk_size)
        for _ in range(2):  # the first step prepares the weights
            launches.launched.clear()
            with launches:
                layer(token, LayerContext(return_state=True, place=place), state.memory, cache)
    return launches


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``launches``."""
    add = parser.add_argument
    add("--models", default=",".join(LAYERS), help="layers of width 128, comma separated (default: all)")
    add("--batch", type=int, default=16, help="sequences of a training batch (default: %(default)s)")
    add("--length", type=int, default=4096, help="their length L (default: %(default)s)")
    add("--operators", action="store_true", help="also print the launches of each operator")
    add_common_options(parser, dtypes=("float32", "bfloat16", "autocast"))
    parser.set_defaults(dtype="autocast")


def run(arguments: argparse.Namespace) -> None:
    """Print a row per layer and pass, and write the result file."""
    scores: Dict[str, float] = {}
    print("| layer | pass | launches | MiB moved | ms, estimated |\n|---|---|---|---|---|")
    for name in chosen_of(arguments.models, "--models", tuple(LAYERS)):
        forward, backward = count_training(name, arguments.batch, arguments.length, arguments.dtype)
        parts = {"forward": forward, "backward": backward, "step": count_step(name, 1, 300, arguments.dtype)}
        if name.endswith("-chunk") and arguments.dtype != "autocast":  # which no graph has
            parts["step in a graph"] = count_graph_step(name, 1, arguments.dtype)
        for part, found in parts.items():
            moved = sum(launch.moved for launch in found.launched)
            print(f"| {name} | {part} | {len(found.launched)} | {moved / 2**20:,.1f} | {1e3 * found.seconds:.3f} |")
            if arguments.operators:
                print(
                    "  " + ", ".join(f"{number} {operator}" for operator, number in found.by_operator().most_common())
                )
            scores[f"{name} {part} launches"] = len(found.launched)
            scores[f"{name} {part} bytes"] = moved
            scores[f"{name} {part} seconds"] = found.seconds
    measuring.write_measurements(arguments, scores, examples=len(scores))


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, smoke=("--batch=2", "--length=256"))
