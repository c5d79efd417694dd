"""The compiled kernels under test: those for the CPU at each level of instructions, and the CUDA ones.

The CUDA kernels run in the simulator or on a GPU.
"""

import functools
import importlib.util
import os
from typing import List

import pytest
import torch

from fairseq_mega.ops.attention import triton_flash
from fairseq_mega.ops.common import native
from tests.simulator import build

KINDS = ("cpu", "simulator", "cuda")
CPU = tuple(f"cpu-{level}" for level in native.cpu_levels()) or ("cpu",)  # of the machine, lowest first
KERNELS = (*CPU, *KINDS[1:])
_LOADED: List[str] = []


def need_triton() -> None:
    """Skip the test where the package is missing, as in PyTorch for CPUs alone."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton: pip install triton")


def select_triton(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Return the device of the kernels in Triton, the CPU for its interpreter, or skip."""
    need_triton()
    if request.config.getoption("--device") == "cpu":  # whose time is that of the number of blocks
        monkeypatch.setattr(triton_flash, "blocks_for", lambda *call: triton_flash.Blocks(64, 32, 4, 2))
    return torch.device(request.config.getoption("--device"))


def select(kernels: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Make the ops use these kernels for one test; return the device that tensors have to be on, or skip.

    Args:
        kernels: of KERNELS, or of KINDS, whose "cpu" is the present level.
    """
    device = request.config.getoption("--device")
    if os.environ.get(native.VARIABLE) == "off":
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    if kernels == "simulator":
        if build.cuda_home() is None:
            pytest.skip("the simulator needs the CUDA toolkit's headers: set CUDA_HOME")
        if not _LOADED:
            torch.ops.load_library(str(build.build()))
            native.register_all(build.NAMESPACE)
            _LOADED.append(build.NAMESPACE)
        monkeypatch.setattr(native, "NAMESPACE", build.NAMESPACE)
        monkeypatch.setattr(native, "operators", native.Operators(build.NAMESPACE))
        monkeypatch.setattr(native, "PROBLEM", None)
        return torch.device("cpu")
    if native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    if kernels == "cuda":
        if device != "cuda":
            pytest.skip("needs a GPU: run pytest with --device cuda on a machine with one")
        if not native.HAS_CUDA:
            pytest.skip("the extension was built without CUDA: FORCE_CUDA=1")
    kind, _, level = kernels.partition("-")
    if level:
        request.addfinalizer(functools.partial(native.operators.set_cpu_level, native.cpu_level()))
        native.operators.set_cpu_level(level)
    return torch.device(kind)
