"""Result files: scores, the number of scored examples, and everything needed to repeat the measurement.

Every table script writes one JSON file per measured number, and every report reads the files by :func:`read_result`. So
a missing field or a score of zero examples never reaches a table.
"""

import datetime
import json
import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from fairseq_mega.lab.runs.environment import describe_hardware, git_revision, installed_versions
from fairseq_mega.lab.runs.files import written_whole

SCHEMA_VERSION = 1
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

EXTRA = "extra"  # setting of a result: options added to fairseq-train
SET = "set"  # setting of a result: changed settings of the recipe, with their texts
CARD = "card.json"  # of data, beside the results of a quick start
GIVEN = "weights"  # setting of a result: weights that were trained elsewhere
PathLike = Union[str, Path]
Result = Dict[str, Any]  # fields of a file


class ResultError(ValueError):
    """A result that is incomplete, of an unknown schema, or measured on nothing."""


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

    ``scores`` maps a metric to its value; ``settings`` distinguishes this run from its neighbours in the table;
    ``details`` are further fields (signatures, reference, ...). Raises :class:`ResultError` if nothing was scored or a
    score is not finite.
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
            raise ResultError(f"{where}: no result file of this version, the field {field!r} is missing")
        if not isinstance(result[field], kind) or isinstance(result[field], bool):
            raise ResultError(f"{where}: the field {field!r} holds {result[field]!r}, expected {kind.__name__}")
    if result["schema"] != SCHEMA_VERSION:
        raise ResultError(f"{where}: schema {result['schema']} is unknown, this version reads {SCHEMA_VERSION}")
    if result["examples"] <= 0:
        raise ResultError(f"{where}: {result['examples']} examples were scored; a result requires at least one")
    if not result["scores"]:
        raise ResultError(f"{where}: no score was recorded")
    for metric, value in result["scores"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ResultError(f"{where}: the score {metric!r} is {value!r}, expected a finite number")


def write_result(path: PathLike, result: Dict[str, Any]) -> None:
    """Check ``result`` and write it to ``path`` as JSON; the file appears whole or not at all."""
    check_result(result, str(path))
    with written_whole(Path(path)) as partial:
        partial.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_result(path: PathLike) -> Dict[str, Any]:
    """Return the checked result stored in ``path``; raises :class:`ResultError` or ``OSError``."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(f"{path}: not a JSON result file ({error})") from error
    check_result(result, str(path))
    return result


def is_trained_here(result: Result) -> bool:
    """Return whether a result comes from a training, not from given weights."""
    return GIVEN not in result["settings"]


def chosen_runs(result: Result) -> List[Result]:
    """Return the runs of a cell at its chosen learning rate, one of each seed; none of another result."""
    return [run for run in result.get("runs", ()) if run["lr"] == result["settings"]["lr"]]


def changes_of(result: Result, shown: Sequence[str] = ()) -> str:
    """Return the changes of a result's recipe as options, without those in ``shown``; empty without changes."""
    settings = result["settings"]
    words = [f"--set {key}={text}" for key, text in (settings.get(SET) or {}).items() if key not in shown]
    return " ".join([*words, *([f"-- {settings[EXTRA]}"] if settings.get(EXTRA) else [])])


def with_changes(result: Result, *shown: str) -> str:
    """Return the words of a table's row on a result's changes, except those in ``shown``, and on weights."""
    changes, given = changes_of(result, shown), result["settings"].get(GIVEN)
    return (f", weights of {given['source']}" if given else "") + (f", with {changes}" if changes else "")


def read_results(folder: PathLike, benchmark: str) -> List[Dict[str, Any]]:
    """Return the results of ``benchmark`` among ``folder/*.json``, in order of file name; or those of one file.

    Raises ``FileNotFoundError`` when the folder is missing and :class:`ResultError` for a damaged file.
    """
    return list(read_files(folder, benchmark).values())


def read_files(folder: PathLike, benchmark: str) -> Dict[Path, Result]:
    """Return the files that :func:`read_results` reads with their results; the same errors are raised."""
    folder = Path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    files = [folder] if folder.is_file() else sorted(set(folder.glob("*.json")) - {folder / CARD})
    results = {path: read_result(path) for path in files}
    return {path: result for path, result in results.items() if result["benchmark"] == benchmark}
