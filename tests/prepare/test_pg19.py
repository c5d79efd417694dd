"""PG-19 out of a tiny bucket on a local server, or out of a folder."""

import base64
import gzip
import hashlib
import http.server
import json
import threading
import urllib.parse
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare import download
from fairseq_mega.lab.prepare.language_modeling import pg19
from fairseq_mega.lab.prepare.layouts import WORDS_FILE, words_of
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
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
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


def test_books_are_read_whatever_their_files_are(books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rough, model = "Größe, \r\nund ein Ende.\n", books.parent / pg19.VOCABULARY  # with a line end that has to stay
    (books / "train" / "9.Txt.GZ").write_bytes(gzip.compress(rough.encode("utf-8-sig")))
    monkeypatch.setattr(pg19, "BOOKS", {"train": 6, "valid": 2, "test": 3})
    given = ("pg19", "--out", tmp_path / "out", "--books", books, "--vocabulary", model)
    prepare(*given).succeeded()
    lines = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert len(lines) == COUNTS["train"] + 1 and lines[-1] == {"text": rough, "book": "9"}
    (books / "train" / "9.Txt.GZ").write_bytes(gzip.compress(b"another"))
    assert "other settings" in refusal(*given)  # each book that is read counts for whether the data are the same
