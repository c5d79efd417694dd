"""A training that goes on where another one ended: its limits, its best score, its last save, and nothing to do."""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq import checkpoint_utils

from tests.support import helpers, tiny_trainings

OPTIONS: List[object] = ["--cpu", "--num-workers", 0, "--no-epoch-checkpoints"]


class Trainer:
    """Trains small image classifiers below a folder."""

    def __init__(self, trainings: tiny_trainings.Trainings, folder: Path) -> None:
        self.trainings, self.folder = trainings, folder

    def __call__(self, name: str, *options: object) -> str:
        arguments = self.trainings.arguments("image", *OPTIONS, *options, "--save-dir", self.folder / name)
        return helpers.run_fairseq("train", arguments)


@pytest.fixture
def train(trainings: tiny_trainings.Trainings, tmp_path: Path) -> Trainer:
    return Trainer(trainings, tmp_path)


def updates(output: str) -> int:
    """Number of updates that a log ends with; 0 where none was made."""
    return int([0, *re.findall(r'"train_num_updates": "(\d+)"', output)][-1])


def change(path: Path, **extra_state: object) -> None:
    state = torch.load(path, weights_only=False)
    state["extra_state"].update(extra_state)
    torch.save(state, path)


LIMITS: Dict[str, List[object]] = {
    "as many updates": ["--max-update", 8],
    "epochs": ["--max-epoch", 1],
    "time": ["--stop-time-hours", 1e-9],
}


@pytest.fixture(scope="module")
def finished(trainings: tiny_trainings.Trainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training of an epoch."""
    folder = tmp_path_factory.mktemp("finished")
    helpers.run_fairseq("train", trainings.arguments("image", *OPTIONS, "--max-epoch", 1, "--save-dir", folder))
    return folder


@pytest.mark.parametrize("limit", LIMITS)
def test_nothing_to_train(train: Trainer, finished: Path, limit: str, tmp_path: Path) -> None:
    """The same training again succeeds and changes nothing; another one would leave an empty folder: an error."""
    last = finished / "checkpoint_last.pt"
    before, (option, _) = last.read_bytes(), LIMITS[limit]
    output = train(str(finished), *LIMITS[limit])
    assert updates(output) == 0 and f"{option} is" in output.partition("nothing to train: ")[2]
    assert last.read_bytes() == before
    with pytest.raises(ValueError, match=f"nothing to train.*{option}"):
        train("a", *LIMITS[limit], "--restore-file", last)
    assert not list((tmp_path / "a").glob("*.pt"))


def test_another_seed_is_another_training(train: Trainer, finished: Path) -> None:
    before = (finished / "checkpoint_last.pt").read_bytes()
    with pytest.raises(ValueError, match="--seed 1, not 2"):
        train(str(finished), "--max-epoch", 1, "--seed", 2)
    assert (finished / "checkpoint_last.pt").read_bytes() == before


def test_a_first_training_without_an_update_is_an_error(train: Trainer) -> None:
    with pytest.raises(ValueError, match="--max-epoch"):
        train("a", "--max-epoch", -1)


def test_the_time_of_another_training_does_not_count(train: Trainer, finished: Path) -> None:
    change(finished / "checkpoint_last.pt", previous_training_time=3600.0 * 24)
    begin = ["--finetune-from-model", finished / "checkpoint_last.pt"]
    assert updates(train("b", "--stop-time-hours", 1, "--max-epoch", 1, *begin)) == 8


@pytest.mark.parametrize(
    ("options", "files"),
    [
        (["--save-interval", 2, "--max-epoch", 3], {"checkpoint_best.pt", "checkpoint_last.pt"}),
        (["--save-interval", 9, "--max-epoch", 1, "--disable-validation"], {"checkpoint_last.pt"}),
        (["--save-interval", 9, "--max-epoch", 1, "--save-interval-updates", 8], None),
        (["--save-interval", 9, "--stop-min-lr", 0.005, "--lr", 0.01, "--force-anneal", 2], {"checkpoint_last.pt"}),
    ],
)
def test_the_last_epochs_are_saved(
    train: Trainer, options: List[object], files: Optional[set], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever --save-interval says; once, where they are saved already."""
    written = []
    persist = checkpoint_utils.torch_persistent_save

    def count(obj: Any, filename: str, **more: Any) -> None:
        written.append(filename)
        persist(obj, filename, **more)

    monkeypatch.setattr(checkpoint_utils, "torch_persistent_save", count)
    output = train("a", *options)
    last = torch.load(tmp_path / "a" / "checkpoint_last.pt", weights_only=False)
    assert last["optimizer_history"][-1]["num_updates"] == updates(output) > 0
    assert files is None or files <= {path.name for path in (tmp_path / "a").iterdir()}
    assert len(written) == (2 if "--max-epoch" in options and options[-1] == 3 else 1)
