"""Labelled texts and recordings of one's own, from files to the label of a new one."""

import io
import random
import wave
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import pytest

from fairseq_mega.cli import console
from fairseq_mega.lab.evaluate import classify
from tests.support import helpers, in_process
from tests.support.prepare_runs import labels, prepare, refusal

pytestmark = pytest.mark.slow
MODEL: List[object] = ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--z-dim", 8]
MODEL += ["--n-dim", 4, "--classifier-out-dim", 16, "--dropout", 0.0]
TRAINING: List[object] = ["--criterion", "lra_cross_entropy", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
TRAINING += ["--lr", 0.01, "--batch-size", 10, "--num-workers", 0, "--no-epoch-checkpoints", "--no-progress-bar"]
HEADER = "label\ttext\n"
WORDS = {"lob": ("gut", "schön", "toll"), "kein Lob": ("schlecht", "übel", "öde")}
Trained = Tuple[Path, Path]  # data and checkpoint


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., List[List[str]]]:
    """Classify files or lines, and return the fields of each answer."""

    def answer(trained: Trained, *words: object, stdin: str = "") -> List[List[str]]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        done = in_process.call(classify.main, trained[0], *words, "--path", trained[1], "--cpu")
        assert done.returncode == 0, done
        return [line.split("\t") for line in done.stdout.splitlines()]

    return answer


def validate(data: Path, checkpoint: Path) -> in_process.Done:
    """Score a data folder with a checkpoint of another one."""
    helpers.forget_earlier_runs()
    given = [data, "--path", checkpoint, "--batch-size", 4, "--cpu"]
    return in_process.call(lambda words: console.run("validate", words), *given)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, device_flags) -> Trained:
    """Reviews of which one word tells the label, cut to 60 bytes."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(1)
    rows = [(label, f"Der Film {number} ist {draw.choice(WORDS[label])}.") for number in range(60) for label in WORDS]
    (folder / "reviews.tsv").write_text(HEADER + "".join(f"{label}\t{text}\n" for label, text in rows), "utf-8")
    data = folder / "data"
    prepare("own-texts", "--train", folder / "reviews.tsv", "--out", data, "--length", 60).succeeded()
    options = ["--task", "lra-text", "--arch", "mega_lra_imdb", *MODEL, "--chunk-size", 16, "--max-epoch", 12]
    helpers.run_fairseq("train", [data, *options, *TRAINING, *device_flags, "--save-dir", folder])
    return data, folder / "checkpoint_best.pt"


def test_texts(texts: Trained, ask, tmp_path: Path) -> None:
    asked = {"Der Film 7 ist toll.": "lob", "Der Film 500 ist übel.": "kein Lob", "Film 3 ist schön!": "lob"}
    answers = ask(texts, stdin="\ufeff" + "".join(f"{text}\n" for text in asked))
    assert {text: label for label, _, text in answers} == asked
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for file, text, end in zip(files, asked, ("", "\n", "\r\n")):
        file.write_bytes(f"{text}{end}".encode())
    assert ask(texts, *files) == [[label, share, str(file)] for (label, share, _), file in zip(answers, files)]


def test_texts_prepared_like_others(texts: Trained, tmp_path: Path) -> None:
    """A table with other frequent bytes and without one of the labels is scored in the classifier's own numbers."""
    data, checkpoint = texts
    rows = [f"{label}\tzzzz {words[0]}zz {n}\n" for n in range(20) for label, words in WORDS.items()]
    few, many, third = tmp_path / "few.tsv", tmp_path / "many.tsv", tmp_path / "third.tsv"
    few.write_text(HEADER + "".join(row for row in rows if row.startswith("lob")), encoding="utf-8")
    many.write_text(HEADER + "".join(rows), encoding="utf-8")
    third.write_text(HEADER + "".join(rows) + "mittel\tgeht so\n" * 5, encoding="utf-8")
    for name, table, options in (("own", many, ["--length", 60]), ("like", many, []), ("fewer", few, [])):
        options = options or ["--like", data]
        prepare("own-texts", "--train", table, "--out", tmp_path / name, *options).succeeded()
    refused = validate(tmp_path / "own", checkpoint)
    assert refused.returncode and " source: " in refused.stderr
    for name in ("like", "fewer"):
        assert validate(tmp_path / name, checkpoint).returncode == 0
    assert labels(tmp_path / "fewer", "test") == ["lob"] * 2
    like = ("own-texts", "--out", tmp_path / "refused", "--like", data, "--train")
    assert "--length" in refusal(*like, many, "--length", 4000)
    assert "mittel" in refusal(*like, third)


def tone(path: Path, pitch: float, seed: int, samples: int = 2000, loudness: float = 1.0) -> Path:
    """A WAV file of a tone with a little noise."""
    draw = np.random.default_rng(seed)
    wave_form = 8000 * np.sin(np.arange(samples) * pitch + draw.uniform(0, 6)) + draw.normal(0, 300, samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as clip:
        clip.setparams((1, 2, 16000, samples, "NONE", ""))
        clip.writeframes((loudness * wave_form).astype("<i2").tobytes())
    return path


PITCHES: Dict[str, float] = {"low": 0.05, "high": 0.9}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, device_flags) -> Trained:
    folder = tmp_path_factory.mktemp("clips")
    for number in range(40):
        for label, pitch in PITCHES.items():
            tone(folder / "wav" / label / f"{number}.wav", pitch, number, samples=1400 + 10 * number)
    data = folder / "data"
    prepare("recordings", "--dir", folder / "wav", "--out", data).succeeded()
    options = ["--task", "speech_commands", "--arch", "mega_sc_raw_base", *MODEL, "--sentence-class-num", 2]
    options += ["--chunk-size", 100, "--max-epoch", 8]
    helpers.run_fairseq("train", [data, *options, *TRAINING, *device_flags, "--save-dir", folder])
    return data, folder / "checkpoint_best.pt"


def test_recordings(clips: Trained, ask, tmp_path: Path) -> None:
    files = [tone(tmp_path / "a.wav", 0.9, 100), tone(tmp_path / "b.wav", 0.05, 101, 2500)]
    answers = ask(clips, *files)
    assert [(label, name) for label, _, name in answers] == [("high", str(files[0])), ("low", str(files[1]))]


def test_recordings_prepared_like_others(clips: Trained, tmp_path: Path) -> None:
    """Softer ones have another scale, and are used with a classifier in its own."""
    data, checkpoint = clips
    folder, short = tmp_path / "wav", tmp_path / "short wav"
    for label, pitch in PITCHES.items():
        for number in range(10):
            tone(folder / label / f"{number}.wav", pitch, number, 1400, loudness=0.1)
            tone(short / label / f"{number}.wav", pitch, number, 900)
    for name, source, options, entry in (
        ("own", folder, [], " scale: "),
        ("short", short, [], "samples: 2000 in the checkpoint, 1000 in the data"),
        ("like", folder, ["--like", data], ""),
    ):
        prepare("recordings", "--dir", source, "--out", tmp_path / name, *options).succeeded()
        done = validate(tmp_path / name, checkpoint)
        assert bool(done.returncode) == bool(entry) and entry in done.stderr
    like = ("recordings", "--dir", folder, "--like", data, "--out", tmp_path / "refused")
    (folder / "low").rename(folder / "deep")
    assert "deep" in refusal(*like)
