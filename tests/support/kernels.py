"""The compiled kernels under test: those for the CPU, the CUDA ones in the simulator, the CUDA ones on a GPU."""

import os
from typing import List

import pytest
import torch

from fairseq_mega.ops.common import native
from tests.simulator import build

KERNELS = ("cpu", "simulator", "cuda")
_LOADED: List[str] = []


def select(kernels: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Make the ops use these kernels for one test; returns the device that tensors have to be on, or skips."""
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
    return torch.device(kernels)
