"""Labelled texts and recordings of one's own, from files to the label of a new one."""

import gzip
import io
import json
import os
import random
import subprocess
import sys
import wave
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np
import pytest

from fairseq_mega.cli import console
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.lab.evaluate import classify
from tests.support import helpers, in_process, tiny_images
from tests.support.prepare_runs import labels, prepare, refusal, source_of

pytestmark = pytest.mark.slow
MODEL: List[object] = ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--z-dim", 8]
MODEL += ["--n-dim", 4, "--classifier-out-dim", 16, "--dropout", 0.0]
TRAINING: List[object] = ["--criterion", "lra_cross_entropy", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
TRAINING += ["--lr", 0.01, "--batch-size", 10, "--num-workers", 0, "--no-epoch-checkpoints", "--no-progress-bar"]
HEADER = "label\ttext\n"
GOOD, BAD = ("gut", "schön", "toll"), ("schlecht", "übel", "öde")


def table(path: Path, count: int, seed: int) -> Path:
    """Reviews, of which one word tells the label; a byte-order mark in front."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label, words = (("lob", GOOD), ("kein Lob", BAD))[number % 2]
        rows.append(f"{label}\tDer Film {number} ist {draw.choice(words)}.\n")
    path.write_text("\ufefflabel\ttext\n" + "".join(rows), encoding="utf-8")
    return path


def ask(
    monkeypatch, capsys, data: Path, checkpoint: Path, *files: object, stdin: str = "", locale: str = "utf-8"
) -> List[List[str]]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), locale))
    assert classify.main([str(word) for word in (data, *files, "--path", checkpoint, "--cpu")]) == 0
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, device_flags) -> Tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("texts")
    data = folder / "data"
    prepare("own-texts", "--train", table(folder / "reviews.tsv", 120, 1), "--out", data, "--length", 60).succeeded()
    options = ["--task", "lra-text", "--arch", "mega_lra_imdb", *MODEL, "--chunk-size", 16, "--max-epoch", 12]
    helpers.run_fairseq("train", [data, *options, *TRAINING, *device_flags, "--save-dir", folder])
    return data, folder / "checkpoint_best.pt"


def test_lines_that_are_no_utf8(texts) -> None:
    """Lines pass unchanged, as those of files do, where a terminal's locale would refuse them."""
    data, checkpoint = map(str, texts)
    command = [sys.executable, "-m", "fairseq_mega.lab.evaluate.classify", data, "--path", checkpoint, "--cpu"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    line = "Der Film 7 ist übel.\n".encode("latin-1")
    done = subprocess.run(command, input=line, capture_output=True, env=environment)
    assert done.returncode == 0 and done.stdout.startswith(b"kein Lob\t") and done.stdout.endswith(line), done
    assert b"note: 1 of the 20 tokens of line 1 are in no training text" in done.stderr


def test_texts(texts, monkeypatch, capsys, tmp_path) -> None:
    asked = [("Der Film 7 ist toll.", "lob"), ("Der Film 500 ist übel.", "kein Lob"), ("Film 3 ist schön!", "lob")]
    lines = "".join(f"{text}\n" for text, _ in asked)
    for stdin in (lines, "\ufeff" + lines):
        answers = ask(monkeypatch, capsys, *texts, stdin=stdin)
        assert [(text, label) for label, _, text in answers] == asked
        assert all(0.5 < float(share) <= 1 for _, share, _ in answers)
    assert ask(monkeypatch, capsys, *texts, stdin=lines, locale="latin-1") == answers
    files = []
    for number, (text, _) in enumerate(asked):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(text, encoding="utf-8")
    again = ask(monkeypatch, capsys, *texts, *files)
    assert [(label, name) for label, _, name in again] == [(label, str(f)) for f, (_, label) in zip(files, asked)]


def test_texts_prepared_like_others(texts, tmp_path) -> None:
    """A table with other frequent bytes and without one of the labels is scored in the classifier's own numbers."""
    data, checkpoint = texts
    rows = [
        f"{label}\tzzzz {word}zz {n}\n" for n in range(20) for label, word in (("lob", "toll"), ("kein Lob", "übel"))
    ]
    few, many = tmp_path / "few.tsv", tmp_path / "many.tsv"
    few.write_text(HEADER + "".join(row for row in rows if row.startswith("lob")), encoding="utf-8")
    many.write_text(HEADER + "".join(rows), encoding="utf-8")

    def validate(name: str, *options: object) -> in_process.Done:
        prepare("own-texts", "--length", 60, "--out", tmp_path / name, *options).succeeded()
        given = [tmp_path / name, "--path", checkpoint, "--batch-size", 4, "--cpu"]
        helpers.forget_earlier_runs()
        return in_process.call(lambda words: console.run("validate", words), *given)

    refused = validate("own", "--train", many)
    assert refused.returncode and " source: " in refused.stderr
    assert validate("like", "--train", many, "--like", data).returncode == 0
    assert validate("fewer", "--train", few, "--like", data).returncode == 0
    assert labels(tmp_path / "fewer", "test") == ["lob"] * 2
    three = [tmp_path / f"{name}.tsv" for name in ("train", "valid", "test")]
    for path in three:
        path.write_text(HEADER + "lob\ttoll\nkein Lob\tübel\nkein Lob\tfad\n", encoding="utf-8")
    assert validate("three", *sum(zip(("--train", "--valid", "--test"), three), ()), "--like", data).returncode == 0
    like = ("own-texts", "--train", many, "--out", tmp_path / "refused", "--like")
    assert "--length is 4000, and" in refusal(*like, data, "--length", 4000)
    prepare("own-texts", "--train", many, "--out", tmp_path / "of its length", "--like", data).succeeded()
    assert source_of(tmp_path / "of its length")["settings"]["length"] == 60
    assert "src-bin/dict.txt" in refusal(*like, tmp_path)
    many.write_text(HEADER + "".join(rows) + "mittel\tgeht so\n" * 5, encoding="utf-8")
    assert "lacks: mittel" in refusal(*like, data)
    many.write_text(HEADER + "lob\ttoll\n" + "kein Lob\tfad\n" * 5, encoding="utf-8")
    assert "hold one out for valid and test" in refusal(*like, data)


def test_files_of_gzip_are_read(texts, monkeypatch, capsys, tmp_path) -> None:
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(b"Der Film 7 ist toll."))
    assert [label for label, _, _ in ask(monkeypatch, capsys, *texts, packed, stdin="")] == ["lob"]


LONG = "Der Film 7 ist toll." * 4
NOTES: Dict[str, Tuple[bytes, str]] = {
    "characters that it never saw": ("好看\n".encode(), "6 of the 6 tokens of line 1 are in no training text"),
    "composed otherwise": (
        "Film 1 ist scho\u0308n.\n".encode(),
        "2 of the 19 tokens of line 1 are in no training text",
    ),
    "a row of a table": (b"lob\tFilm 1\n", "1 of the 10 tokens of line 1 are in no training text"),
    "longer than --length": (LONG.encode(), "of the 80 tokens of line 1 the model reads the first 60, as in training"),
    "what training had": ("Der Film 9 ist schön.\n".encode(), ""),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_a_model_cannot_know_is_printed(name: str, texts, monkeypatch, capsys) -> None:
    """A label for each line all the same."""
    content, told = NOTES[name]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    assert classify.main([str(word) for word in (texts[0], "--path", texts[1], "--cpu")]) == 0
    found = capsys.readouterr()
    assert found.out.count("\n") == 1 and f"note: {told}" in found.err if told else not found.err


def test_one_note_on_shortened_examples(texts, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{LONG}\n".encode() * 4), "utf-8"))
    assert classify.main([str(word) for word in (texts[0], "--path", texts[1], "--cpu")]) == 0
    found = capsys.readouterr()
    assert found.out.count("\n") == 4 and found.err.count("\n") == found.err.count("80 tokens of line 1 ") == 1


def test_line_ends_behind_a_text_are_none_of_it(texts, monkeypatch, capsys, tmp_path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for file, end in zip(files, ("", "\n", "\r\n")):
        file.write_bytes(f"Der Film 7 ist toll.{end}".encode())
    assert len({share for _, share, _ in ask(monkeypatch, capsys, *texts, *files, stdin="")}) == 1


def test_all_labels_are_told(texts, monkeypatch, capsys) -> None:
    (answer,) = ask(monkeypatch, capsys, *texts, "--all", stdin="Der Film 1 ist öde.\n")
    assert answer[::2] == ["kein Lob", "lob", "Der Film 1 ist öde."]
    assert abs(float(answer[1]) + float(answer[3]) - 1) < 2e-4


def test_the_parts_of_a_table(texts) -> None:
    splits = source_of(texts[0])["splits"]
    assert {split: part["labels"] for split, part in splits.items()} == {
        "train": {"lob": 48, "kein Lob": 48},
        "valid": {"lob": 6, "kein Lob": 6},
        "test": {"lob": 6, "kein Lob": 6},
    }


def tone(path: Path, pitch: float, seed: int, samples: int = 2000, loudness: float = 1.0, **form: int) -> Path:
    """A WAV file of a tone with a little noise."""
    draw = np.random.default_rng(seed)
    wave_form = 8000 * np.sin(np.arange(samples) * pitch + draw.uniform(0, 6)) + draw.normal(0, 300, samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    settings: Dict[str, int] = {"nchannels": 1, "sampwidth": 2, "framerate": 16000, **form}
    with wave.open(str(path), "wb") as clip:
        for name, value in settings.items():
            getattr(clip, f"set{name}")(value)
        clip.writeframes((loudness * wave_form).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, device_flags) -> Tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clips")
    for number in range(40):
        for label, pitch in (("low", 0.05), ("high", 0.9)):
            tone(folder / "wav" / label / f"{number}.wav", pitch, number, samples=1400 + 10 * number)
    data = folder / "data"
    prepare("recordings", "--dir", folder / "wav", "--out", data).succeeded()
    options = ["--task", "speech_commands", "--arch", "mega_sc_raw_base", *MODEL, "--sentence-class-num", 2]
    options += ["--chunk-size", 100, "--max-epoch", 8]
    helpers.run_fairseq("train", [data, *options, *TRAINING, *device_flags, "--save-dir", folder])
    return data, folder / "checkpoint_best.pt"


def test_recordings(clips, monkeypatch, capsys, tmp_path) -> None:
    files = [tone(tmp_path / "a.wav", 0.9, 100), tone(tmp_path / "b.wav", 0.05, 101, 2500)]
    answers = ask(monkeypatch, capsys, *clips, *files)
    assert [(label, name) for label, _, name in answers] == [("high", str(files[0])), ("low", str(files[1]))]
    assert ask(monkeypatch, capsys, *clips, stdin=f"{files[0]}\n{files[1]}\n") == answers
    assert classify.main([str(word) for word in (clips[0], "--path", clips[1], "--cpu", *files)]) == 0
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == answers


def test_a_recording_of_another_form_is_refused(clips, capsys, tmp_path) -> None:
    path = tone(tmp_path / "fast.wav", 0.1, 1, framerate=44100)
    assert classify.main([str(word) for word in (clips[0], path, "--path", clips[1], "--cpu")]) == 1
    message = capsys.readouterr().err
    assert "fast.wav: one channel at 16000 Hz is needed, found 1 at 44100 Hz" in message
    assert "ffmpeg -i" in message


def test_recordings_that_are_cut_are_told(clips, capsys, tmp_path) -> None:
    path = tone(tmp_path / "long.wav", 0.05, 101, 2500)
    assert classify.main([str(word) for word in (clips[0], path, "--path", clips[1], "--cpu")]) == 0
    assert f"note: of the 2500 samples of {path} the model reads the first 2000" in capsys.readouterr().err


def test_recordings_prepared_like_others(clips, tmp_path) -> None:
    """Softer ones have another scale, and are used with a classifier in its own."""
    data, checkpoint = clips
    folder = tmp_path / "wav"
    for label, pitch in (("low", 0.05), ("high", 0.9)):
        for number in range(10):
            tone(folder / label / f"{number}.wav", pitch, number, 1400, loudness=0.1)

    def validate(name: str, *options: object) -> in_process.Done:
        prepare("recordings", "--dir", folder, "--out", tmp_path / name, *options).succeeded()
        given = [tmp_path / name, "--path", checkpoint, "--batch-size", 4, "--cpu"]
        helpers.forget_earlier_runs()
        return in_process.call(lambda words: console.run("validate", words), *given)

    refused = validate("own")
    assert refused.returncode and " scale: " in refused.stderr
    refused = validate("short", "--samples", 1000)
    assert refused.returncode and "samples: 2000 in the checkpoint, 1000 in the data" in refused.stderr
    assert validate("like", "--like", data).returncode == 0
    scales = [ClipScale.load(place / "processed_data" / "raw") for place in (data, tmp_path / "like")]
    assert scales[0].described(17) == scales[1].described(17) and scales[1].length == 2000
    out = tmp_path / "refused"
    assert "--samples is 1000: " in refusal(
        "recordings", "--dir", folder, "--like", data, "--samples", 1000, "--out", out
    )
    (folder / "low").rename(folder / "deep")
    assert "lacks: deep" in refusal("recordings", "--dir", folder, "--like", data, "--out", out)
    assert "clips.pt does not exist" in refusal("recordings", "--dir", folder, "--like", folder, "--out", out)


def test_other_models_are_refused(clips, tiny_model, capsys) -> None:
    assert classify.main([str(clips[0]), "--path", str(tiny_model.checkpoint), "--cpu"]) == 1
    message = f"--path {tiny_model.checkpoint} holds a translator (--arch mega_tiny): give a classifier or an image "
    assert message + "classifier" in capsys.readouterr().err


def test_what_is_missing_is_named(clips, capsys, tmp_path) -> None:
    assert classify.main([str(word) for word in (tmp_path / "gone", "--path", clips[1], "--cpu")]) == 1
    assert f"{tmp_path / 'gone'} is not a folder: give the data folder" in capsys.readouterr().err
    assert classify.main([str(word) for word in (clips[0], "--path", tmp_path / "gone.pt", "--cpu")]) == 1
    assert "gone.pt does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert classify.main([str(word) for word in (tmp_path / "empty", "--path", clips[1], "--cpu")]) == 1
    assert "clips.pt does not exist" in capsys.readouterr().err
    tone(tmp_path / "wav" / "only" / "0.wav", 0.1, 1)
    assert "two folders of recordings LABEL/FILE" in refusal(
        "recordings", "--dir", tmp_path / "wav", "--out", tmp_path / "out"
    )


def test_a_limit_keeps_some_examples_of_each_split(clips, tmp_path) -> None:
    for dataset, source in (
        ("own-texts", ["--train", table(tmp_path / "reviews.tsv", 120, 1)]),
        ("recordings", ["--dir", clips[0].parent / "wav"]),
    ):
        out = tmp_path / dataset
        prepare(dataset, *source, "--out", out, "--limit", "9,3,2").succeeded()
        splits = json.loads((out / "card.json").read_text())["splits"]
        assert [splits[split]["examples"] for split in ("train", "valid", "test")] == [9, 3, 2]


@tiny_images.needs_timm
def test_images(tmp_path: Path, monkeypatch, capsys, device_flags) -> None:
    """The brighter an image, the higher its class; files are named by arguments or on lines."""
    data = tiny_images.write_files(tmp_path / "data")
    options = ["--task", "image-classification", "--arch", "mega_image_miniature", "--image-size", 8, "--patch-size", 4]
    options += ["--image-class-num", 3, "--max-epoch", 15, *TRAINING, *device_flags, "--save-dir", tmp_path]
    helpers.run_fairseq("train", [data, *options])
    files = sorted((data / "test").rglob("*.JPEG"))
    answers = ask(monkeypatch, capsys, data, tmp_path / "checkpoint_best.pt", *files)
    assert [(label, name) for label, _, name in answers] == [(path.parent.name, str(path)) for path in files]
    lines = "".join(f"{path}\n" for path in files)
    assert ask(monkeypatch, capsys, data, tmp_path / "checkpoint_best.pt", stdin=lines) == answers
    (data / "train").rename(data / "elsewhere")
    (first,) = ask(monkeypatch, capsys, data, tmp_path / "checkpoint_best.pt", files[0])
    assert first == answers[0]  # the checkpoint has the names of its classes
    (tmp_path / "broken.png").write_bytes(b"\xff\xd8nothing")
    given = [data, tmp_path / "broken.png", "--path", tmp_path / "checkpoint_best.pt", "--cpu"]
    assert classify.main([str(word) for word in given]) == 1
    assert "broken.png cannot be decoded" in capsys.readouterr().err
