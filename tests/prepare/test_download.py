"""Downloads from a local server that breaks off, and archives that are cut off or altered."""

import gzip
import json
import random
from pathlib import Path
from typing import Iterator

import pytest

from fairseq_mega.lab.prepare import archives, download
from fairseq_mega.lab.prepare.download import sha256_of
from tests.support.breaking_server import Server

CONTENT = gzip.compress(random.Random(1).randbytes(200_000), mtime=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "WAIT", 0)
    with Server.running(CONTENT) as running:
        yield running


def test_a_download_that_breaks_off_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.breaks = [70_000, 50_000]
    assert download.fetch(server.url, tmp_path / "data.tgz") == len(CONTENT)
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=70000-", "bytes=120000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["data.tgz"]


@pytest.mark.parametrize("partial", [CONTENT, CONTENT + b"more"])
def test_a_complete_or_overlong_partial_file_ends_well(server: Server, tmp_path: Path, partial: bytes) -> None:
    (tmp_path / "data.tgz.partial").write_bytes(partial)
    download.fetch(server.url, tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT


def test_the_checksum_is_recorded_at_first_and_verified_later(server: Server, tmp_path: Path) -> None:
    record = tmp_path / "checksums.json"
    path = archives.obtain_recorded(server.url, tmp_path, record)
    entry = json.loads(record.read_text())["data.tgz"]
    assert entry["bytes"] == len(CONTENT)
    assert entry["sha256"] == sha256_of(path)
    assert archives.obtain_recorded(server.url, tmp_path, record) == path
    assert len(server.ranges) == 1  # the second time nothing was fetched

    altered = bytearray(CONTENT)
    altered[1000] ^= 1
    path.write_bytes(altered)
    with pytest.raises(download.DownloadError, match=f"expected SHA256 {entry['sha256']}, found"):
        archives.obtain_recorded(server.url, tmp_path, record)
    path.write_bytes(CONTENT[:-5])
    with pytest.raises(download.DownloadError, match=f"expected {len(CONTENT)} bytes, found {len(CONTENT) - 5}"):
        archives.obtain_recorded(server.url, tmp_path, record)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:1000], "cannot be unpacked: .* ended before the end-of-stream marker"),
        (b"<html>not found</html>", "cannot be unpacked"),
    ],
)
def test_damaged_archives_are_refused_and_not_recorded(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "data.tgz").write_bytes(content)
    record = tmp_path / "checksums.json"
    with pytest.raises(download.DownloadError, match=message):
        archives.obtain_recorded("http://example.org/data.tgz", tmp_path, record)
    assert not record.exists()
    assert (tmp_path / "data.tgz").read_bytes() == content
