"""GPUs that the compiled kernels run on, decided once per GPU; the properties are stand-ins, no GPU is needed."""

import logging
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_mega.ops import fft_conv
from fairseq_mega.ops.common import gpus as gpu_properties
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import Operator, Path, device_unsupported, kernels_unavailable

KIB = 1024
T4 = SimpleNamespace(name="T4", major=7, minor=5, shared_memory_per_block_optin=64 * KIB)
V100 = SimpleNamespace(name="V100", major=7, minor=0, shared_memory_per_block_optin=96 * KIB)
A100 = SimpleNamespace(name="A100", major=8, minor=0, shared_memory_per_block_optin=163 * KIB)
RTX_4090 = SimpleNamespace(name="RTX 4090", major=8, minor=9, shared_memory_per_block_optin=99 * KIB)
H200 = SimpleNamespace(name="H200", major=9, minor=0, shared_memory_per_block_optin=227 * KIB)
RTX_5090 = SimpleNamespace(name="RTX 5090", major=12, minor=0, shared_memory_per_block_optin=99 * KIB)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., List[int]]:
    """Pretends that there are these GPUs and an extension for them; returns which have been asked."""
    asked: List[int] = []

    def pretend(*found: SimpleNamespace) -> List[int]:
        def properties(index: int) -> SimpleNamespace:
            asked.append(index)
            return found[index]

        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # fake tensors would look for theirs
        state: Dict[str, Any] = {"PROBLEM": None, "HAS_CUDA": True, "OLDEST_CAPABILITY": 80}
        for name, value in state.items():
            monkeypatch.setattr(native, name, value)
        monkeypatch.setattr(gpu_properties, "_GPUS", {})
        monkeypatch.setattr(gpu_properties, "_REASONS", {})
        return asked

    return pretend


def on(index: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor without memory that says it is on that GPU."""
    with FakeTensorMode():
        return torch.empty(shape, device=f"cuda:{index}", dtype=dtype)


KERNELS = Operator("gate", Path("reference"), Path("native", kernels_unavailable, native.DTYPES))


def usable(x: torch.Tensor) -> bool:
    return KERNELS.choose(None, x) == "native"


@pytest.mark.parametrize("found", [A100, RTX_4090, H200, RTX_5090], ids=lambda found: found.name)
def test_gpus_that_the_kernels_run_on(gpus, caplog, found):
    gpus(found)
    with caplog.at_level(logging.WARNING):
        assert usable(on(0, 2))
        assert KERNELS.choose("native", on(0, 2)) == "native"
    assert not usable(on(0, 2, dtype=torch.float64))
    assert caplog.records == []


@pytest.mark.parametrize(
    "found, reason",
    [
        (T4, r"cuda:1, T4, compute capability 7.5: they were built for 8.0 and later"),
        (V100, r"V100, .*: they were built for 8.0 and later \(TORCH_CUDA_ARCH_LIST=7.0 builds for it\)"),
    ],
)
def test_other_gpus_fall_back_with_one_line(gpus, caplog, found, reason):
    asked = gpus(H200, found)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not usable(on(1, 2))
            assert usable(on(0, 2))
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert record.getMessage().startswith("without the compiled kernels, more slowly: they do not run on cuda:1, ")
    assert asked == [1, 0]
    with pytest.raises(RuntimeError, match=f"gate path 'native' cannot run: it needs the compiled kernels, .*{reason}"):
        KERNELS.choose("native", on(1, 2))


@pytest.mark.parametrize("found, longest", [(RTX_4090, 8192), (A100, 16384)], ids=lambda found: str(found))
def test_long_convolutions_ask_for_more_shared_memory(gpus, monkeypatch, found, longest):
    gpus(found)
    monkeypatch.setattr(native, "has_kernel", lambda *_: True)
    need = {32768: 139392}  # by the columns of the ring
    operators = SimpleNamespace(ring_shared_memory=lambda columns: need.get(columns, 70144))
    monkeypatch.setattr(native, "operators", operators)
    device = on(0, 1).device
    assert fft_conv.ring_unavailable(device, longest) is None
    assert fft_conv.ring_unavailable(device, longest + 1) is not None
    if found is RTX_4090:
        with pytest.raises(RuntimeError, match="8193 steps need 136 KiB of shared memory for a block, RTX 4090 has 99"):
            fft_conv.ring_convolution(on(0, 1, 8193, 1), on(0, 1, 32768))


def test_the_kernels_need_what_the_stand_ins_grant(kernel_device, request):
    if request.node.callspec.params["kernel_device"] == "cpu":
        pytest.skip("these are the kernels for a CPU")
    assert [native.operators.ring_shared_memory(2 * size) for size in (4096, 8192, 16384)] == [69760, 69760, 139392]


@pytest.mark.parametrize("found", [T4, H200], ids=lambda found: found.name)
def test_the_question_does_not_break_a_compiled_graph(gpus, found):
    torch._dynamo.reset()
    asked = gpus(found)
    device = torch.device("cuda", 0)

    @torch.compile(fullgraph=True, backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if device_unsupported(device) is None else x - 1

    assert torch.equal(function(torch.zeros(2)), torch.full((2,), 1.0 if found is H200 else -1.0))
    assert asked == [0]


def test_devices_without_compiled_kernels(monkeypatch):
    monkeypatch.setattr(native, "PROBLEM", "_C.so is not beside the package")
    devices = [torch.device(kind) for kind in ("cpu", "cuda", "meta")]
    assert all(device_unsupported(device) is not None for device in devices)
    monkeypatch.setattr(native, "PROBLEM", None)
    monkeypatch.setattr(native, "HAS_CUDA", False)
    assert [device_unsupported(device) is None for device in devices] == [True, False, False]
