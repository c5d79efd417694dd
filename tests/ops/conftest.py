import pytest
import torch

from tests.support import kernels


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Fill what torch.empty and friends return with NaN, so that a value nobody wrote shows."""

    def poisoned(create):
        def wrapper(*args, **kwargs):
            out = create(*args, **kwargs)
            if out.is_floating_point() and not out.is_meta:
                out.detach().fill_(float("nan"))
            return out

        return wrapper

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


@pytest.fixture(params=kernels.KINDS)
def kernel_device(request, monkeypatch):
    """Runs a test once with each set of compiled kernels; the value is the device that its tensors have to be on.

    Memory that the kernels' bindings allocate is filled with NaN first.
    """
    device = kernels.select(request.param, request, monkeypatch)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield device
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=kernels.KERNELS)
def any_kernels(request, monkeypatch):
    """Runs a test as kernel_device, at each level of instructions that the CPU has."""
    return kernels.select(request.param, request, monkeypatch)


@pytest.fixture(params=kernels.CPU)
def cpu_level(request, monkeypatch):
    """Runs a test with the kernels for CPUs at each level of instructions that the machine has."""
    kernels.select(request.param, request, monkeypatch)
