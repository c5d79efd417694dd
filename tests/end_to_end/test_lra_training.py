"""Training and evaluation of classifiers with fairseq's commands: every example scored, the best checkpoint kept."""

import json
import re
from pathlib import Path
from typing import List

import pytest
import torch

from tests.support import lra_data
from tests.support.helpers import run_fairseq, train_with_two_processes

MEGA: List[object] = [
    "--encoder-layers",
    1,
    "--encoder-embed-dim",
    16,
    "--encoder-hidden-dim",
    32,
    "--z-dim",
    8,
    "--n-dim",
    4,
]
MEGA += ["--classifier-out-dim", 16, "--sentence-class-num", 3]
TRANSFORMER: List[object] = [
    "--encoder-layers",
    1,
    "--encoder-embed-dim",
    16,
    "--encoder-ffn-embed-dim",
    32,
    "--attention-heads",
    2,
]
TRANSFORMER += ["--classifier-out-dim", 16, "--sentence-class-num", 3, "--max-positions", 64]
TRAINING: List[object] = ["--criterion", "lra_cross_entropy", "--best-checkpoint-metric", "accuracy", "--sentence-avg"]
TRAINING += ["--maximize-best-checkpoint-metric", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
TRAINING += ["--lr", 0.02, "--lr-scheduler", "linear_decay", "--total-num-update", 80, "--warmup-updates", 4]
TRAINING += ["--clip-norm", 1.0, "--weight-decay", 0.01, "--dropout", 0.0, "--batch-size", 8]
TRAINING += ["--max-sentences-valid", 9, "--num-workers", 0, "--log-format", "json", "--no-progress-bar"]


def accuracies(output, split):
    """(accuracy, "n of m") of each validation of a split."""
    found = [json.loads(line) for line in re.findall(rf"\| {split} \| (\{{.*\}})", output)]
    return [(float(line[f"{split}_accuracy"]), line[f"{split}_correct"]) for line in found]


def train(data, folder, *options):
    return run_fairseq("train", [data, *TRAINING, "--save-dir", folder, *options])


def validate(data, task, checkpoint, *options):
    arguments = [data, "--task", task, "--path", checkpoint, "--valid-subset", "test", "--batch-size", 8]
    output = run_fairseq("validate", [*arguments, "--no-progress-bar", "--log-format", "json", *options])
    (found,) = accuracies(output, "test")
    return found


def check(data, task, folder, device_flags, options, wanted):
    """Train; the best checkpoint of validation must score on test what the training said of its epoch."""
    both = ["--valid-subset", "valid,test", "--no-epoch-checkpoints"]
    output = train(data, folder, "--task", task, *options, *both, *device_flags)
    valid, test = accuracies(output, "valid"), accuracies(output, "test")
    sizes = lra_data.SIZES
    assert all(text.endswith(f" of {sizes['valid']}") for _, text in valid)
    assert all(text == f"{round(value * sizes['test'] / 100)} of {sizes['test']}" for value, text in test)
    best = max(value for value, _ in valid)
    assert best >= wanted, valid
    last_best = max(epoch for epoch, (value, _) in enumerate(valid) if value == best)
    saved = torch.load(folder / "checkpoint_best.pt")
    assert saved["extra_state"]["best"] == best
    for more in ([], ["--required-batch-size-multiple", 16, "--batch-size", 5]):
        assert validate(data, task, folder / "checkpoint_best.pt", *device_flags, *more) == test[last_best]
    return output


@pytest.mark.parametrize("pairs", [False, True])
def test_text(pairs, device_flags, tmp_path):
    data = lra_data.write_texts(tmp_path, pairs)
    options = ["--arch", "mega_lra_aan" if pairs else "mega_lra_listop", *MEGA, "--chunk-size", 4, "--max-epoch", 8]
    check(data, "lra-text", tmp_path / "mega", device_flags, options, wanted=70)


def test_text_transformer_and_cls(device_flags, tmp_path):
    data = lra_data.write_texts(tmp_path)
    options = ["--arch", "transformer_lra_listop", *TRANSFORMER, "--sen-rep-type", "cls", "--max-epoch", 2]
    check(data, "lra-text", tmp_path / "transformer", device_flags, options, wanted=0)


@pytest.mark.parametrize("arch, sizes", [("mega_lra_cifar10", MEGA), ("transformer_lra_cifar10", TRANSFORMER)])
def test_images(arch, sizes, device_flags, tmp_path):
    data = lra_data.write_images(tmp_path / "data")
    options = ["--arch", arch, *sizes, "--pixel-normalization", 0.48, 0.24, "--max-epoch", 5]
    options += ["--chunk-size", 8] if sizes is MEGA else []
    check(data, "lra-image", tmp_path / "checkpoints", device_flags, options, wanted=80)
    saved = torch.load(tmp_path / "checkpoints" / "checkpoint_best.pt")
    assert saved["cfg"]["task"]["pixel_normalization"] == [0.48, 0.24]


def test_speech(device_flags, tmp_path):
    data = lra_data.write_speech(tmp_path)
    options = ["--arch", "mega_sc_raw_base", *MEGA, "--chunk-size", 10, "--sc-dropped-rate", 0.0, "--max-epoch", 5]
    check(data, "speech_commands", tmp_path / "checkpoints", device_flags, options, wanted=80)


def test_bad_input(device_flags, tmp_path):
    data = lra_data.write_images(tmp_path / "data")
    common = ["--task", "lra-image", *device_flags, "--max-update", 1]
    mega = ["--arch", "mega_lra_pf32", *MEGA]
    with pytest.raises(ValueError, match="16 real numbers is not a multiple of --encoder-chunk-size 5"):
        train(data, tmp_path / "a", *common, *mega, "--chunk-size", 5)
    with pytest.raises(ValueError, match="--input-type text: the data of this task have --input-type image"):
        train(data, tmp_path / "b", *common, "--arch", "mega_lra_imdb", *MEGA)


@pytest.mark.slow
def test_two_processes_score_every_example_once(device_flags, tmp_path):
    """21 and 29 examples over two processes, whose last batches are unequal; one process scores the same."""
    if not device_flags:
        pytest.skip("starts two processes on the CPU: run without --device cuda")
    data = lra_data.write_images(tmp_path / "data")
    options = ["--task", "lra-image", "--arch", "mega_lra_pf32", *MEGA, "--chunk-size", 8, "--norm-type", "layernorm"]
    options += ["--max-epoch", 2, "--valid-subset", "valid,test", "--save-dir", tmp_path / "checkpoints"]
    printed = train_with_two_processes([data, *TRAINING, *options])
    valid, test = accuracies(printed, "valid"), accuracies(printed, "test")
    assert len(valid) == 2 and all(text.endswith(" of 21") for _, text in valid)
    assert [validate(data, "lra-image", Path(tmp_path) / "checkpoints" / "checkpoint_last.pt", "--cpu")] == test[-1:]
