"""Check the names of splits in options: fairseq ignores a misspelt one, or fails after it has scored others."""

import glob
import os
import typing

from . import paths, unread

USUAL = ("train", "valid", "test")
OTHER_NAMES = {"valid": "val"}  # of folders of images and of speech


def obstacle(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return which option has a name that is no split of the data, or None.

    Args:
        given: all options of any command by the parser's names.
    """
    folders = _folders(given.get("data"))
    problem = _wrong_name(given, folders)
    of_known_layout = problem is not None and any(has_split(folders, name) for name in USUAL)  # speech has another
    return problem if of_known_layout else None


def _wrong_name(given: typing.Mapping[str, typing.Any], folders: typing.Sequence[str]) -> typing.Optional[str]:
    data, command = given.get("data"), unread.command_of(given)
    scored = given.get("gen_subset") or ""
    if command in ("generate", "eval-lm") and ("," in scored or not scored) and not has_split(folders, scored):
        return f"--gen-subset {scored or repr(scored)}: give one split, and run the command for each"
    named: typing.List[typing.Tuple[str, typing.Optional[str], typing.Sequence[str]]]
    named = [("shorten_data_split_list", given.get("shorten_data_split_list") or None, USUAL)]
    if command == "validate" or ("max_update" in given and not given.get("disable_validation")):
        subsets = given.get("valid_subset")
        named.append(("valid_subset", subsets, () if not subsets or "," in subsets else (subsets,)))
    for option, names, known in named:
        for name in names.split(",") if names is not None else ():
            if name not in known and not has_split(folders, name):
                return (
                    f"--{option.replace('_', '-')} {names or repr(names)}: {name!r} is no split of {data}: give names "
                    f"such as {','.join(USUAL)}, without spaces"
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
