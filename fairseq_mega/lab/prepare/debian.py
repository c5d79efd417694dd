"""Packages of Debian and Ubuntu with data: fetched with apt-get, unpacked with dpkg-deb, not installed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Optional, Sequence

from fairseq_mega.lab.prepare.checksums import Records, record_of
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.progress import say


class Package(NamedTuple):
    """A package that was unpacked."""

    name: str
    path: Path
    version: str


def obtain_packages(names: Sequence[str], given: Optional[Sequence[Path]], raw: Path, target: Path) -> Records:
    """Unpack packages into ``target``, which will hold ``usr/``, and return their entries in card.json.

    ``given`` are own copies of all (``NAME_VERSION_all.deb``); None fetches them into ``raw``, where a damaged one is
    removed. Raises :class:`DownloadError` when one cannot be obtained.
    """
    need_dpkg()
    files = {name: _own_copy(name, given) if given else fetch_package(name, raw) for name in names}
    records: Records = {}
    remedy = "remove it, and get a new copy" if given else "it is removed, so run this command again"
    for name, path in files.items():
        try:
            package = unpack_package(name, path, target, remedy)
        except DownloadError:
            if not given:  # an interrupted download, most likely
                path.unlink()
            raise
        records[path.name] = record_of(path, package=name, version=package.version)
    return records


def unpack_package(name: str, path: Path, target: Path, remedy: str) -> Package:
    """Unpack a package file into a folder; raises :class:`DownloadError` with the remedy where it is damaged."""
    target.mkdir(parents=True, exist_ok=True)
    done = _run(["dpkg-deb", "-x", str(path), str(target)])
    if done.returncode:
        raise DownloadError(f"dpkg-deb failed ({_last_line(done)}): {path} cannot be unpacked: {remedy}")
    return Package(name, path, _run(["dpkg-deb", "-f", str(path), "Version"]).stdout.strip())


def fetch_package(name: str, folder: Path, otherwise: str = "") -> Path:
    """Return the newest file of a package in a folder, fetched with apt-get if there is none.

    Raises :class:`DownloadError`, whose message ends with ``otherwise``, where it cannot be obtained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _newest(name, folder)
    if path is not None:
        return path
    otherwise = otherwise or f"Fetch the package {name} elsewhere and give it with --deb FILE"
    if shutil.which("apt-get") is None:
        raise DownloadError(f"the command 'apt-get' was not found: it fetches {name} on Debian and Ubuntu. {otherwise}")
    command = ["apt-get", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "download", name]
    say(f"{name}: fetching the package")
    done = _run(command, folder)
    remedy = "The package list may be missing or old: run 'apt-get update' as root, then this command again"
    if done.returncode and os.geteuid() == 0:
        say(f"{name}: apt-get could not fetch it; updating the package list (apt-get update)")
        _run(["apt-get", "update"])
        done = _run(command, folder)
        remedy = "The package list was updated already: the network or the package archive may be out of reach"
    if done.returncode:
        raise DownloadError(f"apt-get download {name} failed ({_last_line(done)}). {remedy}. {otherwise}")
    path = _newest(name, folder)
    if path is None:
        raise DownloadError(f"apt-get download {name} ended well but left no {name}_*.deb in {folder}. {otherwise}")
    return path


def need_dpkg(otherwise: str = "") -> None:
    """Raise DownloadError, whose message ends with ``otherwise``, where packages cannot be unpacked."""
    if shutil.which("dpkg-deb") is None:
        problem = "the command 'dpkg-deb' was not found: it unpacks the package; install dpkg"
        raise DownloadError(f"{problem}. {otherwise}" if otherwise else problem)


def _own_copy(name: str, given: Sequence[Path]) -> Path:
    for path in given:
        if path.name.startswith(f"{name}_"):
            if not path.is_file():
                raise DownloadError(f"--deb {path} does not exist")
            return path.resolve()
    raise DownloadError(f"--deb: none of {', '.join(path.name for path in given)} is a file {name}_VERSION.deb")


def _newest(name: str, folder: Path) -> Optional[Path]:
    files = sorted(folder.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
    return files[-1].resolve() if files else None


def _run(command: Sequence[str], folder: Optional[Path] = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
