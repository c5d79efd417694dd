"""No compiled CPU operator reads or writes beyond the tensors that it is given."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from fairseq_mega.ops.common import native
from tests.ops import guarded_memory
from tests.support import helpers


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.ops.guarded_memory", *arguments]
    return subprocess.run(command, cwd=helpers.REPOSITORY, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("side", guarded_memory.SIDES)
def test_no_operator_leaves_its_tensors(side: str) -> None:
    if native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    done = run(side)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr}"
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith(f"{native.NAMESPACE}::")]
    operators = {s.name.split("::")[1] for s in schemas if any(str(a.type) == "Tensor" for a in s.arguments)}
    assert set(done.stdout.split()) == operators - guarded_memory.GPU_ONLY


@pytest.mark.parametrize("side", guarded_memory.SIDES)
def test_the_memory_beyond_a_tensor_cannot_be_touched(side: str) -> None:
    assert run(side, "touch").returncode == -signal.SIGSEGV
