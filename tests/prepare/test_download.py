"""Downloads from a local server that breaks off, and archives that are cut off or altered."""

import gzip
import json
import random
from pathlib import Path
from typing import Iterator

import pytest

from fairseq_mega.lab.prepare import archives, download
from fairseq_mega.lab.prepare.checksums import records_of, sha256_of
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


def test_a_server_without_ranges_starts_afresh(server: Server, tmp_path: Path) -> None:
    server.breaks = [70_000]
    server.ignore_ranges = True
    download.fetch(server.url, tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize("partial", [CONTENT, CONTENT + b"more"])
def test_a_complete_or_overlong_partial_file_ends_well(server: Server, tmp_path: Path, partial: bytes) -> None:
    (tmp_path / "data.tgz.partial").write_bytes(partial)
    download.fetch(server.url, tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT


def test_a_transfer_that_never_completes_names_both_sizes_and_keeps_what_came(server: Server, tmp_path: Path) -> None:
    server.breaks = [10, 0, 0]
    with pytest.raises(download.DownloadError, match=f"expected {len(CONTENT)} bytes, found 10.* name it {tmp_path}"):
        download.fetch(server.url, tmp_path / "data.tgz", attempts=3)
    assert (tmp_path / "data.tgz.partial").read_bytes() == CONTENT[:10]
    assert not (tmp_path / "data.tgz").exists()


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (503, 3)])
def test_server_errors_are_named_and_only_passing_ones_tried_again(
    server: Server, tmp_path: Path, status: int, requests: int
) -> None:
    server.status = status
    with pytest.raises(download.DownloadError, match=f"HTTP status {status}"):
        download.fetch(server.url, tmp_path / "data.tgz", attempts=3)
    assert len(server.ranges) == requests


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
        (CONTENT[:500] + bytes(100) + CONTENT[600:], "cannot be unpacked"),
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


def test_without_permission_nothing_is_downloaded(server: Server, tmp_path: Path) -> None:
    with pytest.raises(download.DownloadError, match="--no-download was passed"):
        archives.obtain_recorded(server.url, tmp_path, tmp_path / "checksums.json", allow_download=False)
    assert server.ranges == []


def test_files_that_share_a_name_are_recorded_apart(tmp_path: Path) -> None:
    files = {"train": tmp_path / "a" / "text", "valid": tmp_path / "b" / "text", "test": tmp_path / "b" / "more"}
    for number, path in enumerate(files.values()):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x" * number)
    found = {name: record["bytes"] for name, record in records_of(files.values()).items()}
    assert found == {str(files["train"]): 0, str(files["valid"]): 1, "more": 2}
    assert set(records_of([files["test"], files["test"]])) == {"more"}
