"""fairseq-mega-prepare for texts: in fairseq-preprocess's form; IMDb's archive. See also test_lra_archive.py."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

from fairseq_mega.lab.prepare.classification import texts
from fairseq_mega.lab.prepare.classification.texts import (
    BYTE_TOKENS,
    Example,
    TextSplit,
    byte_text,
    write_text_task,
)
from fairseq_mega.lab.prepare.progress import SPLITS
from tests.support import helpers
from tests.support.prepare_runs import byte_texts, labels, prepare, source_of, write_archive


def some_texts(seed: int, count: int, least: int = 0) -> List[bytes]:
    """Random bytes of some values only, so that counts tie and a split lacks tokens."""
    draw = np.random.default_rng(seed)
    return [bytes(draw.integers(100 - least, 112, draw.integers(1, 40), dtype=np.uint8)) for _ in range(count)]


def as_numbers(text: bytes) -> str:
    return " ".join(map(str, text)) + "\n"


def test_binarised_pairs_are_those_of_fairseq_preprocess_byte_for_byte(tmp_path: Path) -> None:
    pairs: Dict[str, List[List[bytes]]] = {}
    for number, split in enumerate(SPLITS):
        least = 0 if split == "train" else 3  # train lacks 97, 98 and 99
        pairs[split] = [some_texts(10 * number + side, 50, least) for side in range(2)]
    names = {split: ["ab"[text[0] % 2] for text in pairs[split][0]] for split in SPLITS}

    def of(split: str) -> TextSplit:
        def examples():
            for first, second, label in zip(*pairs[split], names[split]):
                yield Example((byte_text(first, 99), byte_text(second, 99)), label)

        return TextSplit(50, examples)

    statistics = write_text_task(tmp_path / "ours", {split: of(split) for split in SPLITS}, BYTE_TOKENS, "ba")

    files: Dict[str, Dict[str, Path]] = {"src": {}, "src1": {}, "label": {}, "both": {}}
    for split in SPLITS:
        texts = {side: "".join(map(as_numbers, pairs[split][number])) for number, side in enumerate(("src", "src1"))}
        texts.update(both=texts["src"] + texts["src1"], label="".join(f"{label}\n" for label in names[split]))
        for name, text in texts.items():
            files[name][split] = tmp_path / f"{name}.{split}"
            files[name][split].write_text(text)

    def preprocess(name: str, *options: object) -> Path:
        arguments: List[object] = ["--only-source", "--destdir", tmp_path / name, "--workers", 1, *options]
        for split, path in files[name].items():
            arguments += [f"--{split}pref", path]
        helpers.run_fairseq("preprocess", arguments)
        return tmp_path / name

    joined = preprocess("both") / "dict.txt"
    preprocess("src", "--srcdict", joined)
    preprocess("src1", "--srcdict", joined)
    preprocess("label")
    for name in ("src", "src1", "label"):
        for file in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
            ours, theirs = tmp_path / "ours" / f"{name}-bin" / file, tmp_path / name / file
            if file == "dict.txt" and name != "label":  # fairseq saves a given dictionary as it is
                theirs = joined
            assert ours.read_bytes() == theirs.read_bytes(), f"{name} {file}"
    assert statistics["train"]["src-bin"]["unknown"] == 0 < statistics["test"]["src1-bin"]["unknown"]
    assert statistics["valid"]["labels"] == dict(sorted(Counter(names["valid"]).items()))


def reviews(part: str, count: int) -> Dict[str, bytes]:
    """Names and texts, sorted by label as in the archive."""
    return {
        f"{part}/{kind}/{n}_{n % 10}.txt": f"{part} {kind} {n} é".encode()
        for kind in ("neg", "pos")
        for n in range(count)
    }


def test_reviews_become_bytes_and_test_serves_as_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive holds further files, and its reviews are not sorted."""
    path = tmp_path / "aclImdb_v1.tar.gz"
    contents = {**reviews("train", 10), **reviews("test", 10), "README": b"no", "train/unsup/0_0.txt": b"no"}
    write_archive(path, {f"aclImdb/{name}": content for name, content in reversed(contents.items())})
    digests = {"md5": hashlib.md5(path.read_bytes()).hexdigest()}
    monkeypatch.setattr(texts, "IMDB_ARCHIVE", texts.IMDB_ARCHIVE._replace(digests=digests))
    prepare("imdb", "--out", tmp_path / "out", "--archive", path).succeeded()
    for split, part in (("train", "train"), ("valid", "test"), ("test", "test")):
        assert byte_texts(tmp_path / "out" / "src-bin", split) == list(reviews(part, 10).values())
        assert labels(tmp_path / "out", split) == ["0"] * 10 + ["1"] * 10
    source = source_of(tmp_path / "out")
    assert source["inputs"][path.name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
