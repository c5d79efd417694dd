"""Documents: PG-19 out of a tiny bucket on a local server or a folder; one's own, held out, with their vocabulary."""

import base64
import hashlib
import http.server
import json
import threading
import urllib.parse
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit, SubwordVocabulary
from fairseq_mega.lab.prepare.language_modeling import documents as pg19
from fairseq_mega.lab.prepare.language_modeling.documents import documents_of
from fairseq_mega.lab.prepare.layouts import WORDS_FILE, words_of
from fairseq_mega.lab.prepare.progress import HELD_OUT
from tests.support import json_texts
from tests.support.prepare_runs import prepare, refusal

COUNTS = {"train": 5, "validation": 2, "test": 3}


class Bucket(http.server.ThreadingHTTPServer):
    """A storage with the books and the vocabulary; lists come in pages of two files."""

    def __init__(self, files: Dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked = files, [""]
        self.damaged = ""
        self.host = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Bucket

    def do_GET(self) -> None:
        path, _, asked = self.path[1:].partition("?")
        if asked:
            body = self.page(dict(urllib.parse.parse_qsl(asked)))
        else:
            self.server.asked.append(path)
            body = self.server.files[path]
            body = body[:-1] + b"!" if path == self.server.damaged else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def page(self, asked: Dict[str, str]) -> bytes:
        prefix, first, files = f"{pg19.BUCKET}/", int(asked.get("pageToken", 0)), self.server.files
        names = sorted(name for name in files if name.startswith(prefix + asked["prefix"]))
        items = [
            {
                "name": name.removeprefix(prefix),
                "size": str(len(files[name])),
                "md5Hash": base64.b64encode(hashlib.md5(files[name]).digest()).decode(),
            }
            for name in names[first : first + 2]
        ]
        more = {"nextPageToken": str(first + 2)} if first + 2 < len(names) else {}
        return json.dumps({"items": items, **more}).encode()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, bytes]:
    """Everything that the storage holds."""
    vocabulary = json_texts.write_corpus(tmp_path_factory.mktemp("vocabulary")) / MODEL_FILE
    found = {pg19.VOCABULARY: vocabulary.read_bytes()}
    for seed, (folder, count) in enumerate(COUNTS.items()):
        for number, text in enumerate(json_texts.documents(count, seed)):
            found[f"{pg19.BUCKET}/{folder}/{seed}{number}.txt"] = text.encode()
    return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish as many books as the storage holds."""
    monkeypatch.setattr(pg19, "BOOKS", {split: COUNTS[folder] for split, folder in pg19.FOLDERS.items()})


@pytest.fixture
def bucket(files: Dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with Bucket(dict(files)) as running:
        monkeypatch.setattr(pg19, "HOST", running.host)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def books(files: Dict[str, bytes], tmp_path: Path) -> Path:
    """A local copy of the bucket."""
    for name, content in files.items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "copy" / pg19.BUCKET


def texts_of(path: Path) -> List[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("few")
def test_from_the_bucket(bucket: Bucket, files: Dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("pg19", "--out", out).succeeded()
    for split, folder in pg19.FOLDERS.items():
        expected = [files[name].decode() for name in sorted(files) if f"/{folder}/" in name]
        assert texts_of(out / f"{split}.jsonl") == expected and len(expected) == COUNTS[folder]
    assert json.loads((out / WORDS_FILE).read_text()) == pg19.WORDS and words_of(out, "test") == 6_966_499
    assert (out / MODEL_FILE).read_bytes() == files[pg19.VOCABULARY]
    source = json.loads((out / "card.json").read_text())
    assert source["splits"]["train"]["books"] == 5 and "t5.model" in source["inputs"]


@pytest.mark.usefixtures("few")
def test_a_damaged_book_alone_is_fetched_again(bucket: Bucket, tmp_path: Path) -> None:
    run = ("pg19", "--out", tmp_path / "out")
    bucket.damaged = name = f"{pg19.BUCKET}/test/21.txt"
    assert "21.txt: expected MD5" in refusal(*run)
    bucket.damaged, bucket.asked = "", []
    prepare(*run).succeeded()
    assert name in bucket.asked and f"{pg19.BUCKET}/test/20.txt" not in bucket.asked


@pytest.mark.usefixtures("bucket")
def test_the_published_numbers_of_books_are_demanded(books: Path, tmp_path: Path) -> None:
    assert pg19.BOOKS == {"train": 28602, "valid": 50, "test": 100}
    for source in (("--books", books, "--vocabulary", books.parent / pg19.VOCABULARY), ()):
        message = refusal("pg19", "--out", tmp_path / "refused", *source)
        assert "validation has 2 books, and PG-19 has 50" in message


def test_books_are_read_as_they_are(books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rough, model = "Größe, \r\nund ein Ende.\n", books.parent / pg19.VOCABULARY  # with a line end that has to stay
    (books / "train" / "9.TXT").write_bytes(rough.encode("utf-8-sig"))
    (books / "train" / "9.pdf").touch()
    monkeypatch.setattr(pg19, "BOOKS", {"train": 6, "valid": 2, "test": 3})
    given = ("pg19", "--out", tmp_path / "out", "--books", books, "--vocabulary", model)
    assert "omitted: 1 .pdf" in prepare(*given).succeeded().output
    lines = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert len(lines) == COUNTS["train"] + 1 and lines[-1] == {"text": rough, "book": "9"}
    (books / "train" / "9.TXT").write_bytes(b"another")
    assert "other settings" in refusal(*given)  # each book that is read counts for whether the data are the same


# --- One's own documents


def test_json_lines_and_plain_text(tmp_path: Path) -> None:
    texts = json_texts.documents(60, 1)
    json_texts.write(tmp_path / "a.jsonl", texts[:40])
    (tmp_path / "b.txt").write_text("\ufeff" + "\n\n \n\ufeff".join(texts[40:]) + "\n", encoding="utf-8")
    files = [tmp_path / "a.jsonl", tmp_path / "b.txt"]
    out = tmp_path / "out"
    said = prepare("own-documents", "--out", out, "--texts", *files, "--vocab-size", 320).succeeded().output
    assert "train: 54 documents, " in said and "subwords, 320 requested" in said
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


def lines(texts: List[str]) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


TEXTS = json_texts.documents(24, 5)
PLAIN = "\n\n".join(TEXTS) + "\n"
FORMS: Dict[str, Callable[[], bytes]] = {
    "a.JSONL": lambda: lines([*TEXTS, " "]).encode(),
    "windows.jsonl": lambda: ("\ufeff" + lines(TEXTS).replace("\n", "\r\n")).encode(),
    "plain.md": lambda: PLAIN.encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_ending_decides_how_a_file_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name]())
    assert list(documents_of(tmp_path / name)) == TEXTS


@pytest.mark.parametrize("bad", ['{"body": "x"}', "no JSON"])
def test_a_line_without_a_text_is_named(bad: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(TEXTS[:2]) + bad)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3: "):
        list(documents_of(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("form", ["plain.txt", "lines.jsonl"])
def test_line_ends_of_other_systems_are_line_feeds_in_training_and_in_use(form: str, tmp_path: Path) -> None:
    windows = [text.replace("\n", "\r\n") + "\r\n\ufeffend" for text in TEXTS]
    content = "\r\n\r\n".join(windows) if form == "plain.txt" else lines(windows)
    (tmp_path / form).write_text(content, encoding="utf-8", newline="")
    given = ("own-documents", "--vocab-size", 300, "--out", tmp_path / "out", "--texts", tmp_path / form)
    prepare(*given).succeeded()
    vocabulary, unit = SubwordVocabulary(tmp_path / "out" / MODEL_FILE), DocumentUnit(tmp_path / "out" / MODEL_FILE)
    kept = [json.loads(line)["text"] for line in (tmp_path / "out" / "train.jsonl").open()]
    learnt = [vocabulary.dictionary.string(tokens[:-1]) for tokens in vocabulary.encode(kept)]
    for text, pieces in zip((text for number, text in enumerate(windows) if number % HELD_OUT > 1), learnt):
        wanted = unit.encode(text.replace("\r\n", "\n").replace("\ufeff", ""))
        for ends in ("\r\n", "\r", "\n"):
            assert unit.encode(text.replace("\r\n", ends)) == pieces == wanted
