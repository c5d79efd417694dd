"""The simulator finds the faults it is there to find, and its errors reach Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.simulator import build
from tests.support import memory

PROBE = build.HERE / "probe"
ROTATE, ROTATE_WITHOUT_BARRIER, DIVERGE, DIVERGE_IN_WARP, UNWRITTEN, FAR, FAR_IN_SHARED, VOTE, TOO_MANY = range(9)
NARROW_MASK, ABSENT, BOUNDED, BOUNDS_EXCEEDED, LARGE, LARGE_ALLOWED, TOO_LARGE, WRONG_STREAM = range(9, 17)

pytestmark = pytest.mark.skipif(
    build.cuda_home() is None, reason="the simulator needs the CUDA toolkit's headers: set CUDA_HOME"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of sources that holds nothing but the probe."""
    folder = tmp_path_factory.mktemp("probe")
    for place in ("common/common.h", "common/launch.h", "common/bindings.h", "common/random.h"):
        (folder / place).parent.mkdir(exist_ok=True)
        shutil.copy(build.SOURCES / place, folder / place)
    shutil.copytree(PROBE, folder / "probe")
    return folder


@pytest.fixture(scope="module")
def probe(sources: Path):
    """The operator that runs a kernel of the probe by number."""
    torch.ops.load_library(str(build.build(sources)))
    return getattr(torch.ops, build.NAMESPACE).probe


@pytest.mark.parametrize("order", range(8))
def test_a_correct_kernel_is_correct_under_every_schedule(probe, order, monkeypatch):
    monkeypatch.setenv("FM_SIM_ORDER", str(order))
    x = torch.randn(64)
    assert torch.equal(probe(x, ROTATE), x.roll(-1))


def test_a_missing_barrier_shows_under_some_schedule(probe, monkeypatch):
    x = torch.randn(64)
    wrong = []
    for order in range(8):
        monkeypatch.setenv("FM_SIM_ORDER", str(order))
        wrong.append(not torch.equal(probe(x, ROTATE_WITHOUT_BARRIER), x.roll(-1)))
    assert wrong.count(True) >= 4


@pytest.mark.parametrize(
    "which, message",
    [
        (DIVERGE, "is not reached by every thread"),
        (DIVERGE_IN_WARP, "wait for each other"),
        (TOO_MANY, "1 to 1024 threads"),
        (NARROW_MASK, "leaves out a thread that takes part"),
        (BOUNDS_EXCEEDED, "a block of 64 threads, the kernel's bounds allow 32"),
        (TOO_LARGE, "more than 48 KiB of shared memory need FM_MORE_SHARED"),
        (WRONG_STREAM, "another stream than torch's"),
    ],
)
def test_errors_reach_python(probe, which, message):
    with pytest.raises(RuntimeError, match=message):
        probe(torch.zeros(64), which)
    assert torch.equal(probe(torch.ones(64), ROTATE), torch.ones(64))  # and leave the simulator usable


def test_shared_memory_is_nan_at_the_start_of_a_block(probe):
    assert probe(torch.zeros(64), UNWRITTEN).isnan().all()


def test_more_shared_memory_has_to_be_allowed_first(sources):
    """Shared memory above 48 KiB fails until it is allowed; a new process, as a kernel keeps what was allowed."""
    library = build.build(sources)
    lines = [
        f"import torch; torch.ops.load_library({str(library)!r}); probe = torch.ops.{build.NAMESPACE}.probe",
        "x = torch.randn(64)",
        "try:",
        f"    probe(x, {LARGE})",
        "except RuntimeError as error:",
        "    assert 'more than 48 KiB' in str(error), error",
        "else:",
        "    raise AssertionError('not noticed')",
        f"assert torch.equal(probe(x, {LARGE_ALLOWED}), x) and torch.equal(probe(x, {LARGE}), x)",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_kernels_within_their_bounds_run(probe):
    x = torch.randn(64)
    assert torch.equal(probe(x, BOUNDED), x)


def test_what_an_absent_lane_would_give_is_nan(probe):
    x = torch.randn(64)
    got = probe(x, ABSENT)
    assert torch.equal(got[:16], x.view(32, 2).flip(1).flatten()[:16]) and got[32:48].isnan().all()


@pytest.mark.parametrize("order", range(8))
def test_threads_that_have_finished_have_no_vote(probe, order, monkeypatch):
    monkeypatch.setenv("FM_SIM_ORDER", str(order))
    x = torch.ones(64)
    x[3] = -2.0
    want = torch.full((40,), 31001.0)
    want[2] = 30998.0
    want[32:] = 8001.0
    assert torch.equal(probe(x, VOTE)[:40], want)


@pytest.mark.parametrize("which", [FAR, FAR_IN_SHARED, ROTATE])
def test_the_sanitizer_ends_a_process_that_reads_out_of_bounds(sources, which):
    if build.sanitizer_library() is None:
        pytest.skip("g++ has no libasan")
    library = build.build(sources, sanitize=True)
    load = f"import torch; torch.ops.load_library({str(library)!r})"
    program = f"{load}; torch.ops.{build.NAMESPACE}.probe(torch.zeros(64), {which})"
    environment = {**os.environ, **build.sanitizer_environment()}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, preexec_fn=memory.lift, capture_output=True, text=True)
    if which == ROTATE:
        assert done.returncode == 0, done.stderr[-2000:]
    else:
        assert done.returncode == 99 and "AddressSanitizer" in done.stderr, done.stderr[-2000:]
