"""Memory of freed tensors stays with the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from fairseq_mega.cli.console import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(12 << 20).add_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
def test_large_tensors_are_mapped_once():
    """20 tensors of 48 MiB: mapped once, or 20 times. One tensor has 12,288 pages of 4 KiB, or 24 of 2 MiB."""
    faults = {
        mode: int(subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, check=True).stdout)
        for mode in ("keep", "default")
    }
    assert faults["default"] > 8 * faults["keep"], faults
