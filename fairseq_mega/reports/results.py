"""Result files: what was measured, how many examples were scored, and everything needed to repeat it.

Every table script writes one JSON file per measured number and every report reads them back through
:func:`read_result`, so that a missing field or a score over zero examples never reaches a table.
"""

import datetime
import json
import math
import os
import platform
import re
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Union

import fairseq_mega

SCHEMA_VERSION = 1
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
REQUIRED_FIELDS = {
    "schema": int,
    "benchmark": str,
    "label": str,
    "scores": dict,
    "examples": int,
    "command": str,
    "versions": dict,
    "hardware": dict,
    "date": str,
}

PathLike = Union[str, Path]


class ResultError(ValueError):
    """A result that is incomplete, of an unknown schema, or measured on nothing."""


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


def git_revision(folder: Optional[PathLike] = None) -> Optional[str]:
    """Return the commit checked out in ``folder`` (default: the folder of this package), or ``None``.

    The suffix ``-modified`` says that tracked files differ from the commit. ``None`` means that the code
    was not run from a git checkout with at least one commit.
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
    """Return processor model, usable cores, memory in GiB and the names of the visible GPUs."""
    hardware: Dict[str, Any] = {
        "processor": _processor_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "gpus": [],
    }
    try:
        import torch
    except ImportError:
        return hardware
    if torch.cuda.is_available():
        hardware["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return hardware


def _processor_model() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1).strip() if match else (platform.processor() or platform.machine())


def _memory_gib() -> Optional[float]:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def make_result(
    benchmark: str,
    label: str,
    scores: Dict[str, float],
    examples: int,
    command: str,
    seed: Optional[int] = None,
    settings: Optional[Dict[str, Any]] = None,
    **details: Any,
) -> Dict[str, Any]:
    """Return a complete result: the given measurements plus revision, versions, hardware and date (UTC).

    ``scores`` maps a metric to its value; ``settings`` holds what tells this run from its neighbours in the
    table; ``details`` are further fields (signatures, reference, ...). Raises :class:`ResultError` when
    nothing was scored or a score is not finite.
    """
    result = {
        "schema": SCHEMA_VERSION,
        "benchmark": benchmark,
        "label": label,
        "scores": dict(scores),
        "examples": examples,
        "seed": seed,
        "settings": dict(settings or {}),
        "command": command,
        "git_revision": git_revision(),
        "versions": installed_versions(),
        "hardware": describe_hardware(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **details,
    }
    check_result(result, f"result {label!r}")
    return result


def check_result(result: Any, where: str) -> None:
    """Raise :class:`ResultError`, naming ``where`` and the field, unless ``result`` is complete and scored."""
    if not isinstance(result, dict):
        raise ResultError(f"{where}: a JSON object was expected, found {type(result).__name__}")
    for field, kind in REQUIRED_FIELDS.items():
        if field not in result:
            raise ResultError(f"{where}: the field {field!r} is missing; write the file again with this version")
        if not isinstance(result[field], kind) or isinstance(result[field], bool):
            raise ResultError(f"{where}: the field {field!r} holds {result[field]!r}, expected {kind.__name__}")
    if result["schema"] != SCHEMA_VERSION:
        raise ResultError(f"{where}: schema {result['schema']} is unknown, this version reads {SCHEMA_VERSION}")
    if result["examples"] <= 0:
        raise ResultError(f"{where}: {result['examples']} examples were scored; a score over nothing is no result")
    if not result["scores"]:
        raise ResultError(f"{where}: no score was recorded")
    for metric, value in result["scores"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ResultError(f"{where}: the score {metric!r} is {value!r}, expected a finite number")


def write_result(path: PathLike, result: Dict[str, Any]) -> None:
    """Check ``result`` and write it to ``path`` as JSON; the file appears whole or not at all."""
    path = Path(path)
    check_result(result, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=2, ensure_ascii=False)
            stream.write("\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_result(path: PathLike) -> Dict[str, Any]:
    """Return the checked result stored in ``path``; raises :class:`ResultError` or ``OSError``."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(f"{path}: not a JSON result file ({error})") from error
    check_result(result, str(path))
    return result


def read_results(folder: PathLike, benchmark: str) -> List[Dict[str, Any]]:
    """Return the results of ``benchmark`` among ``folder/*.json``, in order of file name.

    Raises ``FileNotFoundError`` when the folder is missing and :class:`ResultError` for a damaged file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"the results folder {folder} does not exist; run the table's script first")
    results = (read_result(path) for path in sorted(folder.glob("*.json")))
    return [result for result in results if result["benchmark"] == benchmark]
