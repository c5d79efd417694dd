"""fairseq-mega-train with sequences that several processes share."""

from pathlib import Path

import pytest

from tests.support import helpers, tiny_trainings

LENGTHS = ["--variant-block-multiple-min", 1, "--variant-block-multiple-max", 5, "--num-workers", 0, "--dropout", 0]
SHARED = ["--chunk-parallel-size", 2]


@pytest.mark.slow
@pytest.mark.parametrize("kind, backend", [("language model", "pytorch_ddp"), ("megalodon", "legacy_ddp")])
def test_two_processes_train_as_one_does(
    kind: str, backend: str, trainings: tiny_trainings.Trainings, tmp_path: Path
) -> None:
    """The same losses, norms of gradients, validation and weights, with clipping and two batches for an update."""
    options = [*LENGTHS, "--max-update", 4, "--clip-norm", 0.5, "--update-freq", 2, "--no-epoch-checkpoints"]
    one = helpers.run_fairseq("train", trainings.arguments(kind, *options, "--cpu", "--save-dir", tmp_path / "one"))
    arguments = trainings.arguments(kind, *options, *SHARED, "--save-dir", tmp_path / "two")
    two = helpers.train_with_two_processes(arguments, backend)
    logged = [tiny_trainings.numbers(printed, tiny_trainings.OF_A_BATCH) for printed in (one, two)]
    assert logged[0] == logged[1] and len(logged[0]) == 5
    tiny_trainings.assert_same_weights(tmp_path / "two", tmp_path / "one")
