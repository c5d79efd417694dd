"""fairseq-mega-prepare for texts: ListOps, IMDb and the ACL network, in fairseq-preprocess's form."""

import gzip
import hashlib
import io
import tarfile
from collections import Counter
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

from fairseq_mega.lab.prepare.classification import imdb
from fairseq_mega.lab.prepare.classification.text_output import (
    BYTE_TOKENS,
    Example,
    TextSplit,
    byte_text,
    write_text_task,
)
from fairseq_mega.lab.prepare.generators.listops.language import evaluate
from fairseq_mega.lab.prepare.splits import SPLITS
from tests.support import helpers
from tests.support.prepare_runs import binarised, byte_texts, labels, prepare, refusal, source_of


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


def test_a_label_that_train_lacks_has_a_class_of_its_own(tmp_path: Path) -> None:
    def split(*names: str) -> TextSplit:
        return TextSplit(len(names), lambda: [Example((byte_text(b"x", 9),), name) for name in names])

    write_text_task(tmp_path, {"train": split("5", "5", "3"), "valid": split("7", "3")}, BYTE_TOKENS, "357")
    assert (tmp_path / "label-bin" / "dict.txt").read_text().startswith("5 2\n3 1\n7 0\nmadeupword0000 0\n")
    assert labels(tmp_path, "valid") == ["7", "3"]


# --- ListOps

SHORT = ("--min-length", 10, "--max-length", 40)


def test_generated_trees_have_their_values_as_labels(tmp_path: Path) -> None:
    prepare("listops", "--out", tmp_path / "a", "--count", 200, "--workers", 1, *SHORT).succeeded()
    sizes = {}
    for split in SPLITS:
        trees, values = binarised(tmp_path / "a" / "src-bin", split), labels(tmp_path / "a", split)
        sizes[split] = len(trees)
        assert [str(evaluate(tree)) for tree in trees] == values
        assert all(10 < len(tree) < 40 for tree in trees)
    assert sizes == {"train": 192, "valid": 4, "test": 4}
    dictionary = (tmp_path / "a" / "src-bin" / "dict.txt").read_text().split()[::2]
    assert set(dictionary[:15]) == {*"0123456789X", "[MIN", "[MAX", "[MED", "[SM"}
    assert len(dictionary) == 20  # with 4 special tokens a multiple of 8
    source = source_of(tmp_path / "a")
    assert source["settings"]["seed"] == 1 and "seed 1" in source["origin"]

    prepare("listops", "--out", tmp_path / "b", "--count", 200, "--workers", 2, *SHORT).succeeded()
    assert source_of(tmp_path / "b")["files"] == source["files"]
    prepare("listops", "--out", tmp_path / "c", "--count", 200, "--seed", 2, *SHORT).succeeded()
    assert source_of(tmp_path / "c")["files"] != source["files"]


def write_released(folder: Path) -> Path:
    folder.mkdir()
    rows = ["( ( ( [MAX 2 ) 9 ) ] )\t9", "( ( ( ( [SM 5 ) 6 ) 3 ) ] )\t4", "7\t7"]
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_text("Source\tTarget\n" + "".join(f"{row}\n" for row in rows))
    return folder


def test_released_trees_are_read(tmp_path: Path) -> None:
    released = write_released(tmp_path / "released")
    prepare("listops", "--out", tmp_path / "out", "--tsv-dir", released).succeeded()
    for split in SPLITS:
        assert binarised(tmp_path / "out" / "src-bin", split) == [
            ["[MAX", "2", "9", "X"],
            ["[SM", "5", "6", "3", "X"],
            ["7"],
        ]
        assert labels(tmp_path / "out", split) == ["9", "4", "7"]
    assert set(source_of(tmp_path / "out")["inputs"]) == {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("( [AVG 2 ) ]\t2", "line 5: '[AVG' is not a token"),
        ("3\t10", "line 5: the target '10' is not a digit"),
        ("3", "line 5 has 1 tab-separated columns, 2 are needed"),
        ("3\té", "line 5: "),
    ],
)
def test_released_trees_of_another_form_are_refused(tmp_path: Path, row: str, message: str) -> None:
    released = write_released(tmp_path / "released")
    with open(released / "basic_val.tsv", "a") as stream:
        stream.write(f"{row}\n")
    assert f"basic_val.tsv: {message}" in refusal("listops", "--out", tmp_path / "out", "--tsv-dir", released)
    assert not (tmp_path / "out").exists()


# --- IMDb


def reviews(part: str, count: int) -> Dict[str, bytes]:
    """Names and texts, sorted by label as in the archive."""
    return {
        f"{part}/{kind}/{n}_{n % 10}.txt": f"{part} {kind} {n} é".encode()
        for kind in ("neg", "pos")
        for n in range(count)
    }


