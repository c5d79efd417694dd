"""Kernels that layers launch on a GPU, counted without one."""

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fairseq_mega.lab.benchmarks import command, launches
from fairseq_mega.modules.trunk import Trunk
from fairseq_mega.ops.common import native

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")

# Launches forward, backward and of a step of decoding: more than these are slower on a GPU, fewer are an improvement.
# In float32, and under autocast, whose copies are launches too.
COUNTS = {"mega": (16, 33, 17), "mega-chunk": (16, 31, 17), "megalodon-chunk": (19, 31, 19)}
IN_BFLOAT16 = {"mega": (13, 24, 21), "mega-chunk": (13, 22, 21), "megalodon-chunk": (15, 25, 21)}
KERNELS = ("queries_gradient", "keys_gradient")


@pytest.mark.parametrize(("dtype", "counts"), [("float32", COUNTS), ("autocast", IN_BFLOAT16)])
@pytest.mark.parametrize("name", launches.LAYERS)
def test_counts(name, dtype, counts):
    counted = [*launches.count_training(name, 2, 256, dtype), launches.count_step(name, 1, 300, dtype)]
    assert tuple(len(found.launched) for found in counted) == counts[name]
    for found, kernels in zip(counted, (("forward",), KERNELS, ())):
        of_triton = [launch.operator for launch in found.launched if launch.operator.startswith("triton.")]
        assert of_triton == [f"triton.{kernel}" for kernel in kernels if dtype == "autocast"]


class Stack(Trunk, torch.nn.Module):
    """A trunk of several layers of a kind."""

    def __init__(self, name, layers):
        super().__init__()
        self.add_layers([launches.LAYERS[name]() for _ in range(layers)], None)


@pytest.mark.parametrize("name", ["mega-chunk", "megalodon-chunk"])
def test_one_kernel_serves_all_layers_of_a_trunk_and_one_the_gradients_of_a_layer(name):
    stack: Any = launches.on_device(Stack(name, 3)).train()
    forward, backward = launches.Launches(), launches.Launches()
    x = launches.OnGpu(torch.empty(2, 256, 128, device="meta"))
    with launches.on_gpu(), launches.autocast("autocast"):
        with forward:
            y = stack.run_layers(x).hidden
        with backward:
            y.backward(torch.empty_like(y))
    assert [forward.by_operator()[name] for name in ("aten.randint", "aten._foreach_copy_")] == [1, 1]
    maps = [part for part in stack.modules() if isinstance(part, torch.nn.Linear)]
    weights, biases = [part.weight for part in maps], [part.bias for part in maps if part.bias is not None]
    for found, calls, copied in ((forward, 1, weights + biases), (backward, 3, weights)):  # kernels add up biases
        moved = [launch.moved for launch in found.launched if launch.operator == "aten._foreach_copy_"]
        assert len(moved) == calls and sum(moved) == 6 * sum(parameter.numel() for parameter in copied)
        alone = {launch.moved for launch in found.launched if launch.operator == "aten._to_copy"}
        assert not alone & {6 * parameter.numel() for parameter in copied}


def test_autocast_converts_what_torch_converts_on_a_gpu():
    """torch registers a kernel for each of its functions; functions of several tensors of one type need none here."""
    called = set()

    class Record(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if torch.is_autocast_enabled("cuda"):
                called.add(func.__name__)
            return func(*args, **(kwargs or {}))

    with Record():
        for name in launches.LAYERS:
            launches.count_training(name, 2, 256)
            launches.count_step(name, 1, 300)
    converted = {name for name in called if _is_of_autocast(name)}
    assert "linear" in converted
    apart = {"cat", "stack", "addcmul", "native_layer_norm"}  # the last is an RMS norm, which autocast leaves as it is
    assert converted <= {*launches.PRODUCTS, *launches.IN_FLOAT32, *apart}


def _is_of_autocast(function):
    packet = getattr(torch.ops.aten, function, None)
    names = (
        [] if packet is None else [f"aten::{function}.{name}".removesuffix(".default") for name in packet.overloads()]
    )
    known = filter(torch._C._dispatch_has_kernel, names)
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA") for name in known)


def test_products_and_bytes_of_attention_in_triton():
    """Full attention of 4,096 queries is bound by its products, and no weight goes through memory."""
    forward = launches.count_training("mega", 16, 4096)[0].launched
    (attention,) = (launch for launch in forward if launch.operator == "triton.forward")
    rows, weights = 16 * 4096, 16 * 4096**2 / 2
    assert attention.products == 2 * (64 + 256) * weights / launches.RATE_IN_TRITON > launches.LAUNCH
    assert all(
        (launch.operator in ("aten.addmm", "aten.mm", "triton.forward")) == (launch.products > 0) for launch in forward
    )
    wide = rows * 2 * (64 + 64 + 256 + 256 + 256)  # queries, keys, values, gate, result
    assert wide + 4 * rows <= attention.moved < 1.01 * wide + 4 * rows


@pytest.mark.parametrize(("name", "most"), [("mega-chunk", 18), ("megalodon-chunk", 20)])
def test_a_step_in_a_graph(name, most):
    assert len(launches.count_graph_step(name, 1).launched) <= most


def test_a_longer_batch_launches_as_many_kernels_and_moves_more():
    short, long = (launches.count_training("mega-chunk", 2, length)[0] for length in (1024, 2048))
    assert short.by_operator() == long.by_operator()
    assert sum(launch.moved for launch in long.launched) > 1.9 * sum(launch.moved for launch in short.launched)


def test_views_launch_nothing_and_bytes_are_those_of_inputs_and_results():
    x = launches.OnGpu(torch.empty(4, 8, device="meta"))
    with launches.on_gpu(), launches.Launches() as found:
        y = torch.zeros(8, 4, device=x.device) + x.transpose(0, 1)[:]
    assert y.device == launches.GPU and y.is_cuda
    assert found.launched == [launches.Launch("aten.zeros", 128), launches.Launch("aten.add", 3 * 128)]


def test_the_command_prints_a_row_per_pass(capsys):
    command.main(["launches", "--smoke", "--models", "mega", "--operators"])
    out = capsys.readouterr().out
    assert f"| mega | forward | {IN_BFLOAT16['mega'][0]} |" in out and "4 aten.mm" in out and out.count("| mega |") == 3
