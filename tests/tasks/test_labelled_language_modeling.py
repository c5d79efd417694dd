"""Language models on labels of the data: what is scored, and what is not."""

from pathlib import Path
from typing import Any, List, Tuple

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics

PAD = 1
TOKENS = [[4, 5, 6], [7, 4, 5, 6, 7], [4, 4]]
LABELS = [[PAD, 6, PAD], [PAD, PAD, 4, PAD, 5], [PAD, PAD]]


def write(folder: Path, split: str, rows: List[List[int]]) -> None:
    builder = make_builder(f"{folder / split}.bin", "mmap", vocab_size=100)
    for row in rows:
        builder.add_item(torch.tensor(row))
    builder.finalize(f"{folder / split}.idx")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    dictionary = Dictionary()
    for name in "abcd":
        dictionary.add_symbol(name)
    dictionary.save(str(tmp_path / "dict.txt"))
    write(tmp_path, "valid", TOKENS)
    write(tmp_path, "valid.labels", LABELS)
    return tmp_path


def build(data: Path) -> Tuple[Any, Any, Any]:
    """The task, a model of it and the criterion of the recipes."""
    words = [str(data), "--task", "labelled_language_modeling", "--arch", "mega_lm_tiny", "--tokens-per-sample", "64"]
    words += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0", "--report-accuracy"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    return task, task.build_model(cfg.model).eval(), task.build_criterion(cfg.criterion)


def test_batch(data: Path) -> None:
    task, _, _ = build(data)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[index] for index in range(3)])
    assert batch["net_input"]["src_tokens"].tolist() == [row + [PAD] * (5 - len(row)) for row in TOKENS]
    assert batch["target"].tolist() == [row + [PAD] * (5 - len(row)) for row in LABELS]
    assert batch["net_input"]["src_lengths"].tolist() == [3, 5, 2]
    assert (batch["ntokens"], batch["nsentences"], batch["id"].tolist()) == (3, 3, [0, 1, 2])
    assert dataset.collater([]) == {}


def test_only_labels_are_scored(data: Path) -> None:
    """Loss, count and accuracy are those of the three labels, as computed by hand from the model's logits."""
    task, model, criterion = build(data)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[index] for index in range(3)])
    loss, size, logged = criterion(model, batch)
    logits = model(**batch["net_input"])[0].float().log_softmax(-1)
    places = [(0, 1, 6), (1, 2, 4), (1, 4, 5)]
    assert loss.item() == pytest.approx(-sum(logits[place].item() for place in places), rel=1e-5)
    right = sum(int(logits[row, step].argmax()) == label for row, step, label in places)
    assert (size, logged["total"], logged["n_correct"]) == (3, 3, right)
    with metrics.aggregate() as found:
        task.reduce_metrics([logged, logged], criterion)
    assert found.get_smoothed_value("correct") == f"{2 * right} of 6"
    assert found.get_smoothed_value("accuracy") == pytest.approx(100 * right / 3, abs=0.01)


def test_files_that_do_not_belong_together(data: Path) -> None:
    task, _, _ = build(data)
    write(data, "valid.labels", LABELS[::-1])
    with pytest.raises(ValueError, match="valid"):
        task.load_dataset("valid")
    (data / "valid.labels.idx").unlink()
    with pytest.raises(FileNotFoundError, match="valid"):
        task.load_dataset("valid")
