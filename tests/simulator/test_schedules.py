"""The CUDA kernels in the simulator: right under every schedule, and inside their buffers."""

import os
import subprocess
import sys

import pytest
import torch

from tests.simulator import build, check_operators, planted_defects
from tests.simulator.cases import ema
from tests.support import memory

FEW_ORDERS = ["0", "3", "4"]  # from the first thread, from the last warp, and a random one: see cuda_sim.h
ORDERS = ["0", "1", "2", "3", "4", "5"]

pytestmark = pytest.mark.skipif(
    build.cuda_home() is None, reason="the simulator needs the CUDA toolkit's headers: set CUDA_HOME"
)


@pytest.mark.slow
@pytest.mark.parametrize("operator", check_operators.CASES)
def test_the_same_results_under_every_schedule(operator, exhaustive):
    torch.ops.load_library(str(build.build()))
    orders = ORDERS if exhaustive else FEW_ORDERS
    assert check_operators.failures(check_operators.CASES[operator](), orders) == []


@pytest.mark.slow
def test_less_shared_memory_gives_the_same_results(monkeypatch):
    torch.ops.load_library(str(build.build()))
    monkeypatch.setenv("FM_SIM_SHARED", "18")  # the least that the scan needs
    assert check_operators.failures(ema.cases(), ["0"]) == []


def test_too_little_shared_memory_is_an_error_in_words(monkeypatch):
    torch.ops.load_library(str(build.build()))
    monkeypatch.setenv("FM_SIM_SHARED", "17")
    call = ema.CALLS[0]
    with pytest.raises(RuntimeError, match="ema_scan: CUDA error 1, the simulator's error"):
        ema.run_kernels(call, ema.draw(call))


# A sanitized build takes half a minute; of two operators it is part of every run.
SANITIZED = [
    operator if operator in ("gate", "timestep_norm") else pytest.param(operator, marks=pytest.mark.exhaustive)
    for operator in check_operators.CASES
]


@pytest.mark.slow
@pytest.mark.parametrize("operator", SANITIZED)
def test_no_access_out_of_bounds(operator, tmp_path):
    if build.sanitizer_library() is None:
        pytest.skip("g++ has no libasan")
    planted_defects.copy_sources(planted_defects.OPERATORS[operator], tmp_path)  # alone: a sanitized build takes long
    library = build.build(tmp_path, sanitize=True)
    command = [sys.executable, "-m", "tests.simulator.check_operators", operator, str(library), "0"]
    environment = {**os.environ, **build.sanitizer_environment()}
    done = subprocess.run(
        command, cwd=build.REPOSITORY, env=environment, preexec_fn=memory.lift, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
