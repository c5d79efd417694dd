"""Memory of freed tensors stays with the process, and its threads count subnormal numbers as zero."""

import os
import subprocess
import sys

import pytest
import torch

from fairseq_mega.compat.processes.cpu_process import CAPACITY, FEW

PROGRAM = """
import resource, sys, torch
from fairseq_mega.compat.processes.cpu_process import configure_process
if sys.argv[1] == "keep":
    configure_process()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    torch.zeros(12 << 20).add_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
def test_large_tensors_are_mapped_once():
    """100 tensors of 48 MiB: mapped a few times, or 100 times. One tensor has 12,288 pages of 4 KiB, or 24 of 2 MiB."""
    faults = {
        mode: int(subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, check=True).stdout)
        for mode in ("keep", "default")
    }
    assert faults["default"] > 8 * faults["keep"], faults


SHAPES = """
import torch
from fairseq_mega.compat.processes.cpu_process import configure_process
torch.set_num_threads(1)
configure_process()
for size in [*range(1000, 1040), 1000]:
    torch.nn.functional.gelu(torch.zeros(size, 64))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize(("given", "again"), [(None, 1), ("50", 0)])
def test_few_operators_of_other_shapes_are_kept(given, again):
    """The first shape is built again after 39 others, unless the user's number of operators is larger."""
    environment = {name: value for name, value in os.environ.items() if name != CAPACITY}
    environment.update({"ONEDNN_VERBOSE": "profile_create", **({CAPACITY: given} if given else {})})
    done = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True, env=environment, check=True)
    assert FEW < 40 and done.stdout.count("create:cache_miss") == 40 + again, done.stdout[-500:]


SUBNORMALS = """
import torch
from fairseq_mega.compat.processes.cpu_process import configure_process
torch.set_num_threads(2)
configure_process()
x = torch.full((1 << 20,), 1e-30, requires_grad=True)
(x * 1e-9).sum().backward(torch.tensor(1e-30))
print(int((x * 1e-9).count_nonzero()), int(x.grad.count_nonzero()))
"""


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such setting")
def test_all_threads_count_subnormal_numbers_as_zero():
    """Those of the forward pass, and that of the gradients."""
    done = subprocess.run([sys.executable, "-c", SUBNORMALS], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0\n"
