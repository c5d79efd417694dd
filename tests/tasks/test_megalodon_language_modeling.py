"""MEGALODON through fairseq's commands: training, resume, streamed evaluation and generation, as MEGA's."""

from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from tests.support.evaluation import evaluate
from tests.support.helpers import hypotheses, run_fairseq
from tests.support.tiny_trainings import Trainings, numbers


@pytest.fixture(scope="module")
def data(trainings: Trainings) -> Path:
    return Path(str(trainings.arguments("megalodon")[0]))


@pytest.fixture(scope="module")
def trained(trainings: Trainings, device_flags: List[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after three epochs, in which it learned something."""
    folder = tmp_path_factory.mktemp("megalodon")
    options = [*device_flags, "--max-epoch", 3, "--no-epoch-checkpoints", "--save-dir", folder]
    lines = numbers(run_fairseq("train", trainings.arguments("megalodon", *options)), "valid_loss")
    found = [float(line["valid_loss"]) for line in lines if line]
    assert len(found) == 3 and found[2] < found[0] - 0.05
    return folder / "checkpoint_last.pt"


def test_context_chunks_and_window_count(data: Path, trained: Path, device_flags: List[str]) -> None:
    one: List[object] = ["--valid-block", "splits:1"]
    windows: List[List[object]] = [
        [*one, "--model-overrides", "{'statistics_window': 2}", "--chunk-nums", nums] for nums in (1, 2, 7)
    ]
    all_options: List[List[object]] = [one, ["--valid-block", "splits:20"], [*one, "--test-chunk-size", 16], *windows]
    losses = [evaluate(data, trained, device_flags, *options)[0] for options in all_options]
    assert len({*losses[:4]}) == 4
    assert max(losses[3:]) - min(losses[3:]) <= 1e-4 + 1e-9, losses


def test_resume_in_mid_epoch_is_exact(trainings: Trainings, device_flags: List[str], tmp_path: Path) -> None:
    def losses(folder: str, updates: int) -> List[Dict[str, Any]]:
        options = ["--max-update", updates, "--save-dir", tmp_path / folder, "--disable-validation", *device_flags]
        return numbers(run_fairseq("train", trainings.arguments("megalodon", *options)), "loss|gnorm|num_updates")

    whole = losses("whole", 14)
    assert losses("parts", 5) + losses("parts", 14) == whole and len(whole) == 14
    weights = [torch.load(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("whole", "parts")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


def test_recomputed_layers_train_alike(trainings: Trainings, device_flags: List[str]) -> None:
    logs = []
    for flags in ([], ["--checkpoint-activations"]):
        options = [*flags, "--max-update", 4, "--no-save", "--disable-validation", "--dropout", 0.1, *device_flags]
        logs.append(numbers(run_fairseq("train", trainings.arguments("megalodon", *options))))
    assert logs[0] == logs[1] and len(logs[0]) == 4


def test_bfloat16(trainings: Trainings, device_flags: List[str]) -> None:
    """bfloat16 learns as float32 does, with float32 master weights."""
    arguments = trainings.arguments("megalodon", "--max-update", 8, "--no-save", "--disable-validation", *device_flags)
    full, half = (numbers(run_fairseq("train", [*arguments, *more]), "^loss") for more in ([], ["--bf16"]))
    for one, other in zip(full, half):
        assert abs(float(one["loss"]) - float(other["loss"])) < 0.03, (full, half)


def test_float16_is_refused(data: Path, trained: Path, device_flags: List[str]) -> None:
    with pytest.raises(ValueError, match="--fp16 or --amp: .* give --bf16"):
        evaluate(data, trained, device_flags, "--fp16")


def test_generate_continues_lines(data: Path, trained: Path, device_flags: List[str]) -> None:
    arguments = [data, "--task", "mega_language_modeling", "--path", trained, "--valid-block", "lines", *device_flags]
    arguments += ["--gen-subset", "test", "--beam", 2, "--max-len-b", 4, "--max-tokens", 400, "--no-progress-bar"]
    output = run_fairseq("generate", arguments)
    found, source = hypotheses(output), hypotheses(output, "S")
    assert len(found) == 40
    assert all(found[i].startswith(source[i]) for i in found) and any(found[i] != source[i] for i in found)
