"""Packages of Debian and Ubuntu that hold data: fetched with apt-get, unpacked with dpkg-deb, installed nowhere."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.corpora.checksums import record_of
from fairseq_mega.corpora.download import DownloadError
from fairseq_mega.corpora.progress import say


def obtain_packages(
    names: Sequence[str], given: Optional[Sequence[Path]], raw: Path, target: Path
) -> Dict[str, Dict[str, Any]]:
    """Unpack packages into ``target``, which will hold ``usr/``, and return what SOURCE.json says of them.

    ``given`` are own copies of all (``NAME_VERSION_all.deb``); None fetches them into ``raw``. Raises
    :class:`DownloadError` when one cannot be had.
    """
    if shutil.which("dpkg-deb") is None:
        raise DownloadError("the command 'dpkg-deb' was not found: it unpacks the package; install dpkg")
    files = {name: _package_file(name, given or (), raw) for name in names}
    target.mkdir(parents=True, exist_ok=True)
    records = {}
    for name, path in files.items():
        done = _run(["dpkg-deb", "-x", str(path), str(target)])
        if done.returncode:
            remedy = "get a new copy"
            if not given:  # an interrupted download, most likely
                path.unlink()
                remedy = "it is removed: run this command again"
            raise DownloadError(f"{path} cannot be unpacked ({_last_line(done)}); {remedy}")
        version = _run(["dpkg-deb", "-f", str(path), "Version"]).stdout.strip()
        records[path.name] = record_of(path, package=name, version=version)
    return records


def _package_file(name: str, given: Sequence[Path], raw: Path) -> Path:
    for path in given:
        if path.name.startswith(f"{name}_"):
            if not path.is_file():
                raise DownloadError(f"--deb {path} does not exist")
            return path.resolve()
    if given:
        raise DownloadError(f"--deb: none of {', '.join(path.name for path in given)} is a file {name}_VERSION.deb")
    raw.mkdir(parents=True, exist_ok=True)
    return _newest(name, raw) or _fetch(name, raw)


def _newest(name: str, raw: Path) -> Optional[Path]:
    files = sorted(raw.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
    return files[-1].resolve() if files else None


def _fetch(name: str, raw: Path) -> Path:
    own_copy = f"Fetch the package {name} elsewhere and give it with --deb FILE"
    if shutil.which("apt-get") is None:
        raise DownloadError(f"the command 'apt-get' was not found: it fetches {name} on Debian and Ubuntu. {own_copy}")
    command = ["apt-get", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "download", name]
    say(f"{name}: fetching the package")
    done = _run(command, raw)
    remedy = "The package list may be missing or old: run 'apt-get update' as root, then this command again"
    if done.returncode and os.geteuid() == 0:
        say(f"{name}: apt-get could not fetch it; updating the package list (apt-get update)")
        _run(["apt-get", "update"])
        done = _run(command, raw)
        remedy = "The package list was updated already: the network or the package archive may be out of reach"
    if done.returncode:
        raise DownloadError(f"apt-get download {name} failed ({_last_line(done)}). {remedy}. {own_copy}")
    path = _newest(name, raw)
    if path is None:
        raise DownloadError(f"apt-get download {name} ended well but left no {name}_*.deb in {raw}. {own_copy}")
    return path


def _run(command: Sequence[str], folder: Optional[Path] = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
