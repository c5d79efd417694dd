"""Text to splits to binarised data: files, counts and refusals."""

import json
import re
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit, text_unit
from fairseq_mega.lab.prepare import progress
from fairseq_mega.lab.prepare.language_modeling import toy_data
from fairseq_mega.lab.prepare.language_modeling.counting import count
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, check_files, follow_bytes, split_text
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.runs import files
from fairseq_mega.lab.runs.files import write_json
from tests.support import helpers
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal

SPLITS = ("train", "valid", "test")


def cut(unit: str, train: Path, output: Path, **options: Any) -> None:
    split_text(Cut(unit, train, **options), output)


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        call(*arguments, **options)
    return str(caught.value)


def counts_of(folder: Path) -> Dict[str, Any]:
    return json.loads((folder / "counts.json").read_text())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """400 lines of one to nine words, every tenth of them empty, without a line feed at the end."""
    lines = helpers.random_sentences(400, seed=3)
    lines[::10] = [""] * 40
    path = tmp_path / "own text"
    path.write_text("\n".join(lines))
    return path


def binarise(folder: Path, data: Path, *options: object) -> Path:
    arguments: List[object] = ["--only-source", "--destdir", data, *options]
    for split in SPLITS:
        arguments += [f"--{split}pref", folder / split]
    helpers.run_fairseq("preprocess", arguments)
    return data


