"""Check the names of splits in options: fairseq does not shorten a misspelt split, and says nothing."""

import glob
import os
import typing

from . import paths

USUAL = ("train", "valid", "test")
OTHER_NAMES = {"valid": "val"}  # of folders of images and of speech


def obstacle(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return which option has a name that is no split of the data, or None.

    Args:
        given: all options of any command by the parser's names.
    """
    data, shortened = given.get("data"), given.get("shorten_data_split_list")
    folders = _folders(data)
    if not folders or not shortened:
        return None
    for name in shortened.split(","):
        if name not in USUAL and not has_split(folders, name):
            return (
                f"--shorten-data-split-list {shortened}: {name!r} is no split of {data}: give names such as "
                f"{','.join(USUAL)}, without spaces"
            )
    return None


def _folders(data: typing.Any) -> typing.List[str]:
    """Return the existing folders of the data; none for a list of addresses."""
    return list(filter(os.path.isdir, paths.split(data))) if isinstance(data, str) and "://" not in data else []


def has_split(folders: typing.Iterable[str], name: str) -> bool:
    """Return whether folders, or folders within them, have a file or folder of a split, in any task's layout."""
    if not name:
        return False
    places = [os.path.join(glob.escape(folder), inner) for folder in folders for inner in ("", "*")]
    names = [glob.escape(each) for each in (name, OTHER_NAMES.get(name)) if each]
    return any(
        next(glob.iglob(os.path.join(place, each + ending)), None)
        for place in places
        for each in names
        for ending in ("", "[._]*")
    )
