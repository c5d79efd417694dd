"""Training and evaluation of classifiers with fairseq's commands by two processes: every example is scored once."""

import json
import re
from pathlib import Path
from typing import List, Tuple

import pytest

from tests.support import lra_data
from tests.support.helpers import run_fairseq, train_with_two_processes

MEGA: List[object] = ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--z-dim", 8]
MEGA += ["--n-dim", 4, "--classifier-out-dim", 16, "--sentence-class-num", 3]
TRAINING: List[object] = ["--criterion", "lra_cross_entropy", "--best-checkpoint-metric", "accuracy", "--sentence-avg"]
TRAINING += ["--maximize-best-checkpoint-metric", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
TRAINING += ["--lr", 0.02, "--lr-scheduler", "linear_decay", "--total-num-update", 80, "--warmup-updates", 4]
TRAINING += ["--clip-norm", 1.0, "--weight-decay", 0.01, "--dropout", 0.0, "--batch-size", 8, "--no-epoch-checkpoints"]
TRAINING += ["--max-sentences-valid", 9, "--num-workers", 0, "--log-format", "json", "--no-progress-bar"]
TRAINING += ["--valid-subset", "valid,test"]


def accuracies(output: str, split: str) -> List[Tuple[float, str]]:
    """(accuracy, "n of m") of each validation of a split."""
    found = [json.loads(line) for line in re.findall(rf"\| {split} \| (\{{.*\}})", output)]
    return [(float(line[f"{split}_accuracy"]), line[f"{split}_correct"]) for line in found]


def validate(data: Path, task: str, checkpoint: Path, *options: object) -> Tuple[float, str]:
    arguments = [data, "--task", task, "--path", checkpoint, "--valid-subset", "test", "--batch-size", 8]
    output = run_fairseq("validate", [*arguments, "--no-progress-bar", "--log-format", "json", *options])
    (found,) = accuracies(output, "test")
    return found


@pytest.mark.slow
def test_two_processes_score_every_example_once(device_flags, tmp_path: Path) -> None:
    """21 and 29 examples over two processes, whose last batches are unequal; one process scores the same."""
    if not device_flags:
        pytest.skip("starts two processes on the CPU: run without --device cuda")
    data = lra_data.write_images(tmp_path / "data")
    options = ["--task", "lra-image", "--arch", "mega_lra_pf32", *MEGA, "--chunk-size", 8, "--norm-type", "layernorm"]
    printed = train_with_two_processes([data, *TRAINING, *options, "--max-epoch", 2, "--save-dir", tmp_path])
    valid, test = accuracies(printed, "valid"), accuracies(printed, "test")
    assert len(valid) == 2 and all(text.endswith(" of 21") for _, text in valid)
    assert [validate(data, "lra-image", tmp_path / "checkpoint_last.pt", "--cpu")] == test[-1:]
