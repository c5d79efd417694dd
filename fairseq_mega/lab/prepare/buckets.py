"""Public buckets of Google's storage: their lists of files, and downloads of many files at a time."""

import base64
import json
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from fairseq_mega.lab.prepare.checksums import check_digests
from fairseq_mega.lab.prepare.download import ATTEMPTS, fetch
from fairseq_mega.lab.prepare.progress import Progress

HOST = "https://storage.googleapis.com"
AT_A_TIME = 8


class BucketFile(NamedTuple):
    """A file of a bucket: its name there, its size, and its MD5 as hexadecimal digits."""

    name: str
    bytes: int
    md5: str


def list_files(host: str, bucket: str, folder: str, scratch: Path, remedy: str) -> List[BucketFile]:
    """Files of a folder of a bucket, by their names.

    Args:
        host: address of the storage.
        scratch: file for the pages of the list.

    Raises:
        DownloadError: with the remedy, if the list cannot be read.
    """
    found: List[BucketFile] = []
    page: Dict[str, Any] = {"nextPageToken": ""}
    while "nextPageToken" in page:
        asked = {"prefix": f"{folder}/", "fields": "items(name,size,md5Hash),nextPageToken"}
        if page["nextPageToken"]:
            asked["pageToken"] = page["nextPageToken"]
        address = f"{host}/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(asked)}"
        fetch(address, scratch, attempts=ATTEMPTS, remedy=remedy)
        page = json.loads(scratch.read_text(encoding="utf-8"))
        scratch.unlink()
        for item in page.get("items", []):
            found.append(BucketFile(item["name"], int(item["size"]), base64.b64decode(item["md5Hash"]).hex()))
    return sorted(file for file in found if not file.name.endswith("/"))


def fetch_files(host: str, bucket: str, files: Sequence[BucketFile], target: Path, remedy: str) -> None:
    """Download the files that are not in a folder yet, each under its name, and compare their checksums.

    Raises:
        DownloadError: with the remedy, for the first file that cannot be downloaded or is damaged.
    """
    missing = [file for file in files if not _is_there(file, target)]
    total, wanted = (sum(file.bytes for file in some) / 1e6 for some in (files, missing))
    progress = Progress(bucket, "MB", total, total - wanted)

    def one(file: BucketFile) -> BucketFile:
        path = target / file.name
        fetch(f"{host}/{bucket}/{urllib.parse.quote(file.name)}", path, attempts=ATTEMPTS, remedy=remedy)
        try:
            check_digests(path, {"md5": file.md5}, file.bytes, f"It is removed. {remedy}")
        except ValueError:
            path.unlink()
            raise
        return file

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        futures = [pool.submit(one, file) for file in missing]
        try:
            for future in futures:
                progress.advance(future.result().bytes / 1e6)
        finally:
            for future in futures:
                future.cancel()


def _is_there(file: BucketFile, target: Path) -> bool:
    path = target / file.name
    return path.is_file() and path.stat().st_size == file.bytes
