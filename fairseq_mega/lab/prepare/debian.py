"""Packages of Debian and Ubuntu with data: fetched with apt-get, unpacked with dpkg-deb, not installed."""

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.download import DownloadError, Records, record_of
from fairseq_mega.lab.prepare.options import file_option, folder_option, one_of
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder

PACKAGE_OPTIONS = one_of(
    file_option("--deb", nargs="+", text="your copies of the packages (default: apt-get download fetches them)"),
    folder_option("--packages", text="folder with the unpacked packages (it holds usr/)"),
)


def unpacked(args: argparse.Namespace, work: WorkFolder, names: Sequence[str]) -> Tuple[Path, Records]:
    """Return the folder that packages are unpacked in, which holds ``usr/``, and their entries in card.json.

    Raises :class:`DownloadError` when one cannot be obtained; a damaged one that was fetched is removed.
    """
    if args.packages is not None:
        return args.packages, {}
    need_dpkg()
    target, records = work.scratch / "packages", {}
    for name in names:
        own = [path for path in args.deb or () if path.name.startswith(f"{name}_")]
        if args.deb and not own:
            raise DownloadError(f"--deb: none of {', '.join(map(str, args.deb))} is a file {name}_VERSION.deb")
        path = own[0].resolve() if own else fetch_package(name, work.raw)
        try:
            _run(["dpkg-deb", "-x", str(path), str(target)])
            version = _run(["dpkg-deb", "-f", str(path), "Version"])
        except DownloadError:
            if not own:  # an interrupted download, most likely
                path.unlink()
            raise
        records[path.name] = record_of(path, package=name, version=version)
    return target, records


def fetch_package(name: str, folder: Path) -> Path:
    """Return the newest file of a package in a folder, fetched with apt-get if there is none.

    Raises :class:`DownloadError` where it cannot be obtained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not _files(name, folder):
        otherwise = "Give a copy of it to fairseq-mega-prepare with --deb FILE, or the quick start a --text of your own"
        if shutil.which("apt-get") is None:
            raise DownloadError(f"'apt-get' was not found: it fetches {name} on Debian and Ubuntu. {otherwise}")
        print_line(f"{name}: fetching the package")
        command = ["apt-get", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "download", name]
        _run(command, folder, f". If the package list is missing or old, run 'apt-get update' as root. {otherwise}")
    return _files(name, folder)[-1].resolve()


def need_dpkg() -> None:
    """Raise DownloadError where packages cannot be unpacked."""
    if shutil.which("dpkg-deb") is None:
        raise DownloadError("the command 'dpkg-deb' was not found: it unpacks the package; install dpkg")


def _files(name: str, folder: Path) -> List[Path]:
    return sorted(folder.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)


def _run(command: Sequence[str], folder: Optional[Path] = None, remedy: str = "") -> str:
    """Return the output of a command; raise :class:`DownloadError` with its last line and the remedy if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise DownloadError(f"{' '.join(command)} failed ({''.join(output) or done.returncode}){remedy}")
    return done.stdout.strip()
