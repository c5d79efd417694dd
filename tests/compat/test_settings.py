"""The same weights with other settings: a training says so, an average is refused."""

from pathlib import Path
from typing import List

import pytest

from fairseq_mega.cli import average_checkpoints
from fairseq_mega.compat.files.settings import Role, options_of, register_roles
from tests.support import helpers, tiny_trainings

CHANGED = [
    ("language model", ["--decoder-chunk-size", 4], "--decoder-chunk-size 8, not 4"),
    ("transformer", ["--decoder-attention-heads", 1], "--decoder-attention-heads 2, not 1"),
    ("translation", ["--dropout", 0.3, "--lr", 0.1, "--truncation-length", 9], None),
]


def test_an_option_has_one_role() -> None:
    with pytest.raises(ValueError, match="another model: dropout, swiglu$"):
        register_roles({"swiglu": Role.OUTPUTS, "dropout": Role.RUN, "rope_base": Role.OUTPUTS, "new": Role.OUTPUTS})
    assert "new" not in options_of(Role.OUTPUTS)


class Trained:
    """A training of one update of each kind, made when it is asked for."""

    def __init__(self, trainings: tiny_trainings.Trainings, folder: Path) -> None:
        self.trainings, self.folder = trainings, folder

    def train(self, kind: str, save_dir: Path, *options: object) -> str:
        common: List[object] = ["--num-workers", 0, "--cpu", "--no-epoch-checkpoints", "--disable-validation"]
        return helpers.run_fairseq(
            "train", self.trainings.arguments(kind, *common, "--max-update", 1, "--save-dir", save_dir, *options)
        )

    def __getitem__(self, kind: str) -> Path:
        checkpoint = self.folder / kind / "checkpoint_last.pt"
        if not checkpoint.exists():
            self.train(kind, checkpoint.parent)
        return checkpoint


@pytest.fixture(scope="module")
def trained(trainings: tiny_trainings.Trainings, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(trainings, tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize(("kind", "options", "said"), CHANGED)
def test_trainings_say_what_is_another(
    kind: str, options: List[object], said: str, trained: Trained, tmp_path: Path
) -> None:
    first = trained[kind]
    output = trained.train(kind, tmp_path, "--restore-file", first, "--max-update", 2, *options)
    found = [line for line in output.splitlines() if "the same weights compute something else now" in line]
    assert [f"{first} was trained with {said}: " in line for line in found] == ([] if said is None else [True])


@pytest.mark.parametrize(("kind", "options", "said"), CHANGED)
def test_averages_are_of_one_model(
    kind: str, options: List[object], said: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = trained[kind], tmp_path / "a" / "checkpoint_last.pt"
    trained.train(kind, other.parent, *options)
    given = ["--inputs", str(first), str(other), "--output", str(tmp_path / "mean.pt")]
    assert average_checkpoints.main(given) == (0 if said is None else 1)
    assert said is None or f"{first} was trained with {said} as {other}" in capsys.readouterr().err
