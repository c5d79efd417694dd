"""Make a data set in its folder, or find it there, and write SOURCE.json."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict

from fairseq_mega.lab.prepare.checksums import record_of
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.work_folder import WorkFolder

NO_SETTINGS = {"dataset", "out", "workers"}  # the result does not depend on them


def settings_of(args: argparse.Namespace) -> Dict[str, Any]:
    """Return the options that the result depends on as JSON values: a file by name and size, a folder by its path."""
    settings: Dict[str, Any] = {"dataset": args.dataset}
    for name, value in sorted(vars(args).items()):
        if name not in NO_SETTINGS and value is not None:
            settings[name] = [_setting(entry) for entry in value] if isinstance(value, list) else _setting(value)
    return settings


def _setting(value: Any) -> Any:
    if not isinstance(value, Path):
        return value
    if value.is_dir():
        return {"folder": str(value.resolve())}
    return {"file": value.name, "bytes": value.stat().st_size if value.exists() else None}


def make(dataset: Dataset, args: argparse.Namespace, provenance: Callable[[], Dict[str, Any]]) -> None:
    """Make a data set in ``args.out`` unless it is there.

    ``provenance`` returns entries of SOURCE.json on the command and the versions that made it. Raises OSError and
    ValueError, whose messages are for the user.
    """
    with WorkFolder(args.out, settings_of(args)) as work:
        if work.finished:
            say(f"{args.out}: {dataset.name} is there already, made with these settings; nothing to do")
        elif work.built:
            work.publish()
        else:
            dataset.check(args)
            report = dataset.make(args, work)
            work.publish({**describe(dataset, report, work.output), **provenance()})


def describe(dataset: Dataset, report: Report, output: Path) -> Dict[str, Any]:
    """Return the entries of SOURCE.json on the data set; reads every file for its checksum."""
    files = sorted(path for path in output.rglob("*") if path.is_file())
    return {
        "dataset": dataset.name,
        "origin": report.origin,
        "notes": report.notes,
        "splits": report.splits,
        "inputs": report.inputs,
        "files": {path.relative_to(output).as_posix(): record_of(path) for path in files},
    }
