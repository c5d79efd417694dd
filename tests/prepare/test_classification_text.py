"""fairseq-mega-prepare for texts: ListOps, IMDb and the ACL network, in fairseq-preprocess's form."""

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
from tests.support.prepare_runs import binarised, byte_texts, labels, prepare, refusal, source_of, write_archive


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


def write_released(folder: Path, part: str, files: Dict[str, str]) -> None:
    """A part of the benchmark's archive."""
    members = {f"lra_release/{part}/{name}": text.encode() for name, text in files.items()}
    write_archive(folder / "lra_release.gz", members)


# --- ListOps


def test_released_trees_are_read(tmp_path: Path) -> None:
    rows = "( ( ( [MAX 2 ) 9 ) ] )\t9\n( ( ( ( [SM 5 ) 6 ) 3 ) ] )\t4\n7\t7\n"
    tables = {f"basic_{name}.tsv": f"Source\tTarget\n{rows}" for name in ("train", "val", "test")}
    write_released(tmp_path, "listops-1000", tables)
    prepare("listops", "--out", tmp_path / "out", "--released", "--archives", tmp_path).succeeded()
    trees = [["[MAX", "2", "9", "X"], ["[SM", "5", "6", "3", "X"], ["7"]]
    for split in SPLITS:
        assert binarised(tmp_path / "out" / "src-bin", split) == trees
        assert labels(tmp_path / "out", split) == ["9", "4", "7"]
    assert set(source_of(tmp_path / "out")["inputs"]) == {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"}


# --- IMDb


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


def test_reviews_held_out_for_validation_are_no_longer_trained_on(tmp_path: Path) -> None:
    rows = [f"{number % 2}\t5\treview {number}\n" for number in range(20)]
    (tmp_path / "train.tsv").write_text("".join(rows))
    options = ["--tsv-train", tmp_path / "train.tsv", "--tsv-test", tmp_path / "train.tsv"]
    prepare("imdb", "--out", tmp_path / "out", *options, "--held-out", 6).succeeded()
    found = {split: byte_texts(tmp_path / "out" / "src-bin", split) for split in SPLITS}
    assert (len(found["train"]), len(found["valid"]), len(found["test"])) == (14, 6, 20)
    assert sorted([*found["train"], *found["valid"]]) == sorted(found["test"])
    assert "valid: 6 reviews of train" in " ".join(source_of(tmp_path / "out")["notes"])
    message = refusal("imdb", "--out", tmp_path / "other", *options, "--held-out", 20)
    assert "no example is left for train" in message


# --- ACL network


def test_pairs_keep_their_sides_and_share_a_dictionary(tmp_path: Path) -> None:
    tables = {}
    for name, count in (("train", 30), ("eval", 10), ("test", 9)):
        rows = [f"{n % 2}.0\tid{n}\tidx\tb'{name} {n}, eval or test'\tb'second {n} \\xc3'\n" for n in range(count)]
        tables[f"new_aan_pairs.{name}.tsv"] = "".join(rows)
    write_released(tmp_path, "tsv_data", tables)
    source = ("aan", "--released", "--archives", tmp_path, "--out")
    prepare(*source, tmp_path / "out").succeeded()
    assert byte_texts(tmp_path / "out" / "src-bin", "valid")[3] == b"b'eval 3, eval or test'"
    assert byte_texts(tmp_path / "out" / "src1-bin", "valid")[3] == b"b'second 3 \\xc3'"
    assert labels(tmp_path / "out", "test") == ["0", "1"] * 4 + ["0"]
    dictionaries = [(tmp_path / "out" / side / "dict.txt").read_bytes() for side in ("src-bin", "src1-bin")]
    assert dictionaries[0] == dictionaries[1]
    assert any("147086 are commonly reported" in note for note in source_of(tmp_path / "out")["notes"])

    prepare(*source, tmp_path / "few", "--length", 4).succeeded()
    firsts = [byte_texts(tmp_path / "few" / side, "train") for side in ("src-bin", "src1-bin")]
    assert firsts == [[b"b'tr"] * 30, [b"b'se"] * 30]
