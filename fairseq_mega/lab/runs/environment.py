"""The versions, the commit and the machine that a result was measured with."""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Iterable, Optional, Union

import fairseq_mega
from fairseq_mega.lab.runs.options import usable_cores

PACKAGES = (
    "fairseq_mega",
    "torch",
    "numpy",
    "fairseq",
    "fairseq-fixed",
    "sacrebleu",
    "sacremoses",
    "subword-nmt",
    "sentencepiece",
)


def installed_versions(packages: Iterable[str] = PACKAGES) -> Dict[str, str]:
    """Return the version of Python and of each of ``packages`` that is installed."""
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    # Run from a checkout that is not installed, this package has a version but no metadata.
    versions.setdefault("fairseq_mega", fairseq_mega.__version__)
    return versions


def git_revision(folder: Optional[Union[str, Path]] = None) -> Optional[str]:
    """Return the commit checked out in ``folder`` (default: the folder of this package), or ``None``.

    The suffix ``-modified`` means that tracked files differ from the commit; ``None`` means that the code was not run
    from a git checkout with at least one commit.
    """
    where = str(folder if folder is not None else Path(__file__).resolve().parent)

    def git(*arguments: str) -> Optional[str]:
        try:
            done = subprocess.run(["git", "-C", where, *arguments], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy inside some other project's checkout must not report that project's commit.
    if git("ls-files", "--error-unmatch", ".") is None:
        return None
    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("-modified" if git("status", "--porcelain", "--untracked-files=no") else "")


def describe_hardware() -> Dict[str, Any]:
    """Return processor model, usable cores, the compiled kernels' level of instructions (None without kernels), memory
    in GiB and the names of the visible GPUs.
    """
    import torch  # reading results needs no torch

    from fairseq_mega.ops.common import native

    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return {
        "processor": _processor_model(),
        "cores": usable_cores(),
        "cpu_level": native.cpu_level(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(number) for number in gpus],
    }


def _processor_model() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1).strip() if match else (platform.processor() or platform.machine())
