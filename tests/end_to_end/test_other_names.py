"""A model and data whose numbers have other names: every kind of model, and every road that one is loaded by."""

import io
import json
import os
import re
import shutil
import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence
from unittest import mock

import numpy as np
import pytest
import torch

from fairseq_mega.cli import average_checkpoints, console
from fairseq_mega.compat.files import card
from fairseq_mega.convert import command as convert_checkpoint
from fairseq_mega.data.card import write_settings
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.evaluate import classify
from fairseq_mega.lab.evaluate import language_model as evaluate_lm
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import in_process, json_texts, lra_data, tiny_images, tiny_trainings
from tests.support.helpers import forget_earlier_runs, run_fairseq

EARLIER = json.loads(Path(__file__).with_name("earlier_names.json").read_text())  # of such trainings, by kind
EARLIER["text length"] = {**EARLIER["text"], card.LENGTH: "the first 64 bytes"}
EARLIER.update(label=EARLIER["text"], scale=EARLIER["recordings"], length=EARLIER["recordings"])
INPUTS = ("text length", "scale", "length", "pixels")
TASKS = {"masked": ["--criterion", "masked_lm", "--task", "masked_lm"]}


SPEECH = tiny_trainings.OPTIONS["speech"]
MASKED: List[object] = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "mega_masked_lm_tiny"]
MASKED += ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--encoder-z-dim", 8]
MASKED += ["--encoder-n-dim", 4, "--max-positions", 64, "--tokens-per-sample", 32, "--batch-size", 8]
IMAGES: List[object] = ["--task", "image-classification", "--arch", "mega_image_miniature", "--image-size", 8]
IMAGES += ["--patch-size", 4, "--image-class-num", 3, "--encoder-layers", 1, "--encoder-embed-dim", 8]
IMAGES += ["--encoder-hidden-dim", 12, "--encoder-ffn-embed-dim", 10, "--encoder-z-dim", 4, "--encoder-n-dim", 3]
IMAGES += ["--criterion", "lra_cross_entropy", "--batch-size", 8]
PIECES: List[object] = [*json_texts.TASK, *json_texts.MODEL, "--max-tokens", 64]


def swap(*paths: Path) -> None:
    """Exchange the first two tokens of dictionaries, which keep their counts."""
    for path in paths:
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")


def other_pieces(folder: Path) -> None:
    """Another sentencepiece model of the same size."""
    lines = [line[::-1] for text in json_texts.documents(80, 3) for line in text.split("\n")]
    train_model(lines, folder / Path(MODEL_FILE).stem, 60)


def clips(
    folder: Path, labels: Sequence[str] = ("low", "middle", "high"), samples: int = 20, deviation: float = 1.0
) -> Path:
    """Recordings with labels and a scale."""
    lra_data.write_speech(folder, samples)
    ClipScale(labels, np.zeros(samples), np.full(samples, deviation)).save(folder / "processed_data" / "raw")
    return folder


def record_length(folder: Path, length: int) -> Path:
    write_settings(folder, {card.LENGTH: f"the first {length} bytes"})
    return folder


def shrink_pictures(folder: Path) -> None:
    """Grey images of nine pixels."""
    for path in sorted((folder / "input").glob("*.src")):
        path.write_text("".join(" ".join(line.split()[:9]) + "\n" for line in path.read_text().splitlines()))


class Kind(NamedTuple):
    """Options of a training, how its data are written, and how other names come into them."""

    options: List[object]
    write: Callable[[Path], Any]
    rename: Callable[[Path], object]
    entry: str  # of the data card, that a refusal names


def of(training: str, rename: Callable[[Path], object], entry: str) -> Kind:
    return Kind(tiny_trainings.OPTIONS[training], tiny_trainings.WRITERS[training], rename, entry)


