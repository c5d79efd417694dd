"""List the user's folders: files with known endings are examples, all others are counted by their endings."""

import os
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

PARTS = frozenset(("train", "valid", "val", "test"))  # of a data set


class FileKind(NamedTuple):
    """Description of the files of a class.

    Attributes:
        things: name of the files in messages, in the plural.
        endings: endings of their names, in lower case.
    """

    things: str
    endings: Tuple[str, ...]


class Listing(NamedTuple):
    """Files of a folder.

    Attributes:
        files: their names within the folder, sorted folder by folder.
        omitted: number of the other files by ending and place; of hidden files only those with the right ending.
    """

    files: List[str]
    omitted: "Counter[str]"

    def described(self) -> str:
        """Describe the files that are omitted; "" for none."""
        return ", ".join(f"{count:,} {kind}" for kind, count in self.omitted.most_common())


def listing(folder: Path, endings: Sequence[str], depth: Optional[int] = None) -> Listing:
    """List the files below a folder whose names have one of the endings; linked folders are followed, each once.

    Args:
        endings: in lower case; names may be in capitals.
        depth: number of folders between ``folder`` and its files; None: any.

    Raises:
        OSError: if a folder cannot be read.
    """
    files: List[str] = []
    omitted: Counter[str] = Counter()
    right = tuple(endings)
    for place, names, hidden_folders in walk_once(folder):
        inside = place.relative_to(folder).parts
        is_here = depth is None or len(inside) == depth
        where = "" if is_here else " in deeper folders" if len(inside) > (depth or 0) else " beside the folders"
        for name in names:
            is_right = name.lower().endswith(right)
            if is_hidden(name):
                omitted.update([f"hidden {ending_of(name)}"] * is_right)
            elif is_right and is_here:
                files.append(os.path.join(*inside, name))
            else:
                omitted[ending_of(name) + where] += 1
        for _, _, hidden in (entry for name in hidden_folders for entry in os.walk(place / name)):
            omitted.update(f"hidden {ending_of(name)}" for name in hidden if name.lower().endswith(right))
    return Listing(sorted(files, key=lambda name: name.replace(os.sep, "\0")), omitted)


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
    if PARTS.issuperset(label.lower() for label in labels):
        raise ValueError(
            f"--dir {folder}: its folders {listed(labels)} are parts of a data set, not labels: make a folder for "
            f"each label, with its {things}"
        )


def class_files(folder: Path, kind: FileKind) -> Tuple[Dict[str, List[str]], Listing]:
    """Return the sorted names of the files of each class, and the listing of the folder.

    Raises:
        FileNotFoundError, ValueError: as for :func:`class_names`, and if a class has no files.
    """
    found: Dict[str, List[str]] = {name: [] for name in class_names(folder, kind.things)}
    whole = listing(folder, kind.endings, depth=1)
    for file in whole.files:
        label, name = os.path.split(file)
        found[label].append(name)
    for label, names in found.items():
        if not names:
            others = listing(folder / label, kind.endings, depth=0).described()
            raise ValueError(
                f"{folder / label} holds no {kind.things} ({', '.join(kind.endings)}){others and f', but {others}'}"
                f": the files of a class must lie directly in its folder; convert or move them, or move the folder away"
            )
    return found, whole


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names as a text, and the number of further names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ending_of(name: str) -> str:
    """Return the ending of a file's name in lower case, or "without an ending"."""
    return os.path.splitext(name)[1].lower() or "without an ending"


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden."""
    return name.startswith(".")


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
    """Return the sorted files below a folder, as :func:`walk_once` finds them, and the hidden ones."""
    found: List[Path] = []
    hidden: List[Path] = []
    for place, names, hidden_folders in walk_once(folder):
        for name in names:
            (hidden if is_hidden(name) else found).append(place / name)
        for name in hidden_folders:
            hidden += [Path(top, file) for top, _, files in os.walk(place / name) for file in files]
    return sorted(found), sorted(hidden)
