"""A tiny training of each kind, as options of fairseq-mega-train, and the data that it needs."""

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch

from tests.support import helpers, lra_data, tiny_images

COMMON: List[object] = ["--optimizer", "adam", "--lr", 0.01, "--no-progress-bar", "--log-format", "json"]
COMMON += ["--log-interval", 1]
CLASSIFIER = ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--z-dim", 8, "--n-dim", 4]
CLASSIFIER += ["--classifier-out-dim", 16, "--sentence-class-num", 3, "--criterion", "lra_cross_entropy"]
CLASSIFIER += ["--batch-size", 8]
TRANSLATION: List[object] = ["--criterion", "label_smoothed_cross_entropy", "--max-tokens", 200]
OPTIONS: Dict[str, List[object]] = {
    "language model": [
        *("--task", "mega_language_modeling", "--arch", "mega_lm_tiny", "--decoder-layers", 1),
        *("--decoder-embed-dim", 16, "--decoder-hidden-dim", 32, "--decoder-z-dim", 8, "--decoder-n-dim", 4),
        *("--decoder-chunk-size", 8, "--share-decoder-input-output-embed", "--max-tokens", 100),
    ],
    "megalodon": [
        *("--task", "mega_language_modeling", "--arch", "megalodon_lm_tiny", "--decoder-layers", 2),
        *("--decoder-embed-dim", 16, "--decoder-hidden-dim", 32, "--decoder-ffn-embed-dim", 32, "--decoder-z-dim", 8),
        *("--decoder-attention-heads", 2, "--decoder-n-dim", 4, "--decoder-chunk-size", 8, "--norm-num-groups", 4),
        *("--share-decoder-input-output-embed", "--max-tokens", 100, "--num-workers", 0),
    ],
    "text": ["--task", "lra-text", "--arch", "mega_lra", "--max-positions", 64, *CLASSIFIER],
    "megalodon text": [
        *("--task", "lra-text", "--arch", "megalodon_lra", "--max-positions", 64, "--norm-num-groups", 4, *CLASSIFIER),
    ],
    "image": ["--task", "lra-image", "--arch", "mega_lra", "--max-positions", 16, *CLASSIFIER],
    "speech": ["--task", "speech_commands", "--arch", "mega_lra", "--max-positions", 20, *CLASSIFIER],
    "batch norm": [
        *("--task", "lra-image", "--arch", "mega_lra", "--max-positions", 16, *CLASSIFIER),
        *("--normalization-type", "batchnorm"),
    ],
    "colour image": [
        *("--task", "image-classification", "--arch", "mega_image_miniature", "--image-size", 8, "--patch-size", 4),
        *("--image-class-num", 3, "--criterion", "lra_cross_entropy", "--batch-size", 8),
    ],
    "masked": [
        *("--task", "masked_lm", "--arch", "mega_masked_lm", "--criterion", "masked_lm", "--mask-prob", 0.4),
        *("--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--encoder-ffn-embed-dim", 32),
        *("--encoder-z-dim", 8, "--encoder-n-dim", 4, "--max-positions", 64, "--tokens-per-sample", 30),
        *("--no-final-norm", "--no-scale-embedding", "--max-tokens", 200),
    ],
    "translation": [*helpers.TINY_MODEL, "--share-all-embeddings", *TRANSLATION],
    "transformer": ["--arch", "transformer_tiny", *TRANSLATION],
}


def write_text(folder: Path) -> Path:
    """A binarised text of random words; returns the data folder."""
    folder.mkdir()
    arguments: List[object] = ["--only-source", "--destdir", folder / "data-bin"]
    for seed, (split, count) in enumerate((("train", 200), ("valid", 40), ("test", 40))):
        lines = helpers.random_sentences(count, seed + 8)
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
        arguments += [f"--{split}pref", folder / f"{split}.txt"]
    helpers.run_fairseq("preprocess", arguments)
    return folder / "data-bin"


def write_texts(folder: Path) -> Path:
    """Classified texts; returns the data folder."""
    folder.mkdir()
    return Path(lra_data.write_texts(folder))


WRITERS: Dict[str, Callable[[Path], Any]] = {
    "language model": write_text,
    "megalodon": write_text,
    "text": write_texts,
    "megalodon text": write_texts,
    "image": lra_data.write_images,
    "speech": lra_data.write_speech,
    "batch norm": lra_data.write_images,
    "colour image": tiny_images.write,
    "masked": write_text,
    "translation": helpers.make_parallel_corpus,
    "transformer": helpers.make_parallel_corpus,
}


class Trainings:
    """Trainings by kind, a key of OPTIONS; the data of each are written once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data: Dict[object, Any] = {}

    def arguments(self, kind: str, *options: object) -> List[object]:
        """Arguments of fairseq-mega-train."""
        writer = WRITERS[kind]
        if writer not in self.data:
            self.data[writer] = writer(self.folder / f"data{len(self.data)}")
        return [self.data[writer], *OPTIONS[kind], *COMMON, *options]


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    """Tiny trainings of every kind."""
    return Trainings(tmp_path_factory.mktemp("trainings"))


# What a process logs of the whole batch; in validation each reads texts of its own.
OF_A_BATCH = "loss|gnorm|clip|num_updates|^wpb|^bsz"


def assert_same_weights(found: Path, expected: Path) -> None:
    """Compare the weights of the last checkpoints of two folders."""
    states = [torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"] for folder in (found, expected)]
    for name, weight in states[1].items():
        torch.testing.assert_close(states[0][name], weight, rtol=1e-4, atol=1e-5, msg=name)


def numbers(output: str, pattern: str = "loss|gnorm|num_updates|accuracy") -> List[Dict[str, Any]]:
    """The logged numbers whose name matches, of each update and each validation."""
    lines = re.findall(r"\| (?:train_inner|valid) \| (\{.*\})", output)
    return [{name: value for name, value in json.loads(line).items() if re.search(pattern, name)} for line in lines]