KINDS: Dict[str, Kind] = {
    "translator": of("translation", lambda data: swap(data / "dict.en.txt", data / "dict.de.txt"), card.SOURCE),
    "transformer": of("transformer", lambda data: swap(data / "dict.de.txt"), card.TARGET),
    "language model": of("language model", lambda data: swap(data / "dict.txt"), card.SOURCE),
    "text": of("text", lambda data: swap(data / "src-bin" / "dict.txt"), card.SOURCE),
    "text length": Kind(
        tiny_trainings.OPTIONS["text"],
        lambda folder: record_length(tiny_trainings.write_texts(folder), 64),
        lambda data: record_length(data, 32),
        card.LENGTH,
    ),
    "label": of("megalodon text", lambda data: swap(data / "label-bin" / "dict.txt"), card.LABELS),
    "recordings": Kind(SPEECH, clips, partial(clips, labels=("high", "middle", "low")), card.LABELS),
    "scale": Kind(SPEECH, clips, partial(clips, deviation=0.1), card.SCALE),
    "length": Kind(SPEECH, clips, partial(clips, samples=10), card.SAMPLES),
    "masked": Kind(MASKED, tiny_trainings.write_text, lambda data: swap(data / "dict.txt"), card.SOURCE),
    "images": Kind(
        IMAGES,
        tiny_images.write_files,
        lambda data: [(data / split / "class0").rename(data / split / "zebra") for split in tiny_images.SIZES],
        card.LABELS,
    ),
    "pixels": of("image", shrink_pictures, card.PIXELS),
    "pieces": Kind(PIECES, json_texts.write_corpus, other_pieces, card.SUBWORDS),
}


class Renamed:
    """A training of a kind for one update, and one on the same data with other names for its numbers."""

    def __init__(self, kind: Kind, folder: Path, flags: List[str]) -> None:
        self.kind, self.flags = kind, flags
        folder.mkdir()
        self.data = Path(kind.write(folder / "data"))
        self.other_data = Path(shutil.copytree(self.data, folder / "other"))
        kind.rename(self.other_data)
        for data, save_dir in ((self.data, "a"), (self.other_data, "b")):
            run_fairseq("train", self.arguments(data, folder / save_dir))
        self.checkpoint, self.other_checkpoint = (folder / part / "checkpoint_last.pt" for part in "ab")

    def arguments(self, data: Path, save_dir: Path, *options: object) -> List[object]:
        """Arguments of fairseq-mega-train for one update."""
        stop = ["--max-update", 1, "--save-dir", save_dir, "--no-epoch-checkpoints", "--num-workers", 0]
        common = [*tiny_trainings.COMMON, *stop, "--disable-validation", *self.flags]
        return [data, *self.kind.options, *common, *options]


AllRenamed = Callable[[str], Renamed]


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory, device_flags: List[str]) -> AllRenamed:
    """Return the trainings of a kind, which are made when they are asked for."""
    folder = tmp_path_factory.mktemp("renamed")
    return lru_cache(maxsize=None)(lambda name: Renamed(KINDS[name], folder / name, device_flags))


