"""The level of instructions of the kernels for CPUs, which the environment sets."""

import pytest

from fairseq_mega.ops.common import native

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


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