def write_archive(path: Path, contents: Dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of 20 + 20 reviews, in an order that is not sorted, and further files."""
    path = tmp_path / "aclImdb_v1.tar.gz"
    contents = {**reviews("train", 10), **reviews("test", 10)}
    contents = {f"aclImdb/{name}": text for name, text in reversed(contents.items())}
    write_archive(path, {"aclImdb/README": b"no", "aclImdb/train/unsup/0_0.txt": b"no", **contents})
    digests = {"md5": hashlib.md5(path.read_bytes()).hexdigest()}
    monkeypatch.setattr(imdb, "ARCHIVE", imdb.ARCHIVE._replace(digests=digests))
    monkeypatch.setattr(imdb, "REVIEWS", 20)
    return path


def test_reviews_become_bytes_and_test_serves_as_validation(archive: Path, tmp_path: Path) -> None:
    prepare("imdb", "--out", tmp_path / "out", "--archive", archive).succeeded()
    for split, part in (("train", "train"), ("valid", "test"), ("test", "test")):
        assert byte_texts(tmp_path / "out" / "src-bin", split) == list(reviews(part, 10).values())
        assert labels(tmp_path / "out", split) == ["0"] * 10 + ["1"] * 10
    source = source_of(tmp_path / "out")
    assert source["inputs"]["aclImdb_v1.tar.gz"]["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert any("valid and test are the same" in note for note in source["notes"])


def test_a_subset_is_mixed_and_stated(archive: Path, tmp_path: Path) -> None:
    prepare("imdb", "--out", tmp_path / "out", "--archive", archive, "--limit", "12,8,8", "--length", 9).succeeded()
    assert min(Counter(labels(tmp_path / "out", "train")).values()) > 2  # the first 12 have 2 good ones
    texts = byte_texts(tmp_path / "out" / "src-bin", "train")
    assert len(set(texts)) <= 12 == len(texts) and {len(text) for text in texts} == {9}
    assert byte_texts(tmp_path / "out" / "src-bin", "valid") == byte_texts(tmp_path / "out" / "src-bin", "test")
    source = source_of(tmp_path / "out")
    assert source["settings"]["limit"] == [12, 8, 8] and any("random subset" in note for note in source["notes"])


def test_an_archive_without_all_reviews_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imdb, "REVIEWS", 21)
    message = refusal("imdb", "--out", tmp_path / "out", "--archive", archive)
    assert "expected 21 reviews below aclImdb/train, found 20" in message


def test_a_cut_off_archive_of_the_right_checksum_is_refused_too(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write_bytes(archive.read_bytes()[:400])
    digests = {"md5": hashlib.md5(archive.read_bytes()).hexdigest()}
    monkeypatch.setattr(imdb, "ARCHIVE", imdb.ARCHIVE._replace(digests=digests))
    assert "aclImdb_v1.tar.gz cannot be unpacked" in refusal("imdb", "--out", tmp_path / "out", "--archive", archive)


def write_tables(folder: Path, extra: str = "") -> List[object]:
    rows = "".join(f"{n % 2}\t{n}\ttext {n} é\n" for n in range(10))
    (folder / "train.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "test.tsv").write_text(rows.replace("text", "tetx") + extra, encoding="utf-8")
    return ["--tsv-train", folder / "train.tsv.gz", "--tsv-test", folder / "test.tsv"]


def test_tables_packed_or_not_are_read(tmp_path: Path) -> None:
    prepare("imdb", "--out", tmp_path / "out", *write_tables(tmp_path)).succeeded()
    assert byte_texts(tmp_path / "out" / "src-bin", "train")[3] == "text 3 é".encode()
    assert byte_texts(tmp_path / "out" / "src-bin", "valid")[9] == "tetx 9 é".encode()
    assert labels(tmp_path / "out", "test") == ["0", "1"] * 5


def test_the_ends_of_reviews(tmp_path: Path) -> None:
    options = [*write_tables(tmp_path, "1\t9\té\n"), "--length", 4]
    prepare("imdb", "--out", tmp_path / "out", *options, "--end").succeeded()
    texts = byte_texts(tmp_path / "out" / "src-bin", "test")
    assert texts[3] == "3 é".encode() and texts[-1] == "é".encode()
    assert "the last 4 of each text" in " ".join(source_of(tmp_path / "out")["notes"])


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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2\t5\ttext\n", "test.tsv: line 11 has the label '2', not 0 or 1"),
        ("1\ttext\n", "test.tsv: line 11 has 2 tab-separated columns, 3 are needed"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, row: str, message: str) -> None:
    assert message in refusal("imdb", "--out", tmp_path / "out", *write_tables(tmp_path, row))


# --- ACL network


def write_pairs(folder: Path) -> Path:
    folder.mkdir()
    for name, count in (("train", 30), ("eval", 10), ("test", 9)):
        rows = [f"{n % 2}.0\tid{n}\tidx\tb'{name} {n}, eval or test'\tb'second {n} \\xc3'\n" for n in range(count)]
        (folder / f"new_aan_pairs.{name}.tsv").write_text("".join(rows))
    return folder


def test_pairs_keep_their_sides_and_share_a_dictionary(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "tables")
    prepare("aan", "--out", tmp_path / "out", "--tsv-dir", folder).succeeded()
    assert byte_texts(tmp_path / "out" / "src-bin", "valid")[3] == b"b'eval 3, eval or test'"
    assert byte_texts(tmp_path / "out" / "src1-bin", "valid")[3] == b"b'second 3 \\xc3'"
    assert labels(tmp_path / "out", "test") == ["0", "1"] * 4 + ["0"]
    dictionaries = [(tmp_path / "out" / side / "dict.txt").read_bytes() for side in ("src-bin", "src1-bin")]
    assert dictionaries[0] == dictionaries[1]
    assert any("147086 are commonly reported" in note for note in source_of(tmp_path / "out")["notes"])

    prepare("aan", "--out", tmp_path / "few", "--tsv-dir", folder, "--limit", 7, "--length", 4).succeeded()
    firsts = [byte_texts(tmp_path / "few" / side, "train") for side in ("src-bin", "src1-bin")]
    assert firsts == [[b"b'tr"] * 7, [b"b'se"] * 7]
