"""Kernels that layers launch on a GPU, counted without one."""

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, launches
from fairseq_mega.ops.common import native

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")

# Launches forward, backward and of a step of decoding: more than these are slower on a GPU, fewer are an improvement.
COUNTS = {"mega": (21, 48, 19), "mega-chunk": (21, 46, 19), "megalodon-chunk": (25, 45, 22)}


@pytest.mark.parametrize("name", launches.LAYERS)
def test_counts(name):
    counted = [*launches.count_training(name, 2, 256), launches.count_step(name, 1, 300)]
    assert tuple(len(found.launched) for found in counted) == COUNTS[name]


@pytest.mark.parametrize(("name", "most"), [("mega-chunk", 20), ("megalodon-chunk", 29)])
def test_a_step_in_a_graph(name, most):
    assert len(launches.count_graph_step(name, 1).launched) <= most


def test_a_longer_batch_launches_as_many_kernels_and_moves_more():
    short, long = (launches.count_training("mega-chunk", 2, length)[0] for length in (256, 512))
    assert short.by_operator() == long.by_operator()
    assert sum(launch.moved for launch in long.launched) > 1.9 * sum(launch.moved for launch in short.launched)


def test_views_launch_nothing_and_bytes_are_those_of_inputs_and_results():
    x = launches.OnGpu(torch.empty(4, 8, device="meta"))
    with launches.on_gpu(), launches.Launches() as found:
        y = torch.zeros(8, 4, device=x.device) + x.transpose(0, 1)[:]
    assert y.device == launches.GPU and y.is_cuda
    assert found.launched == [launches.Launch("aten.zeros", 128), launches.Launch("aten.add", 3 * 128)]


def test_the_command_prints_a_row_per_pass(capsys):
    command.main(["launches", "--smoke", "--models", "mega", "--operators"])
    out = capsys.readouterr().out
    assert "| mega | forward | 21 |" in out and "5 aten.addmm" in out and out.count("| mega |") == 3
