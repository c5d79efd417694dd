"""Batches loaded ahead: the same ones as without workers, and neither a worker nor a thread is left."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Iterator, List

import pytest
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import BackgroundConsumer, EpochBatchIterator

from fairseq_mega.compat.processes import workers as workers_module
from fairseq_mega.compat.processes.workers import workers_are_requested
from tests.support import grids, helpers, tiny_trainings

BATCHES = 12
BY_ITSELF = 2.0  # seconds; the garbage collector would take 5 per worker


class Numbers(FairseqDataset):
    """Its samples are their own numbers."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return BATCHES

    def collater(self, samples: List[int]) -> List[int]:
        return samples


def epochs(workers: int, buffer: int = 0) -> EpochBatchIterator:
    dataset = Numbers()
    batches = [[number] for number in range(BATCHES)]
    return EpochBatchIterator(
        dataset=dataset,
        collate_fn=dataset.collater,
        batch_sampler=batches,
        num_workers=workers,
        buffer_size=buffer,
        reuse_dataloader=True,  # this and the next are what fairseq's tasks pass
        persistent_workers=True,
    )


def ended(seconds: float = BY_ITSELF) -> bool:
    """Return whether all workers and loading threads end within some seconds, without the garbage collector."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        threads = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]
        if not threads and not multiprocessing.active_children():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(autouse=True)
def requested_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """--num-workers on the command line, no garbage collection, and nothing left of other tests."""
    monkeypatch.setattr(sys, "argv", ["test", "--num-workers", "2"])
    gc.collect()
    assert ended(20.0)
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("buffer", [0, 10])
@pytest.mark.parametrize("read", [BATCHES, 3])
def test_workers_end_with_their_epoch(buffer: int, read: int) -> None:
    """Also if an epoch is left early."""
    for _ in range(2):  # as fairseq does where batches are drawn again
        iterator = epochs(2, buffer)
        batches = iterator.next_epoch_itr(shuffle=False)
        assert [next(batches) for _ in range(read)] == [[number] for number in range(read)]
        del batches, iterator
        assert ended()


def test_workers_end_when_the_garbage_collector_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for workers that cannot end, which the patience of torch's clean-up shows."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 60.0)
    batches = epochs(2).next_epoch_itr(shuffle=False)
    next(batches)
    batches.circle = batches
    del batches
    assert len(multiprocessing.active_children()) == 2
    start = time.monotonic()
    gc.collect()
    assert ended() and time.monotonic() - start < 50.0


@pytest.mark.parametrize(("gpu", "workers"), [(False, 0), (True, 1)])
def test_workers_that_nobody_asked_for(gpu: bool, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fairseq-mega-train", "data"])
    # The plugin alone is to see a GPU: torch built for CUDA would pin memory with it, in a thread that then fails.
    cuda = types.SimpleNamespace(is_available=lambda: gpu)
    monkeypatch.setattr(workers_module, "torch", types.SimpleNamespace(cuda=cuda))
    batches = epochs(1).next_epoch_itr(shuffle=False)
    assert next(batches) == [0] and len(multiprocessing.active_children()) == workers


@pytest.mark.parametrize(
    ("version", "method", "requested"),
    [((3, 13), "fork", []), ((3, 14), "forkserver", ["fork"]), ((3, 14), "spawn", [])],
)
def test_workers_are_forked(version: tuple, method: str, requested: List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python's default is a server; what somebody has chosen otherwise stays."""
    found: List[str] = []
    stand_in = types.SimpleNamespace(
        get_start_method=lambda: method, set_start_method=lambda name, force: found.append(name)
    )
    monkeypatch.setattr(workers_module, "multiprocessing", stand_in)
    monkeypatch.setattr(workers_module, "sys", types.SimpleNamespace(version_info=version))
    workers_module.start_workers_by_fork()
    assert found == requested


@pytest.mark.parametrize(
    "words, expected",
    [(["--num-workers", "1"], True), (["dataset.num_workers=4"], True), (["--num-workers-of-mine", "1"], False)],
)
def test_workers_are_requested(words: List[str], expected: bool) -> None:
    assert workers_are_requested(["fairseq-mega-train", "data", *words]) is expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", grids.mostly_exhaustive(["language model", "image", "translation", "transformer"], kept=3)
)
def test_training_is_the_same_with_workers(
    kind: str, trainings: tiny_trainings.Trainings, device_flags: List[str], tmp_path: Path
) -> None:
    logs = []
    for workers in (0, 2):
        options = [*device_flags, "--no-save", "--save-dir", tmp_path, "--max-epoch", 3, "--num-workers", workers]
        logs.append(tiny_trainings.numbers(helpers.run_fairseq("train", trainings.arguments(kind, *options))))
        assert ended()
    assert len(logs[0]) > 6 and logs[0] == logs[1]


def test_nothing_is_left_after_training(trainings: tiny_trainings.Trainings, tmp_path: Path) -> None:
    """A training and its validations that stop in mid-epoch, with the workers and threads that were loading ahead."""
    program = """
import gc, multiprocessing, sys, threading
from fairseq_mega.cli.console import train
assert train() == 0
gc.collect()  # frames of the training may be in circles
names = [thread.name for thread in threading.enumerate() if type(thread).__name__ == "BackgroundConsumer"]
print("left:", multiprocessing.active_children(), names)
"""
    options: List[object] = ["--cpu", "--no-save", "--save-dir", tmp_path, "--max-update", 4]
    options += ["--num-workers", 2, "--max-valid-steps", 1, "--batch-size-valid", 1]
    command = [sys.executable, "-c", program, *map(str, trainings.arguments("transformer", *options))]
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "left: [] []" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0 and done.stderr == ""
