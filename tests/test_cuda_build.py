"""The extension with its CUDA kernels links, loads without a GPU, and serves the CPU as the one without them does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mega.ops.common import native
from tests.simulator import build
from tests.support import helpers

NVCC = (build.cuda_home() or Path("/")) / "bin" / "nvcc"
OPERATORS = ("decoding", "ema", "rows", "operator_rules")  # values, and every operator once

PROGRAM = """
import torch
from fairseq_mega.ops.common import native

def registered(key):
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if n.startswith("fairseq_mega::") and
            torch._C._dispatch_has_kernel_for_dispatch_key(n, key)}

steps = ("average_step", "attention_step", "mix_step", "gated_attention_step", "normalized_attention_step")
steps += ("feed_forward_step", "timestep_norm_step", "gated_layers_step", "normalized_layers_step")
only_cpu = {f"fairseq_mega::{name}" for name in (*steps, "packed_linear", "ema_scan_backward")}
with_gradients = ("attention_groups", "dropout", "linear", "linear_parts", "silu_linear", "cross_entropy")
only_cpu |= {f"fairseq_mega::{name}{way}" for name in with_gradients for way in ("", "_backward")}
python = {f"fairseq_mega::{name}" for name in ("attention", "attention_backward")}
on_cpu, on_cuda = registered("CPU") - only_cpu - python, registered("CUDA") - python
assert len(on_cpu) >= 9 and on_cpu < on_cuda, (on_cpu, on_cuda)
print(native.LIBRARY, native.HAS_CUDA, native.OLDEST_CAPABILITY)
"""


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/simulator compiles each kernel
@pytest.mark.skipif(not NVCC.exists(), reason="nvcc is not installed: set CUDA_HOME")
@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
def test_the_extension_with_cuda_serves_the_cpu(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "goldens")
    for name in ("fairseq_mega", "tests"):
        shutil.copytree(helpers.REPOSITORY / name, tmp_path / name, ignore=ignore)
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(helpers.REPOSITORY / name, tmp_path)

    def run(*command: str) -> str:
        variables = {"FORCE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0", "FAIRSEQ_MEGA_NATIVE": "require"}
        environment = {**os.environ, **variables, "CUDA_HOME": str(NVCC.parent.parent), "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    run("setup.py", "--quiet", "build_ext", "--inplace")
    assert run("-c", PROGRAM).split() == [str(tmp_path / "fairseq_mega" / "_C.so"), "True", "80"]
    files = [f"tests/ops/test_{name}.py" for name in OPERATORS]
    summary = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "cpu", *files)
    assert " passed" in summary
