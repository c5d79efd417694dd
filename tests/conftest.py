"""Options and fixtures of all tests."""

import os

# Before torch is imported: tiny tensors are slow on many spinning threads, and sums depend on their number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import gc
import logging
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

import pytest
import torch

from tests.support import grids, helpers, memory
from tests.support.tiny_trainings import trainings  # noqa: F401 (a fixture)

try:
    from hypothesis import settings
except ImportError:  # the tests of the kernels, all that scripts/gpu_check.sh runs, do without
    pass
else:
    settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
    settings.load_profile("no deadline")


class TinyModel(NamedTuple):
    """A corpus and a model trained on it for a few updates."""

    data: Path  # binarised, en-de, 461 test sentences
    checkpoint: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=["cpu", "cuda"], default="cpu", help="where the tests' tensors live")
    parser.addoption(
        "--exhaustive", action="store_true", help="every case of crossed parameters, and the tests marked exhaustive"
    )


def pytest_report_header(config: pytest.Config) -> Optional[str]:
    if config.getoption("--exhaustive"):
        return None
    return "crossed parameters: every pair of values; --exhaustive runs every case, and the tests marked exhaustive"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda: torch sees no CUDA device here; omit the option")
    if config.getoption("--device") == "cpu":  # before anything imports Triton
        os.environ.setdefault("TRITON_INTERPRET", "1")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    memory.prepare_meta()
    if not torch.cuda.is_available():  # whose driver asks for more than it uses
        memory.limit()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through all imported modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def subnormal_numbers_count() -> None:
    """Count subnormal numbers, which a command that ran in this process switched off until its end."""
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def no_log_handler_is_left() -> Iterator[None]:
    """Take back what a command has attached to the root logger: its stream is closed with the test's capture."""
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler:  # pytest's own are of other classes
            root.removeHandler(handler)


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    named = any("[" in argument for argument in config.args)  # a case that is asked for by its name runs
    if not config.getoption("--exhaustive") and not named:
        kept, omitted = grids.thin([item for item in items if not item.get_closest_marker("exhaustive")])
        omitted += [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=omitted)
        items[:] = kept
    if config.getoption("--device") == "cuda":
        return
    skip = pytest.mark.skip(reason="needs a GPU: run pytest with --device cuda on a machine with one")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device chosen with --device."""
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Return whether the tests run with --exhaustive."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture(scope="session")
def device_flags(device: torch.device) -> List[str]:
    """Options that a fairseq command needs to run on `device`."""
    return ["--cpu"] if device.type == "cpu" else []


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised corpus en-de with 461 test sentences (461 = 57 * 8 + 5), joined dictionary."""
    return helpers.make_parallel_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def tiny_model(tiny_corpus: Path, device_flags: List[str], tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """A MEGA trained for eight updates on `tiny_corpus`."""
    folder = tmp_path_factory.mktemp("tiny_model")
    stop = ["--max-update", 8, "--save-dir", folder, "--no-epoch-checkpoints"]
    helpers.run_fairseq("train", [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, *stop])
    return TinyModel(tiny_corpus, folder / "checkpoint_last.pt")
