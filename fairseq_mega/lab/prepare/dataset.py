"""The description of a data set for fairseq-mega-prepare, its making in a folder, and the report for card.json."""

import argparse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.data.card import labelled_text
from fairseq_mega.data.class_folders import files_below, is_hidden
from fairseq_mega.lab.prepare.download import Records, record_of
from fairseq_mega.lab.prepare.layouts import Layout
from fairseq_mega.lab.prepare.options import OUT, SMOKE, Option, check_paths
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.fingerprints import digest_of_data

ARCHIVES = "archives"  # in --out, unless --archives is passed; files may be downloaded there
NO_SETTINGS = {"dataset", "out", "workers", "no_download"}  # the result does not depend on them
MOST_BYTES = 1 << 30  # bytes of all files of an option that are read for their digest
MOST_FILES = 10_000  # files of a folder that are read for it; of more files names and sizes count


@dataclass
class Report:
    """The report on a data set that was made, for card.json."""

    origin: str  # of the examples, in a sentence
    splits: Dict[str, Dict[str, Any]]  # per split the number of examples, the labels and further counts
    inputs: Records = field(default_factory=dict)  # files that were read
    notes: List[str] = field(default_factory=list)  # differences from the published data
    parts: Tuple[str, ...] = ()  # of the work folder that belong to the data set
    card: Dict[str, str] = field(default_factory=dict)  # settings for a training that no file of the data set has


class Scored(NamedTuple):
    """Size of the part of a data set that is scored."""

    size: int  # number of examples, or of tokens of a text
    mean_length: Optional[float] = None  # of the examples, in positions; None if all have the same, or it is unknown


@dataclass(frozen=True)
class Dataset:
    """A data set of the command: everything that is known of it."""

    name: str
    details: str  # sizes, times and layout, for its --help
    options: Tuple[Option, ...]  # beside --out and --smoke
    make: Callable[[argparse.Namespace, WorkFolder], Report]  # writes the data set below work.output, or as parts
    # Files and values that the result depends on and that no option names as they are, by a name for each.
    reads: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda args: {}
    # By option, patterns of the files that are read in its folder; without patterns all files.
    members: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    fetched: bool = True  # whether the command needs no options for its sources
    leaves: Tuple[str, ...] = ()  # names of all results, if the folder may contain other files
    layout: Layout = Layout()  # files of the finished folder that a training reads
    # Options of the command with the value of an option of the task that reads the data.
    task_options: Mapping[str, str] = field(default_factory=dict)
    # Size of a model's vocabulary, with special tokens and fairseq's padding; None for bytes.
    vocab_size: Callable[[argparse.Namespace], Optional[int]] = lambda args: None
    # On data in a folder, by the examples of Examined.
    remarks: Callable[[Path, Mapping[str, Mapping[str, int]]], List[str]] = lambda folder, examples: []
    scored: Optional[Scored] = None  # the part that papers score, of data made without options
    own: bool = False  # from the user's sources

    @property
    def toy(self) -> Optional[Callable[[Path], List[str]]]:
        """Return what writes toy data for --smoke, which are compared with no published count."""
        from fairseq_mega.lab.prepare.toy_data import TOYS

        return TOYS.get(self.name)

    def add_all_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its own options and those of every data set to a parser."""
        for add in (OUT, *self.options, *([] if self.toy is None else [SMOKE])):
            add(parser)


def counted(labels: Iterable[str], names: Optional[Sequence[str]] = None) -> Dict[str, Any]:
    """Return the number of examples and of each label for card.json; ``names`` orders the labels, which are sorted."""
    found = Counter(labels)
    order = sorted(found) if names is None else names
    return {"examples": found.total(), "labels": {name: found[name] for name in order}}


# --- Making


def settings_of(dataset: Dataset, args: argparse.Namespace, toy: Optional[Path] = None) -> Dict[str, Any]:
    """Return the options that the result depends on as JSON values.

    A file is recorded by its name, its size and its content, a folder by its path and its files. Very large files are
    recorded by their ends. The folder ``toy`` has invented data, which are the same each time.
    """
    settings: Dict[str, Any] = {"dataset": dataset.name}
    for name, value in sorted({**vars(args), **dataset.reads(args)}.items()):
        is_toy = isinstance(value, Path) and toy in (value, *value.parents)
        if name not in NO_SETTINGS and value is not None and not is_toy:
            patterns = () if name == ARCHIVES else dataset.members.get(name, ("*",))
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
        else:
            check_paths(args)
            report = dataset.make(args, work)
            for split, counts in report.splits.items():
                if not next(iter(counts.values())):
                    raise ValueError(f"no example is left for {split}: give more data")
            work.publish({**describe(dataset, report, work), **provenance()}, report.parts)


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
