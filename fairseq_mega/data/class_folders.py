"""List the user's folders: files with known endings are examples, all others are counted by their endings."""

import os
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple


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
    for place, _, names in walk_once(folder):
        inside = place.relative_to(folder).parts
        is_here, is_inside_hidden = depth is None or len(inside) == depth, any(map(is_hidden, inside))
        where = "" if is_here else " in deeper folders" if len(inside) > (depth or 0) else " beside the folders"
        for name in names:
            is_right = name.lower().endswith(right)
            if is_inside_hidden or is_hidden(name):
                omitted.update([f"hidden {_ending_of(name)}"] * is_right)
            elif is_right and is_here:
                files.append(os.path.join(*inside, name))
            else:
                omitted[_ending_of(name) + where] += 1
    return Listing(sorted(files, key=lambda name: name.replace(os.sep, "\0")), omitted)


def _ending_of(name: str) -> str:
    return os.path.splitext(name)[1].lower() or "without an ending"


def class_names(folder: Path, things: str = "images") -> List[str]:
    """Return the sorted names of the folders in a folder, without hidden ones; ``things`` are their examples.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: if the folder holds no folders.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not is_hidden(entry.name) and entry.is_dir())
    if not names:
        raise ValueError(f"{folder} must hold one folder of {things} per class")
    return names


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
    empty = [label for label, names in found.items() if not names]
    if empty:
        raise ValueError(
            f"{folder / empty[0]} holds no {kind.things} ({', '.join(kind.endings)}) directly in it, but "
            f"{whole.described() or 'no other files'} in {folder}"
        )
    return found, whole


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names as a text, and the number of further names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden."""
    return name.startswith(".")


def walk_once(folder: Path) -> Iterator[Tuple[Path, List[str], List[str]]]:
    """Yield each folder from a folder on, with the sorted names of its folders (hidden ones last) and files.

    Linked folders are followed; each real folder is yielded once.

    Raises:
        OSError: if a folder cannot be read.
    """
    seen: Set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_fail, followlinks=True):
        if os.path.realpath(place) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        folders.sort(key=lambda name: (is_hidden(name), name))
        yield Path(place), folders, sorted(names)


def _fail(error: OSError) -> NoReturn:
    raise error


def files_below(folder: Path) -> Tuple[List[Path], List[Path]]:
    """Return the sorted files below a folder, as :func:`walk_once` finds them, and the hidden ones."""
    paths = sorted(place / name for place, _, names in walk_once(folder) for name in names)
    hidden = [path for path in paths if any(map(is_hidden, path.relative_to(folder).parts))]
    return sorted({*paths} - {*hidden}), hidden