@pytest.mark.parametrize("unit", ["words", "bytes"])
def test_what_is_split_is_what_fairseq_binarises(unit: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut(unit, text, out, blocks=4, held_out=0.1)
    written = counts_of(out)
    assert written["unit"] == unit
    assert sum(part["bytes"] for part in written["splits"].values()) == text.stat().st_size
    assert sum(part["lines"] for part in written["splits"].values()) == 400
    if unit == "bytes":
        assert sum(part["tokens"] for part in written["splits"].values()) == text.stat().st_size + 1
    else:
        content = text.read_text()
        assert sum(part["tokens"] for part in written["splits"].values()) == len(content.split()) + 400
        assert sorted(line for split in SPLITS for line in (out / split).read_text().split("\n")[:-1]) == sorted(
            content.split("\n")
        )
    assert not list(out.glob("*.partial"))

    data = binarise(out, tmp_path / "data-bin")
    write_json(tmp_path / "counts.json", count(data, out))
    found = counts_of(tmp_path)
    for split in SPLITS:
        part = found["splits"][split]
        assert part.pop("unknown") == 0
        assert part == {key: written["splits"][split][key] for key in ("lines", "tokens", "bytes")}
    symbols = len(set((out / "train").read_text().split()))
    assert found["dictionary"] == -(-(symbols + 4) // 8) * 8


@pytest.mark.parametrize("unit", ["words", "subwords", "bytes"])
def test_the_unit_lies_beside_the_dictionary(unit: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut(unit, text, out, vocab_size=40)
    data = binarise(out, tmp_path / "data-bin")
    write_json(tmp_path / "counts.json", count(data, out))
    assert counts_of(tmp_path)["splits"]["train"]["unknown"] == 0
    dictionary = Dictionary.load(str(data / "dict.txt"))
    found = text_unit(data, dictionary)
    assert found.name == unit
    lines = [found.decode(line) for line in (out / "valid").read_text(encoding="utf-8").split("\n")[:-1]]
    assert set(lines) <= set(text.read_text().split("\n")) and len(set(lines)) > 5
    if unit == "subwords":
        assert len(dictionary) <= 48 and len({piece for line in lines for piece in found.encode(line).split()}) > 10


def test_splits_that_are_given_are_taken_whole(text: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("w1  w2\nnew\n")
    out = tmp_path / "text"
    cut("words", text, out, valid=valid)
    assert (out / "valid").read_text() == "w1 w2\nnew\n"
    found = counts_of(out)["splits"]
    assert found["valid"] == {"lines": 2, "tokens": 5, "bytes": 11, "symbols": 3}
    assert found["train"]["lines"] + found["test"]["lines"] == 400
    assert 10 <= found["test"]["lines"] <= 40
    cut("words", text, out, valid=valid, test=valid)
    assert counts_of(out)["splits"]["train"]["lines"] == 400


def test_sizes_cut_in_the_middle_of_a_line_and_count_one_end_more(tmp_path: Path) -> None:
    path = tmp_path / "enwik"
    path.write_bytes(b"ab\ncd\n" + b"ef" + b"g\n")
    out = tmp_path / "text"
    cut("bytes", path, out, sizes=(6, 2, 2))
    found = counts_of(out)["splits"]
    assert [found[split]["tokens"] for split in SPLITS] == [6, 3, 2]
    assert [found[split]["bytes"] for split in SPLITS] == [6, 2, 2]
    assert (out / "train").read_text().split() == ["97", "98", "99", "100"]


def test_a_limit_uses_a_part_of_the_text(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut("bytes", text, out, limit=2000, blocks=5)
    assert 1800 < sum(part["bytes"] for part in counts_of(out)["splits"].values()) < 2300


def test_invalid_bytes_are_replaced_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"fa\xe7ade of words\n" * 1000)
    assert "line 1: byte 0xe7 at byte offset 2" in error_of(cut, "words", path, tmp_path / "out")
    assert not (tmp_path / "out" / "train").exists()
    assert not (tmp_path / "out" / "counts.json").exists()
    cut("words", path, tmp_path / "out", replace_invalid=True)
    assert "fa\ufffdade" in (tmp_path / "out" / "test").read_text()


@pytest.mark.parametrize("unit", ["words", "subwords", "bytes"])
@pytest.mark.parametrize(
    ("end", "message"),
    [
        (" ", "has 0 line feeds, too few to be cut between lines"),
        (
            "\r",
            r"has 0 line feeds and 399 carriage returns without one, which do not end lines here (`tr '\r' '\n'` makes",
        ),
    ],
    ids=["one line", "carriage returns"],
)
def test_a_text_without_line_feeds(
    unit: str, end: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """It is cut where the unit allows it, with the cause, and no word of it is lost."""
    path, out = tmp_path / "text8", tmp_path / "out"
    lines = helpers.random_sentences(400, seed=3)
    path.write_bytes(end.join(lines).encode())
    cut(unit, path, out, vocab_size=60)
    where = "anywhere" if unit == "bytes" else "at white space"
    printed = capsys.readouterr()
    assert message in printed.out + printed.err and f": its parts are cut {where}" in printed.out + printed.err
    folder = out / "words" if unit == "subwords" else out
    found = [word for split in SPLITS for word in (folder / split).read_text().split()]
    words = " ".join(lines).split()
    assert len(found) == (len(path.read_bytes()) if unit == "bytes" else len(words))
    assert unit == "bytes" or sorted(found) == sorted(words)
    if unit == "subwords":
        learnt = SubwordUnit(out / MODEL_FILE).processor.get_piece_size()
        assert learnt >= 0.8 * train_model(lines, tmp_path / "of_lines", 60)  # in long lines sentencepiece finds few


RETURNS = {  # unit, end of the first lines, their number
    "few CR": ("words", "\r", 3),
    "CR, words": ("words", "\r", 150),
    "CR, subwords": ("subwords", "\r", 20),
    "CR, bytes": ("bytes", "\r", 20),
    "more CR than LF": ("words", "\r", 300),
    "few CR LF": ("bytes", "\r\n", 3),
    "CR LF, words": ("words", "\r\n", 300),
    "CR LF, bytes": ("bytes", "\r\n", 300),
    "LF": ("bytes", "\n", 300),
}


@pytest.mark.parametrize("case", RETURNS)
def test_carriage_returns_are_told(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CR alone ends no line; CR LF does, and the CR is a symbol for a model of bytes alone. A few are not told."""
    unit, end, among = RETURNS[case]
    monkeypatch.setattr(files, "BLOCK", 101)  # CR and LF fall into two blocks
    lines = helpers.random_sentences(400, seed=3)
    path = tmp_path / "text"
    path.write_bytes((end.join(lines[:among]) + "\n" + "\n".join(lines[among:]) + "\n").encode())
    cut(unit, path, tmp_path / "out", vocab_size=60)
    told, many = capsys.readouterr().err, among > 3
    alone = (
        f"has {401 - among} line feeds and {among - 1} carriage returns without one, which do not end lines here (`tr"
    )
    assert (alone in told) == (many and end == "\r")
    pairs = f"note: {among - 1} of the 400 lines of {path} end in CR LF, and the model learns the CR"
    assert (pairs in told) == (many and end == "\r\n" and unit == "bytes")
    if pairs in told:
        remedy = re.search("`(sed .*) >OUT`", told)
        assert remedy and subprocess.check_output(remedy[1], shell=True) == path.read_bytes().replace(b"\r", b"")


def test_lines_of_cr_cr_lf_are_not_doubled_by_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    lines = "\n".join(helpers.random_sentences(400, seed=3)) + "\n"
    path.write_bytes(lines.replace("\n", "\r\r\n").encode())
    cut("words", path, tmp_path / "out", vocab_size=60)
    remedy = re.search("which do not end lines here .`(tr .*)` removes them", capsys.readouterr().err)
    assert remedy and subprocess.check_output(f"{remedy[1]} <{path}", shell=True).decode() == lines


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "gb18030", "shift-jis", "utf-8"])
def test_bytes_of_another_encoding_are_told(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Text that is typed for a model of bytes is UTF-8."""
    word = {"latin-1": "schön", "cp1251": "дом"}.get(encoding, "日本")
    (tmp_path / "text").write_bytes(("a line of ASCII\n" * 400 + f"{word}\n" * 400).encode(encoding))
    cut("bytes", tmp_path / "text", tmp_path / "out")
    assert ("text is not UTF-8, and what is typed" in capsys.readouterr().err) == (encoding != "utf-8")


def test_a_text_without_white_space_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "text").write_text("今天早上老师在图书馆找到一本旧书。" * 900, encoding="utf-8")
    message = error_of(cut, "words", tmp_path / "text", tmp_path / "out")
    assert "cut between lines, nor is there white space enough: end its sent" in message
    (tmp_path / "text").write_text("short\n")
    message = error_of(cut, "bytes", tmp_path / "text", tmp_path / "out")
    assert "is too short to be cut into parts: give more text" in message and "--unit" not in message


class TestCheck:
    def test_good_files_pass(self, text: Path) -> None:
        check_files([text, text], "words", False)

    @pytest.mark.parametrize(
        ("content", "unit", "message"),
        [
            (b"one\ntw\xf6\n", "words", "bad.txt, line 2: byte 0xf6 at byte offset 6 of the file (column 3)"),
            (b"one\ntw\xf6\n", "words", "iconv -f CP1252 -t UTF-8"),
            (b"", "words", "bad.txt is empty"),
            (b"", "bytes", "bad.txt is empty"),
            (b" \n\n", "words", "white space only"),
            (b"a <pad>\n", "words", "line 1: the word '<pad>' is reserved"),
        ],
    )
    def test_bad_files_are_named(
        self, content: bytes, unit: str, message: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        bad = tmp_path / "bad.txt"
        bad.write_bytes(content)
        assert message in error_of(check_files, [text, bad], unit, False)

    def test_any_bytes_are_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "bad.txt").write_bytes(b"\xff\0\n")
        check_files([tmp_path / "bad.txt"], "bytes", False)


class TestRefused:
    def test_a_split_without_words(self, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
        text.write_text("w1 w2\n" * 10 + "\n" * 1000)
        message = error_of(cut, "words", text, tmp_path / "out", blocks=1, held_out=0.1)
        assert f"{text}: valid has 106 lines and no token; give more text" in message
        assert not (tmp_path / "out" / "counts.json").exists()

    def test_nothing_is_left_of_a_text_that_is_refused(self, text: Path, tmp_path: Path) -> None:
        """Neither a part of it nor settings, which would refuse a better text."""
        text.write_text("w1 w2\n" * 10 + "\n" * 1000)
        options = ("--train", text, "--blocks", 1, "--held-out", 0.1, "--out", tmp_path / "out")
        assert "valid has 106 lines and no token" in refusal("text-lm", *options)
        assert not (tmp_path / "out").exists()

    def test_a_blank_file_is_refused_before_anything_is_made(
        self, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        (tmp_path / "blank").write_text("\n\n")
        message = error_of(cut, "words", text, tmp_path / "out", valid=tmp_path / "blank")
        assert "blank: the file holds white space only" in message
        assert not (tmp_path / "out").exists()

    def test_a_missing_text(self, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
        assert "none: no such file" in error_of(cut, "words", tmp_path / "none", tmp_path / "out")


class TestCount:
    """Data that is not the text's, or not whole, is refused with expected and found."""

    @pytest.fixture(scope="class")
    def made(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("made")
        (folder / "own").write_text("".join(f"{line}\n" for line in helpers.random_sentences(300, seed=4, words=50)))
        cut("words", folder / "own", folder / "text")
        binarise(folder / "text", folder / "data-bin")
        return folder

    @pytest.fixture
    def copy(self, made: Path, tmp_path: Path) -> Path:
        shutil.copytree(made, tmp_path / "copy")
        return tmp_path / "copy"

    def refused(self, folder: Path, **options: Any) -> str:
        return error_of(count, folder / "data-bin", folder / "text", **options)

    @pytest.mark.parametrize("what", ["lines", "tokens"])
    def test_another_number_in_the_text(self, what: str, copy: Path) -> None:
        counts = counts_of(copy / "text")
        found = counts["splits"]["valid"][what]
        counts["splits"]["valid"][what] += 1
        (copy / "text" / "counts.json").write_text(json.dumps(counts))
        message = self.refused(copy)
        assert f"valid: expected {found + 1} {what} (the text in {copy / 'text'}), found {found}" in message

    def test_another_dictionary(self, copy: Path) -> None:
        with open(copy / "data-bin" / "dict.txt", "a") as stream:
            stream.write("extra 1\n")
        assert "dict.txt: expected a dictionary of 56 (the text" in self.refused(copy)

    def test_a_dictionary_that_is_too_small(self, copy: Path) -> None:
        (copy / "data-bin" / "dict.txt").write_text("w1 5\nw2 4\n")
        assert "train: expected token numbers below 6 (dict.txt), found" in self.refused(copy)

    def test_data_that_is_cut_off(self, copy: Path) -> None:
        path = copy / "data-bin" / "test.bin"
        path.write_bytes(path.read_bytes()[:-20])
        tokens = counts_of(copy / "text")["splits"]["test"]["tokens"]
        assert f"test: expected {tokens - 10} tokens in the index, found {tokens}" in self.refused(copy)

    def test_padding_in_the_data(self, copy: Path) -> None:
        path = copy / "data-bin" / "test.bin"
        content = bytearray(path.read_bytes())
        content[0] = 1
        path.write_bytes(content)
        assert "test: expected 0 <s> and <pad>, found 1" in self.refused(copy)

    def test_a_missing_file(self, copy: Path) -> None:
        (copy / "data-bin" / "valid.idx").unlink()
        assert "valid.idx does not exist; binarise the text again" in self.refused(copy)

    def test_the_published_counts(self, copy: Path) -> None:
        message = self.refused(copy, published=CORPORA["wikitext-2"])
        assert "train: expected 2088628 tokens (wikitext-2 as published), found" in message
        assert "valid: expected 3760 lines (wikitext-2 as published), found" in message
        assert "dict.txt: expected a dictionary of 33280 (wikitext-2 as published), found 56" in message

    def test_rare_words_are_unknown(self, copy: Path) -> None:
        threshold = 25
        data = binarise(copy / "text", copy / "rare", "--thresholdsrc", threshold)
        error_of(count, data, copy / "text")  # without the threshold the dictionary seems too small
        found = count(data, copy / "text", threshold)["splits"]["train"]["unknown"]
        words = (copy / "text" / "train").read_text().split()
        assert 0 < found == sum(words.count(word) for word in set(words) if words.count(word) < threshold)


def test_the_published_numbers_are_the_ones_of_the_corpora() -> None:
    corpus = CORPORA["wikitext-103"]
    assert corpus.counts()["train"] == {"lines": 1801350, "tokens": 103227021}
    assert corpus.counts()["valid"] == {"lines": 3760, "tokens": 217646}
    assert corpus.counts()["test"] == {"lines": 4358, "tokens": 245569}
    assert corpus.dictionary == 267744


def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    blocks = [bytes(3_000_000), bytes(1_000_000)]
    assert list(follow_bytes("train", 4_000_000, blocks)) == blocks
    assert capsys.readouterr().err.splitlines() == ["train: 3 of 4 MB", "train: 4 of 4 MB"]


@pytest.mark.usefixtures("in_process")
def test_a_part_of_a_text_is_taken(tmp_path: Path) -> None:
    """Both texts are cut to the same size, with the same share held out."""
    toy_data.write_corpus("gcide", tmp_path / "gcide.dict.dz")
    toy_data.write_corpus("own", tmp_path / "own.txt")
    found = []
    for name, option, file in (("gcide", "--dictionary", "gcide.dict.dz"), ("text-lm", "--train", "own.txt")):
        more = ["--unit", "bytes", "--limit", 8000, "--held-out", 0.1, "--blocks", 4, "--workers", 1]
        prepare(name, option, tmp_path / file, *more, "--out", tmp_path / name).succeeded()
        splits = json.loads((tmp_path / name / "counts.json").read_text())["splits"]
        found.append([splits[split]["bytes"] for split in ("train", "valid", "test")])
    for sizes in found:
        assert sizes == pytest.approx([6400, 800, 800], rel=0.5) and sum(sizes) == pytest.approx(8000, rel=0.1)


ENGLISH = [f"the {number % 7} of the {number % 5} and\n" for number in range(400)]
SELDOM_UNKNOWN = [f"{'the of and ' * 4}to {number}\n" for number in range(400)]
CHINESE = [f"\u6211\u4eec{chr(0x4E00 + number)}\n" for number in range(400)]  # each line is a word of its own


@pytest.mark.parametrize("option, value", [("--held-out", 0.3), ("--blocks", 3)])
def test_nothing_is_held_out_where_all_splits_are_given(option: str, value: float, text: Path, tmp_path: Path) -> None:
    given = ("text-lm", "--train", text, "--valid", text, "--test", text, "--out", tmp_path / "out")
    assert f"{option} {value}: --valid and --test leave nothing to hold out" in refusal(*given, option, value)


@pytest.mark.parametrize("ending, named", [("txt", "*.txt"), ("md", "*")])
def test_a_folder_of_texts_is_joined_by_hand(ending: str, named: str, tmp_path: Path) -> None:
    folder = tmp_path / "my books"
    folder.mkdir()
    (folder / f"a.{ending}").write_text("a text\n")
    message = refusal("text-lm", "--train", folder, "--out", tmp_path / "out")
    assert f"--train: {folder} is a folder" in message and f"after `cat '{folder}'/{named} >all.txt`" in message


MOSTLY_UNKNOWN = {  # lines to learn from and to validate with, the unit, and the splits that are told
    "words": (ENGLISH, ENGLISH, "words", []),
    "no spaces": (CHINESE, None, "words", ["train", "valid", "test"]),
    "no spaces, as bytes": (CHINESE, None, "bytes", []),
    "another language in validation": (ENGLISH, CHINESE, "words", ["valid"]),
    "another language in validation, as bytes": (ENGLISH, CHINESE, "bytes", ["valid"]),
    "one word of fourteen": (SELDOM_UNKNOWN, None, "words", ["train", "valid", "test"]),
    "empty lines beside": ([line + "\n" for line in CHINESE], None, "words", ["train", "valid", "test"]),
}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", MOSTLY_UNKNOWN)
def test_a_text_of_unknown_words_is_told(name: str, tmp_path: Path) -> None:
    train, valid, unit, told = MOSTLY_UNKNOWN[name]
    files = {split: lines for split, lines in (("train", train), ("valid", valid)) if lines is not None}
    for split, lines in files.items():
        (tmp_path / split).write_text("".join(lines), "utf-8")
    given = [word for split in files for word in (f"--{split}", tmp_path / split)]
    done = prepare("text-lm", *given, "--unit", unit, "--workers", 1, "--out", tmp_path / "out").succeeded()
    notes = [line for line in done.output.splitlines() if line.startswith("note: ") and "are <unk>" in line]
    remedy = "train on text that has them" if unit == "bytes" else "give --unit subwords or --unit bytes"
    assert all(line.endswith(remedy) for line in notes)
    assert [line.split()[1].rstrip(":") for line in notes] == told


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("others, told", [("", 0), ("v", 0), ("vw", 0), ("t", 1), ("vt", 1), ("vv", 1), ("tt", 3)])
def test_the_same_text_in_two_splits_is_told(others: str, told: int, text: Path, tmp_path: Path) -> None:
    for number, name in enumerate("tvw"):
        (tmp_path / name).write_text("".join(f"{line} {number}\n" for line in text.read_text().splitlines()))
    given = [word for split, name in zip(SPLITS, "t" + others) for word in (f"--{split}", tmp_path / name)]
    options = ("--unit", "bytes", "--workers", 1, "--out", tmp_path / "out")
    output = prepare("text-lm", *given, *options).succeeded().output
    assert sum(line.startswith("note: --") for line in output.splitlines()) == told


@pytest.mark.parametrize("unit", ["words", "subwords", "bytes"])
@pytest.mark.parametrize("known", [30, 4, 3])
def test_lines_of_another_split_are_told(unit: str, known: int, tmp_path: Path) -> None:
    """A tenth of the lines, be the training text one file or made twice; short lines do not count."""
    words = iter(" ".join(helpers.random_sentences(9000, seed=3)).split())
    train, valid, test = ([" ".join(islice(words, 12)) for _ in range(count)] for count in (900, 40, 40))
    files = {"train": [*train, *valid[:known], "ok"] * 2, "valid": valid, "test": [*test, *["ok"] * 99]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    given = [word for name in files for word in (f"--{name}", tmp_path / name)]
    size = ["--vocab-size", 60] if unit == "subwords" else []
    output = prepare("text-lm", *given, "--unit", unit, *size, "--out", tmp_path / "out").succeeded().output
    assert (f"note: {known} of the 40 lines of valid are also in train" in output) == (known >= 4)
    assert "lines of test are also in train" not in output


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("unit", ["words", "subwords", "bytes", "pairs"])
def test_a_folder_with_commas(unit: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq-preprocess separates names of files by commas."""
    monkeypatch.chdir(tmp_path)
    data, options = "text-lm", ["--train", str(text), "--unit", unit]
    if unit == "pairs":
        lines = [f"{number} {line}\n" for number, line in enumerate(helpers.random_sentences(400, seed=4))]
        for language in ("en", "de"):
            (tmp_path / f"p,t.{language}").write_text("".join(lines))
        data, options = "own-pairs", ["--text", "p,t", "--source-lang", "en", "--target-lang", "de"]
    prepare(data, *options, "--out", "a,b/c,", "--workers", 1).succeeded()
    for split in SPLITS:
        assert [file for file in (tmp_path / "a,b/c,/data-bin").glob(f"{split}.*bin") if file.stat().st_size]
