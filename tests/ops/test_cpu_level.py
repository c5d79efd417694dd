"""Kernels for CPUs run at any level of instructions that the machine has; the other tests run at the highest."""

import os
import re
import subprocess
import sys

import pytest

from fairseq_mega.ops.common import native
from tests.support import helpers

LOWER = ("baseline", "avx2", "avx512", "avx512_bf16")
# Every kernel in float32 and bfloat16, forward and backward.
TESTS = {
    "ema": ("widths_and_dimensions", "half_precision_computes_in_float32"),
    "timestep_norm": ("equals_the_recurrence", "half_precision"),
    "gate": ("kernels_equal_formula", "half_precision_computes_in_float32"),
    "attention_paths": ("long_rows", "sixteen_bits_and_widths"),
    "decoding": ("steps_equal_the_whole",),
    "step": ("ema_step", "attention_step", "mix_step"),
    "packed_linear": ("kernel_equals_the_definition", "a_single_row_of_any_size"),
    "linear": ("products_equal_the_definition",),
    "half_rounding": ("every_number_is_read_and_written", "rounding_is_torchs"),
}
PROGRAM = """
import sys, pytest
from fairseq_mega.ops.common import native
assert native.cpu_level() == sys.argv[1], native.cpu_level()
sys.exit(pytest.main(sys.argv[2:]))
"""

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


@needs_kernels
@pytest.mark.parametrize("level", LOWER)
def test_the_kernels_at_a_lower_level(level):
    if level not in native.cpu_levels():
        pytest.skip(f"this machine has no {level}, only {', '.join(native.cpu_levels())}")
    tests = [f"tests/ops/test_{file}.py::test_{name}" for file, names in TESTS.items() for name in names]
    options = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not simulator")
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, level, *options, *tests],
        cwd=helpers.REPOSITORY,
        env={**os.environ, **quiet, native.LEVEL_VARIABLE: level},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 150, done.stdout[-3000:]


@pytest.fixture
def level_of_before():
    before = native.cpu_level()
    yield
    native.operators.set_cpu_level(before)


@needs_kernels
def test_the_environment_sets_the_level(monkeypatch, level_of_before):
    assert native.cpu_levels()[0] == "baseline"
    for level in native.cpu_levels():
        monkeypatch.setenv(native.LEVEL_VARIABLE, level)
        native._choose_cpu_level()
        assert native.cpu_level() == level
    monkeypatch.delenv(native.LEVEL_VARIABLE)
    native.operators.set_cpu_level("baseline")
    native._choose_cpu_level()
    assert native.cpu_level() == native.cpu_levels()[-1]


@needs_kernels
@pytest.mark.parametrize("wrong", ["avx3", "AVX2", "baseline,avx2"])
def test_a_level_that_the_machine_lacks(monkeypatch, wrong):
    monkeypatch.setenv(native.LEVEL_VARIABLE, wrong)
    with pytest.raises(ValueError, match=f"FAIRSEQ_MEGA_CPU_LEVEL={wrong}: choose from baseline"):
        native._choose_cpu_level()
    with pytest.raises(RuntimeError, match=f"no CPU level {wrong}: choose from baseline"):
        native.operators.set_cpu_level(wrong)
