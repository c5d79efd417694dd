"""Pre-training on JSON lines through fairseq's commands: training, resume, workers, processes, evaluation, text."""

import re
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from fairseq_mega.data import token_index
from fairseq_mega.data.text_units import MODEL_FILE, SubwordVocabulary
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from tests.support import json_texts
from tests.support.helpers import hypotheses, run_fairseq, train_with_two_processes
from tests.support.tiny_trainings import numbers

LOGGED = "loss|gnorm|num_updates"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return json_texts.write_corpus(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture
def short_spans(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans for the little there is."""
    monkeypatch.setattr(token_index, "SPAN", 700)


def arguments(data: Path, *options: object) -> List[object]:
    return [data, *json_texts.TASK, *json_texts.MODEL, *json_texts.TRAINING, *options]


@pytest.fixture(scope="module")
def trained(data: Path, device_flags: List[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that learned something."""
    folder = tmp_path_factory.mktemp("trained")
    options = ["--max-epoch", 3, "--save-dir", folder, *device_flags]
    lines = numbers(run_fairseq("train", arguments(data, *options)), "valid_loss")
    found = [float(line["valid_loss"]) for line in lines if line]
    assert len(found) == 3 and found[2] < found[0] - 0.3
    return folder / "checkpoint_last.pt"


def test_resume_in_mid_epoch_is_exact(data: Path, short_spans: None, device_flags: List[str], tmp_path: Path) -> None:
    """A run resumes exactly in the second epoch, with fairseq's default of one worker and with two."""

    def losses(folder: str, updates: int, *options: object) -> List[Dict[str, Any]]:
        given = ["--max-update", updates, "--save-dir", tmp_path / folder, "--disable-validation", *device_flags]
        return numbers(run_fairseq("train", arguments(data, *given, *options)), LOGGED + "|epoch")

    whole = losses("whole", 60)
    assert len(whole) == 60 and {line["epoch"] for line in whole} == {1, 2}
    assert losses("parts", 47) + losses("parts", 60, "--num-workers", 2) == whole
    weights = [torch.load(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("whole", "parts")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_two_processes_read_every_token_once(data: Path, tmp_path: Path) -> None:
    """The last batch of an epoch is left for one process alone."""
    given = arguments(data, "--no-save", "--disable-validation", "--save-dir", tmp_path, "--max-epoch", 1)
    one = run_fairseq("train", [*given, "--cpu", "--max-tokens", 48])
    two = train_with_two_processes([*given, "--max-tokens", 48], "pytorch_ddp")
    (total,) = {int(found.replace(",", "")) for found in re.findall(r"train: ([\d,]+) tokens", one + two)}
    for output in (one, two):
        assert sum(float(line["wpb"]) for line in numbers(output, "^wpb$")) == total
    assert len(numbers(one)) % 2 == 1 and len(numbers(two)) == len(numbers(one)) // 2 + 1


def test_evaluation_and_text(data: Path, trained: Path, device_flags: List[str]) -> None:
    """Each token is scored once, whole text or document by document; text comes out as text."""
    losses = {}
    for block, segments in (("splits:1", 1), ("size:1", 12)):
        given = [data, "--task", "megalodon_pretrain", "--path", trained, "--gen-subset", "test", *device_flags]
        output = run_fairseq("eval-lm", [*given, "--valid-block", block, "--no-progress-bar"])
        found = re.search(r"scored ([\d,]+) of ([\d,]+) tokens, each once, in (\d+) segments?\b", output)
        assert found is not None and found[1] == found[2] and int(found[3]) == segments
        losses[block] = float(re.findall(r"Loss \(base 2\): ([\d.]+)", output)[0])
    assert losses["splits:1"] != losses["size:1"]
    given = [data, "--task", "megalodon_pretrain", "--path", trained, "--max-len-b", 12, *device_flags]
    (text,) = hypotheses(run_fairseq("interactive", given, stdin="the sea and\n"), "D").values()
    assert text.startswith("the sea and wind")
    generator = MegalodonLanguageModel.from_pretrained(str(trained.parent), trained.name, str(data))
    assert re.search("[a-z]+ [a-z]+", generator.complete("the sea and", 10, seed=1))


def test_prompts_are_beginnings_of_documents(data: Path, device_flags: List[str], tmp_path: Path) -> None:
    """Line ends and blanks are read as in training, and an answer ends with its line."""
    shutil.copytree(data, tmp_path / "data")
    lines = [line for text in json_texts.documents(80, 3) for line in text.split("\n")]
    train_model(lines, tmp_path / "data" / Path(MODEL_FILE).stem, 320, byte_fallback=True)
    run_fairseq("train", arguments(tmp_path / "data", "--max-update", 1, "--save-dir", tmp_path, *device_flags))
    generator = MegalodonLanguageModel.from_pretrained(str(tmp_path), "checkpoint_last.pt", str(tmp_path / "data"))
    vocabulary, text = SubwordVocabulary(tmp_path / "data" / MODEL_FILE), "the sea:\n    and  wind\nü"
    (tokens,) = vocabulary.encode([text])
    assert generator.tokens_of(text) == [vocabulary.dictionary.eos(), *tokens.tolist()[:-1]]
    assert "".join(generator.text_of(tokens.tolist()[:-1])) == text
    generator._stream_tokens = lambda *_, **__: iter(tokens.tolist())
    assert generator.complete("old", stop_at_line_end=True) == " the sea:"
    assert generator.complete("old") == f" {text}\n"
