"""Make a data set in its folder, or find it there, and write card.json."""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

from fairseq_mega.data.card import labelled_text
from fairseq_mega.data.class_folders import files_below, is_hidden
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.download import record_of
from fairseq_mega.lab.prepare.options import check_paths
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.fingerprints import digest_of_data

NO_SETTINGS = {"dataset", "out", "workers", "no_download", "venv", "skip_setup"}  # the result does not depend on them
FETCHED = "archives"  # a folder whose files may be downloaded there, and are compared with checksums
MOST_BYTES = 1 << 30  # bytes of all files of an option that are read for their digest
MOST_FILES = 10_000  # files of a folder that are read for it; of more files names and sizes count


def settings_of(dataset: Dataset, args: argparse.Namespace, toy: Optional[Path] = None) -> Dict[str, Any]:
    """Return the options that the result depends on as JSON values.

    A file is recorded by its name, its size and its content, a folder by its path and its files. Very large files are
    recorded by their ends. The folder ``toy`` has invented data, which are the same each time.
    """
    settings: Dict[str, Any] = {"dataset": dataset.name}
    for name, value in sorted({**vars(args), **dataset.reads(args)}.items()):
        is_toy = isinstance(value, Path) and toy in (value, *value.parents)
        if name not in NO_SETTINGS and value is not None and not is_toy:
            patterns = () if name == FETCHED else dataset.members.get(name, ("*",))
            listed = isinstance(value, list)
            settings[name] = [_setting(entry, patterns) for entry in value] if listed else _setting(value, patterns)
    return settings


def _setting(value: Any, patterns: Sequence[str]) -> Any:
    if not isinstance(value, Path):
        return value
    if not value.exists():
        return {"file": value.name, "bytes": None}
    if not value.is_dir():
        return {"file": value.name, "bytes": value.stat().st_size, "contents": _contents([value], value.parent)}
    places = sorted({path for pattern in patterns for path in value.glob(pattern) if not is_hidden(path.name)})
    files = [file for place in places for file in (files_below(place)[0] if place.is_dir() else [place])]
    listing = {"files": len(files), "contents": _contents(files, value)} if patterns else {}
    return {"folder": str(value.resolve()), **listing}


def _contents(files: Sequence[Path], root: Path) -> str:
    return digest_of_data(files, root, MOST_BYTES // (2 * len(files)) if 0 < len(files) <= MOST_FILES else 0)


def make(
    dataset: Dataset,
    args: argparse.Namespace,
    provenance: Callable[[], Dict[str, Any]],
    toy: Optional[Path] = None,
) -> None:
    """Make a data set in ``args.out`` unless it is there.

    Args:
        provenance: returns entries of card.json on the command and the versions that made it.
        toy: as for :func:`settings_of`.

    Raises:
        OSError, ValueError, StageError: with messages for the user.
    """
    work = WorkFolder(args.out, settings_of(dataset, args, toy), dataset.leaves)
    with work.held():
        if work.finished:
            print_line(f"{args.out}: {dataset.name} is there already, made with these settings; nothing to do")
        elif work.built:
            work.publish()
        else:
            check_paths(args)
            dataset.check(args)
            report = dataset.make(args, work)
            for split, counts in report.splits.items():
                if not next(iter(counts.values())):
                    raise ValueError(f"no example is left for {split}: give more data")
            work.publish({**describe(dataset, report, work), **provenance()})


def describe(dataset: Dataset, report: Report, work: WorkFolder) -> Dict[str, Any]:
    """Return the entries of card.json on the data set; reads every file for its checksum.

    The settings that a training reads are among them, see :mod:`fairseq_mega.data.card`.
    """
    files: Dict[str, Path] = {}
    for root, top in [(work.output, work.output), *((work.parts, work.parts / name) for name in report.parts)]:
        files.update({path.relative_to(root).as_posix(): path for path in top.rglob("*") if path.is_file()})
    return {
        "kind": next(iter(dataset.layout.tasks), ""),
        "dataset": dataset.name,
        **(labelled_text(work.settings) if "lra-text" in dataset.layout.tasks else {}),
        **report.card,
        "origin": report.origin,
        "notes": report.notes,
        "splits": report.splits,
        "inputs": report.inputs,
        "files": {name: record_of(path) for name, path in sorted(files.items())},
    }
