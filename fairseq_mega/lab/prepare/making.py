"""Make a data set in its folder, or find it there, and write SOURCE.json."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from fairseq_mega.lab.prepare.checksums import record_of
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.fingerprints import digest_of_data

NO_SETTINGS = {"dataset", "out", "workers", "no_download", "venv", "skip_setup"}  # the result does not depend on them


def settings_of(dataset: Dataset, args: argparse.Namespace, toy: Optional[Path] = None) -> Dict[str, Any]:
    """Return the options that the result depends on as JSON values.

    A file counts by its name, its size and both of its ends, a folder by its path.

    Args:
        toy: folder of made-up data, which are the same each time.
    """
    given = {**vars(args), **dataset.reads(args)}
    settings: Dict[str, Any] = {"dataset": dataset.name}
    for name, value in sorted(given.items()):
        is_toy = isinstance(value, Path) and toy in (value, *value.parents)
        if name not in NO_SETTINGS and value is not None and not is_toy:
            settings[name] = [_setting(entry) for entry in value] if isinstance(value, list) else _setting(value)
    return settings


def _setting(value: Any) -> Any:
    if not isinstance(value, Path):
        return value
    if value.is_dir():
        return {"folder": str(value.resolve())}
    if not value.exists():
        return {"file": value.name, "bytes": None}
    return {"file": value.name, "bytes": value.stat().st_size, "digest": digest_of_data([value], value.parent)}


def make(
    dataset: Dataset,
    args: argparse.Namespace,
    provenance: Callable[[], Dict[str, Any]],
    toy: Optional[Path] = None,
) -> None:
    """Make a data set in ``args.out`` unless it is there.

    Args:
        provenance: returns entries of SOURCE.json on the command and the versions that made it.
        toy: as for :func:`settings_of`.

    Raises:
        OSError, ValueError, StageError: whose messages are for the user.
    """
    with WorkFolder(args.out, settings_of(dataset, args, toy), dataset.leaves) as work:
        if work.finished:
            work.check_files()
            say(f"{args.out}: {dataset.name} is there already, made with these settings; nothing to do")
        elif work.built:
            work.publish()
        else:
            dataset.check(args)
            report = dataset.make(args, work)
            work.publish({**describe(dataset, report, work), **provenance()})


def describe(dataset: Dataset, report: Report, work: WorkFolder) -> Dict[str, Any]:
    """Return the entries of SOURCE.json on the data set; reads every file for its checksum."""
    files: Dict[str, Path] = {}
    for root, top in [(work.output, work.output), *((work.parts, work.parts / name) for name in report.parts)]:
        files.update({path.relative_to(root).as_posix(): path for path in top.rglob("*") if path.is_file()})
    return {
        "dataset": dataset.name,
        "origin": report.origin,
        "notes": report.notes,
        "splits": report.splits,
        "inputs": report.inputs,
        "files": {name: record_of(path) for name, path in sorted(files.items())},
    }
