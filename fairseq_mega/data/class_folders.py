"""Examples as files in a folder for each class: list the files of each class, and count the ignored files."""

import os
from collections import Counter
from pathlib import Path
from typing import (
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Sequence,
    Set,
    Tuple,
)

from .file_kinds import FileKind, kind_of_file

SPLITS = frozenset(("train", "valid", "val", "test"))


class Wanted(NamedTuple):
    """Description of the files of a class.

    Attributes:
        things: name of the files in messages, in the plural.
        endings: endings of names, in lower case, that are accepted without opening the file.
        is_wanted: returns whether a file with another name is accepted by its kind.
    """

    things: str
    endings: Tuple[str, ...]
    is_wanted: Callable[[FileKind], bool]


class LeftOut(NamedTuple):
    """Ignored files of some classes.

    Attributes:
        endings: number of files with each ending; of hidden files only those with the ending of a class's files.
        deeper: number of files in each folder below the folder of a class; in hidden ones counted like hidden files.
    """

    endings: "Counter[str]"
    deeper: Dict[str, int]

    def described(self, most: int = 5) -> str:
        """Describe the files; "" for none."""
        parts = [f"{count:,} {ending}" for ending, count in self.endings.most_common()]
        if self.deeper:
            places = listed(list(self.deeper), most)
            parts.append(f"{sum(self.deeper.values()):,} in folders one level deeper ({places})")
        return ", ".join(parts)


def class_names(folder: Path, things: str = "images") -> List[str]:
    """Return the sorted names of the folders in a folder, without hidden ones; ``things`` are their examples.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: if the folder holds no folders, or a name is of several lines.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist: give a folder with one folder of {things} per class")
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not is_hidden(entry.name) and entry.is_dir())
    if not names:
        raise ValueError(f"{folder} holds no folders: give a folder with one folder of {things} per class")
    for name in names:
        if "\n" in name:
            raise ValueError(f"{folder} holds a folder {name!r}, and names of classes have one line: rename the folder")
    return names


def check_labels(folder: Path, labels: Sequence[str], things: str = "images") -> None:
    """Raise a ValueError if the folders of a folder are no labels, or fewer than two."""
    if len(labels) < 2:
        raise ValueError(f"--dir {folder}: two folders of {things} LABEL/FILE at least are needed, found {labels}")
    if SPLITS.issuperset(label.lower() for label in labels):
        raise ValueError(
            f"--dir {folder}: its folders {listed(labels)} are parts of a data set, not labels: make a folder for "
            f"each label, with its {things}"
        )


def class_files(folder: Path, classes: Sequence[str], wanted: Wanted) -> Tuple[Dict[str, List[str]], LeftOut]:
    """Return the sorted names of the files of each class, and the ignored files.

    Each folder is listed once; only files with unknown endings are opened.

    Raises:
        ValueError: if a class has no files, or a link is broken.
    """
    found: Dict[str, List[str]] = {}
    left_out = LeftOut(Counter(), {})
    _beside_classes(folder, set(classes), wanted, left_out)
    for name in classes:
        others = LeftOut(Counter(), {})
        found[name] = files_of(folder / name, wanted, others)
        if not found[name]:
            there = others.described()
            instead = f", but {there}" if there else ""
            raise ValueError(
                f"{folder / name} holds no {wanted.things} ({', '.join(wanted.endings)}){instead}: the files of a "
                f"class must lie directly in its folder; convert or move the files, or move the folder away"
            )
        left_out.endings.update(others.endings)
        left_out.deeper.update({f"{name}/{below}": count for below, count in others.deeper.items()})
    return found, left_out


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names as a text, and the number of further names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ending_of(name: str) -> str:
    """Return the ending of a file's name in lower case, or "without an ending"."""
    return os.path.splitext(name)[1].lower() or "without an ending"


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden."""
    return name.startswith(".")


def files_of(folder: Path, wanted: Wanted, others: LeftOut) -> List[str]:
    """Return the sorted names of the files of a class, and add the ignored files to ``others``."""
    taken = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                count = _wanted_at(entry, wanted)
                if count and entry.is_dir():
                    others.deeper[entry.name] = count
                elif count:
                    others.endings[f"hidden {ending_of(entry.name)}"] += count
                continue
            if entry.is_symlink():
                refuse_broken_link(entry.path)
            if entry.name.lower().endswith(wanted.endings) and not entry.is_dir(follow_symlinks=False):
                taken.append(entry.name)
            elif entry.is_dir():
                count = sum(len(files) for _, files, _ in walk_once(Path(entry.path)))
                if count:
                    others.deeper[entry.name] = count
            elif _is_wanted(Path(entry.path), wanted):
                taken.append(entry.name)
            else:
                others.endings[ending_of(entry.name)] += 1
    return sorted(taken)


def walk_once(folder: Path) -> Iterator[Tuple[Path, List[str], List[str]]]:
    """Yield a folder and the folders below it, and for each the sorted names of its files and its hidden folders.

    Linked folders are followed after the others, each real folder once; hidden folders are not entered.

    Raises:
        OSError: if a folder cannot be read.
    """
    seen, waiting = set(), [str(folder)]
    while waiting:
        for place, folders, names in os.walk(waiting.pop(0), onerror=_fail):
            hidden = [name for name in folders if is_hidden(name)]
            folders[:] = sorted({*folders}.difference(hidden))
            if os.path.realpath(place) in seen:
                folders.clear()
                continue
            seen.add(os.path.realpath(place))
            waiting += filter(os.path.islink, (os.path.join(place, name) for name in folders))
            yield Path(place), sorted(names), hidden


def _fail(error: OSError) -> NoReturn:
    raise error


def files_below(folder: Path) -> Tuple[List[Path], List[Path]]:
    """Return the sorted files below a folder, as :func:`walk_once` finds them, and the hidden ones.

    Raises:
        OSError: if a folder cannot be read.
        ValueError: if a link is broken and not hidden.
    """
    found: List[Path] = []
    hidden: List[Path] = []
    for place, names, hidden_folders in walk_once(folder):
        for name in names:
            (hidden if is_hidden(name) else found).append(place / name)
        for name in hidden_folders:
            hidden += [Path(top, file) for top, _, files in os.walk(place / name) for file in files]
    for path in found:
        refuse_broken_link(str(path))
    return sorted(found), sorted(hidden)


def refuse_broken_link(path: str) -> None:
    """Raise a ValueError unless a path leads to a file or a folder."""
    if not os.path.exists(path):
        raise ValueError(f"{path} is a broken link: correct it, or remove it")


def _is_wanted(path: Path, wanted: Wanted) -> bool:
    try:
        kind = kind_of_file(path)
    except OSError:
        return False
    return kind is not None and wanted.is_wanted(kind)


def _wanted_at(entry: "os.DirEntry[str]", wanted: Wanted) -> int:
    """Return the number of files with a wanted ending below a hidden folder, or 1 for such a file."""
    names = [name for _, _, files in os.walk(entry.path) for name in files] if entry.is_dir() else [entry.name]
    return sum(name.lower().endswith(wanted.endings) for name in names)


def _beside_classes(folder: Path, classes: Set[str], wanted: Wanted, left_out: LeftOut) -> None:
    """Count files beside the folders of classes, and files in hidden folders whose endings a class accepts."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in classes:
                continue
            if entry.is_dir():
                count = _wanted_at(entry, wanted)
                left_out.endings.update({f"in the hidden folder {entry.name}": count} if count else {})
            elif not is_hidden(entry.name):
                refuse_broken_link(entry.path)
                left_out.endings[f"{ending_of(entry.name)} beside the folders"] += 1