class Road:
    """Ways to load a checkpoint for data, as arguments of a command in this process."""

    def __init__(self, made: Renamed, name: str, folder: Path) -> None:
        self.name, self.made, self.folder = name, made, folder

    def run(self, command: str, *arguments: object) -> in_process.Done:
        forget_earlier_runs()
        return in_process.call(lambda words: console.run(command, words), *arguments)

    def train(self, data: Path, *options: object) -> in_process.Done:
        save_dir = ["--save-dir", self.folder, "--max-update", 2]
        arguments = self.made.arguments(data, self.folder, *save_dir, *options)
        return self.run("train", *arguments)

    def resume(self, data: Path, checkpoint: Path) -> in_process.Done:
        shutil.copy(checkpoint, self.folder / "checkpoint_last.pt")
        return self.train(data)

    def restore(self, data: Path, checkpoint: Path) -> in_process.Done:
        return self.train(data, "--restore-file", checkpoint)

    def anew(self, data: Path, checkpoint: Path) -> in_process.Done:
        resets = [f"--reset-{what}" for what in ("optimizer", "lr-scheduler", "meters", "dataloader")]
        return self.train(data, "--restore-file", checkpoint, *resets)

    def finetune(self, data: Path, checkpoint: Path) -> in_process.Done:
        return self.train(data, "--finetune-from-model", checkpoint)

    def average(self, data: Path, checkpoint: Path) -> in_process.Done:
        state, seed = torch.load(checkpoint), self.folder / "seed.pt"
        torch.save({**state, "extra_state": {**state["extra_state"], "ema": state["model"]}}, seed)
        return self.train(data, "--store-ema", "--ema-seed-model", seed)

    def evaluate(self, command: str, data: Path, path: object, *options: object) -> in_process.Done:
        flags = [*TASKS.get(self.name, []), "--batch-size", 8, *self.made.flags]
        return self.run(command, data, "--path", path, *flags, *options)

    def validate(self, data: Path, checkpoint: Path) -> in_process.Done:
        return self.evaluate("validate", data, checkpoint)

    def generate(self, data: Path, checkpoint: object) -> in_process.Done:
        lines = ["--valid-block", "lines"] if self.name == "language model" else []
        return self.evaluate("generate", data, checkpoint, "--gen-subset", "valid", "--max-len-b", 3, *lines)

    def interactive(self, data: Path, checkpoint: Path) -> in_process.Done:
        with mock.patch("sys.stdin", io.StringIO("w1 w2\n")):
            flags = ["--max-len-b", 3, *self.made.flags]
            return self.run("interactive", data, "--path", checkpoint, *flags)

    def eval_lm(self, data: Path, checkpoint: Path) -> in_process.Done:
        return self.evaluate("eval-lm", data, checkpoint, "--gen-subset", "valid")

    def evaluate_lm(self, data: Path, checkpoint: Path) -> in_process.Done:
        options = ["--label", "x", "--output", self.folder / "results", "--subset", "valid"]
        return in_process.call(evaluate_lm.main, data, "--path", checkpoint, *options)

    def ask(self, data: Path, checkpoint: Path) -> in_process.Done:
        line = "w1 w2\n" if self.name in ("text", "text length", "label") else ""
        with mock.patch("sys.stdin", io.StringIO(line)):
            return in_process.call(classify.main, data, "--path", checkpoint, "--cpu")

    def hub(self, data: Path, checkpoint: Path) -> in_process.Done:
        model = MegaModel if self.name == "translator" else MegaLanguageModel

        def load(words: List[str]) -> int:
            try:
                model.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))
            except card.OtherCard as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            return 0

        return in_process.call(load)

    def ensemble(self, data: Path, checkpoint: Path) -> in_process.Done:
        """A model of the data and another one."""
        own = self.made.checkpoint if data == self.made.data else self.made.other_checkpoint
        paths = os.pathsep.join([str(own), str(checkpoint)])
        return self.generate(data, paths)

    def safetensors(self, data: Path, checkpoint: Path) -> in_process.Done:
        copy = self.folder / "copy.safetensors"
        converted = in_process.call(convert_checkpoint.main, "--input", checkpoint, "--output", copy)
        assert converted.returncode == 0, converted.stderr
        return self.validate(data, copy)

    def averaged(self, data: Path, checkpoint: Path) -> in_process.Done:
        mean = self.folder / "mean.pt"
        assert not in_process.call(average_checkpoints.main, "--inputs", checkpoint, "--output", mean).returncode
        return self.validate(data, mean)


Call = Callable[..., in_process.Done]
ROADS: Dict[str, List[Call]] = {
    "translator": [
        *(Road.resume, Road.restore, Road.anew, Road.finetune, Road.average, Road.validate, Road.generate),
        *(Road.interactive, Road.ensemble, Road.hub, Road.safetensors, Road.averaged),
    ],
    "transformer": [Road.finetune, Road.generate],
    "language model": [
        *(Road.resume, Road.finetune, Road.validate, Road.generate, Road.interactive, Road.eval_lm),
        *(Road.evaluate_lm, Road.ensemble, Road.hub, Road.safetensors),
    ],
    "pieces": [Road.resume, Road.interactive, Road.eval_lm, Road.hub],
    "masked": [Road.finetune, Road.validate],
    "text": [Road.resume, Road.average, Road.validate, Road.ask],
    "text length": [Road.resume, Road.restore, Road.validate, Road.ask, Road.safetensors, Road.averaged],
    "label": [Road.finetune, Road.ask],
    "recordings": [Road.restore, Road.validate, Road.ask],
    "scale": [Road.resume, Road.restore, Road.validate, Road.ask, Road.safetensors, Road.averaged],
    "length": [Road.resume, Road.validate, Road.ask],
    "pixels": [Road.restore, Road.validate, Road.safetensors],
    "images": [Road.resume, Road.finetune, Road.validate, Road.ask, Road.safetensors],
}


