"""Downloads from a local server that breaks off, and archives that are damaged."""

import gzip
import io
import random
import tarfile
from pathlib import Path
from typing import Callable, Iterator

import pytest

from fairseq_mega.lab.prepare import archives, download, toy_data
from tests.support.breaking_server import Server

CONTENT = gzip.compress(random.Random(1).randbytes(200_000), mtime=0)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server.running(CONTENT) as running:
        yield running


def test_a_download_that_breaks_off_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.breaks = [70_000, 50_000]
    for done in (70_000, 120_000):
        with pytest.raises(download.DownloadError, match=f"expected {len(CONTENT)} bytes, found {done}"):
            download.fetch(server.url, tmp_path / "data.tgz")
        assert [path.name for path in tmp_path.iterdir()] == ["data.tgz.partial"]
    download.fetch(server.url, tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=70000-", "bytes=120000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["data.tgz"]


def test_an_overlong_partial_file_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.tgz.partial").write_bytes(CONTENT + b"more")
    with pytest.raises(download.DownloadError):
        download.fetch(server.url, tmp_path / "data.tgz")
    download.fetch(server.url, tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "damage", [lambda it: it[:-20], lambda it: b"<html>not found</html>", lambda it: it[:-8] + bytes(8)]
)
def test_damaged_archives_are_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Cut off, something else, or with another checksum of gzip's, which is at the end."""
    path, packed = tmp_path / "data.tgz", io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        toy_data.add_file(archive, "file", random.Random(1).randbytes(200_000))
    path.write_bytes(packed.getvalue())
    assert [name for name, _ in archives.read_tar(path, bool)] == ["file"]
    path.write_bytes(damage(packed.getvalue()))
    with pytest.raises(download.DownloadError, match="data.tgz cannot be unpacked"):
        list(archives.read_tar(path, bool))
