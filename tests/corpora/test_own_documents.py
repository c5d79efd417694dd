"""Documents of one's own: JSON lines and plain text, held-out parts, and a vocabulary that knows every text."""

import json
from pathlib import Path

from fairseq_mega.data.subword_vocabulary import SubwordVocabulary
from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit
from tests.support import json_texts
from tests.support.prepare_runs import prepare, refusal


def test_json_lines_and_plain_text(tmp_path: Path) -> None:
    texts = json_texts.documents(60, 1)
    json_texts.write(tmp_path / "a.jsonl", texts[:40])
    (tmp_path / "b.txt").write_text("\ufeff" + "\n\n \n".join(texts[40:]) + "\n", encoding="utf-8")
    files = [tmp_path / "a.jsonl", tmp_path / "b.txt"]
    out = tmp_path / "out"
    prepare("own-documents", "--out", out, "--texts", *files, "--vocab-size", 320).succeeded()
    found = {
        split: [json.loads(line)["text"] for line in (out / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "valid", "test")
    }
    assert found["valid"] == texts[0::20] and found["test"] == texts[1::20]
    assert found["train"] == [text for number, text in enumerate(texts) if number % 20 > 1]
    vocabulary = SubwordVocabulary(out / MODEL_FILE)
    unit, code = DocumentUnit(out / MODEL_FILE), "if a:\n    b  c \n\n  d"
    assert unit.decode(unit.encode(code)) == code and unit.decode(unit.encode(f"  {code}")) == f"  {code}"
    assert unit.decode(unit.encode("k\udcff\ud800n")) == "k\ufffd\ufffdn"  # bytes that were no UTF-8, half a character
    for text in (texts[0], "größer\n\nthan 10 €"):  # with line ends, and characters that it never saw
        (tokens,) = vocabulary.encode([text])
        assert vocabulary.dictionary.unk() not in tokens
    again = tmp_path / "again"
    prepare("own-documents", "--out", again, "--texts", files[0], "--vocabulary", out / MODEL_FILE).succeeded()
    assert (again / MODEL_FILE).read_bytes() == (out / MODEL_FILE).read_bytes()
    assert len((again / "train.jsonl").read_text().splitlines()) == 36


def test_bad_lines_may_be_left_out(tmp_path: Path) -> None:
    json_texts.write(tmp_path / "a.jsonl", json_texts.documents(40, 1))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("no JSON\n")
    given = ("own-documents", "--out", tmp_path / "out", "--texts", tmp_path / "a.jsonl", "--vocab-size", 320)
    assert "line 41: it is not JSON" in refusal(*given)
    prepare(*given, "--bad-lines", "skip").succeeded()
    assert len((tmp_path / "out" / "train.jsonl").read_text().splitlines()) == 36


def test_bad_wishes(tmp_path: Path) -> None:
    json_texts.write(tmp_path / "two.jsonl", ["one", "two"])
    (tmp_path / "latin.txt").write_bytes("größer".encode("latin-1"))
    given = ("own-documents", "--out", tmp_path / "out", "--texts")
    assert "2 documents: three at least" in refusal(*given, tmp_path / "two.jsonl")
    assert "is no UTF-8" in refusal(*given, tmp_path / "latin.txt")
    assert "is a folder" in refusal(*given, tmp_path)
    (tmp_path / "packed.txt.gz").write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    assert "unpack it" in refusal(*given, tmp_path / "packed.txt.gz")
    message = refusal(*given, tmp_path / "two.jsonl", "--text-field", "body")
    assert "line 1: it has no text in the field 'body'" in message
    assert "--texts: " in refusal(*given, tmp_path / "none.txt")
    assert "--vocab-size 100" in refusal(*given, tmp_path / "two.jsonl", "--vocab-size", 100)
    assert "--limit 3" in refusal(*given, tmp_path / "two.jsonl", "--limit", 3)