def case(name: str, *road: Call) -> Any:
    ids = "-".join([name, *(one.__name__ for one in road)])
    return pytest.param(name, *road, id=ids, marks=tiny_images.needs_timm if name == "images" else ())


@pytest.mark.parametrize("name, road", [case(name, road) for name, roads in ROADS.items() for road in roads])
def test_other_names_are_refused(name: str, road: Call, renamed: AllRenamed, tmp_path: Path) -> None:
    made = renamed(name)
    at_hand = Road(made, name, tmp_path)
    done = road(at_hand, made.other_data, made.checkpoint)
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode != 0 and len(lines) == 1, done
    assert re.search(rf"[:;] {made.kind.entry}( \d+)?: ", lines[0]), done
    assert "Traceback" not in done.stderr


TAKEN = {**{name: roads[-1:] for name, roads in ROADS.items()}, "translator": ROADS["translator"]}


@pytest.mark.parametrize("name, road", [case(name, road) for name, roads in TAKEN.items() for road in roads])
def test_the_same_names_are_taken(name: str, road: Call, renamed: AllRenamed, tmp_path: Path) -> None:
    """On every road, and for every kind of model."""
    made = renamed(name)
    at_hand = Road(made, name, tmp_path)
    done = road(at_hand, made.other_data, made.other_checkpoint)
    assert done.returncode == 0, done


@pytest.mark.parametrize("name, road", [(name, Road.anew) for name in INPUTS] + [("scale", Road.finetune)])
def test_a_new_training_may_have_other_inputs(name: str, road: Call, renamed: AllRenamed, tmp_path: Path) -> None:
    """Its checkpoint is one of these, then."""
    made = renamed(name)
    at_hand = Road(made, name, tmp_path)
    assert road(at_hand, made.other_data, made.checkpoint).returncode == 0
    trained = tmp_path / "checkpoint_last.pt"
    assert at_hand.validate(made.other_data, trained).returncode == 0
    refused = at_hand.validate(made.data, trained)
    assert refused.returncode != 0 and f" {made.kind.entry}: " in refused.stderr


def test_another_normalization_of_pixels_is_refused(renamed: AllRenamed, tmp_path: Path) -> None:
    made = renamed("pixels")
    at_hand = Road(made, "pixels", tmp_path)
    options = ["--pixel-normalization", 0.3, 0.2]
    shutil.copy(made.checkpoint, tmp_path / "checkpoint_last.pt")
    for done in (
        at_hand.train(made.data, *options),
        at_hand.evaluate("validate", made.data, made.checkpoint, "--task", "lra-image", *options),
    ):
        assert done.returncode != 0 and "normalization: 0.5 0.5 in the checkpoint, 0.3 0.2 in the data" in done.stderr


@pytest.mark.parametrize("name", [case(name) for name in EARLIER])
def test_checkpoints_of_an_earlier_version(name: str, renamed: AllRenamed, tmp_path: Path) -> None:
    """They record the names of all ids; these make the same card."""
    made = renamed(name)
    state, earlier = torch.load(made.checkpoint, weights_only=False), tmp_path / "earlier.pt"
    del state[card.KEY]
    torch.save({**state, card.EARLIER: EARLIER[name]}, earlier)
    for data, is_own in ((made.data, True), (made.other_data, False)):
        folder = tmp_path / data.name
        folder.mkdir()
        road = Road.averaged if name == "translator" else Road.resume
        done = road(Road(made, name, folder), data, earlier)
        assert (done.returncode == 0) == is_own, done
        assert is_own or f" {made.kind.entry}" in done.stderr
