"""--compile: trainings and scores are those without it, and no graph breaks."""

import functools
from pathlib import Path
from typing import Any, List

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from fairseq_mega.compat.features.compiling import VARIABLE
from tests.support import helpers, tiny_trainings


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.exhaustive)])
def graphs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Count the graphs, which a backend that starts sooner compiles."""
    torch._dynamo.reset()
    counters.clear()
    counting = CompileCounterWithBackend(request.param)
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend=counting))
    monkeypatch.setenv(VARIABLE, "0")  # the option changes it until the end of the process
    return counting


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("language model", ["--checkpoint-activations"]),
        pytest.param("megalodon", [], marks=pytest.mark.exhaustive),
    ],
)
def test_a_training_continues_compiled(
    kind: str,
    more: List[object],
    graphs: Any,
    trainings: tiny_trainings.Trainings,
    device_flags: List[str],
    tmp_path: Path,
) -> None:
    """A training without the option goes on with it, to the same weights; its checkpoint scores the same."""
    shape = ["--tokens-per-sample", 16, "--batch-size", 4]
    arguments = trainings.arguments(kind, *device_flags, *shape, "--dropout", 0, "--num-workers", 0, *more)
    folders = tmp_path / "eager", tmp_path / "compiled"
    for folder in folders:
        folder.mkdir()

    def train(folder: Path, updates: int, *options: object) -> Any:
        given = ["--no-epoch-checkpoints", "--disable-validation", "--max-update", updates, "--save-dir", folder]
        return tiny_trainings.numbers(helpers.run_fairseq("train", [*arguments, *given, *options]))

    def score(*options: object) -> Any:
        given = [arguments[0], "--path", folders[1] / "checkpoint_last.pt", *device_flags, *shape]
        output = helpers.run_fairseq("eval-lm", [*given, "--task", "language_modeling", *options])
        return output[output.index("Loss (base 2)") :].split(",")[0]

    for folder in folders:
        train(folder, 2)
    train(folders[0], 4)
    assert graphs.frame_count == 0
    train(folders[1], 4, "--compile")
    tiny_trainings.assert_same_weights(folders[1], folders[0])
    names = [list(torch.load(folder / "checkpoint_last.pt")["model"]) for folder in folders]
    assert names[0] == names[1] and 0 < graphs.frame_count <= 4 and not counters["graph_break"]

    trained = graphs.frame_count
    compiled = score("--compile")
    torch._dynamo.reset()
    assert score() == compiled and graphs.frame_count > trained
