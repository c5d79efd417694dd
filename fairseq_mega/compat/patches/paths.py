"""Support paths with a colon: fairseq separates paths by colons, even within the name of an existing folder."""

import os
import typing

from fairseq_mega.compat.patching import wrap

SEPARATOR = os.pathsep


def keep_existing_paths_whole() -> None:
    """Keep existing paths whole in --path, the data folder, and from_pretrained's checkpoint_file."""
    from fairseq import hub_utils, utils
    from fairseq.tasks.fairseq_task import FairseqTask, LegacyFairseqTask

    wrap(utils, "split_paths", _split_existing)
    wrap(hub_utils, "from_pretrained", _with_split_files)
    for task in (FairseqTask, LegacyFairseqTask):
        wrap(task, "has_sharded_data", _has_sharded_data)


def split(paths: str, folder: str = "") -> typing.List[str]:
    """Split a list of paths; an existing path may contain colons.

    Args:
        paths: value of an option.
        folder: folder of relative paths.
    """
    parts, found = paths.split(SEPARATOR), []
    while parts:
        firsts = (SEPARATOR.join(parts[:count]) for count in range(len(parts), 1, -1))
        whole = next((first for first in firsts if _is_path(os.path.join(folder, first))), parts[0])
        count = 1 + whole.count(SEPARATOR)
        found.append(whole)
        parts = parts[count:]
    return found


def _is_path(path: str) -> bool:
    """Return whether a path exists, or the folder of its colons, as a file may exist only with a suffix."""
    folder, name = os.path.split(path)
    return os.path.exists(path) or (SEPARATOR in folder and SEPARATOR not in name and os.path.isdir(folder))


def lost_part(paths: str) -> typing.Optional[str]:
    """Return which part of a list of paths is missing; None if none is missing, and for a single path."""
    parts = [] if "://" in paths else split(paths)
    missing = [part for part in parts if not os.path.exists(part)]
    if len(parts) < 2 or not missing:
        return None
    return f"{missing[0] or 'an empty name'} does not exist, and '{SEPARATOR}' separates paths"


def unscored_folder(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return why data folders cannot be scored, or None: fairseq would score the split of the first alone.

    Args:
        given: options of any command by the parser's names.
    """
    data = given.get("data")
    scores = "path" in given and "max_update" not in given and "buffer_size" not in given  # an option of each command
    if not (scores and isinstance(data, str) and "://" not in data):
        return None
    validates = "beam" not in given and "context_window" not in given
    splits = str(given.get("valid_subset" if validates else "gen_subset")).split(",")
    for folder in split(data)[1:]:
        for name in splits:
            if any(os.path.splitext(file)[0].split(".")[0] == name for file in os.listdir(folder)):
                return (
                    f"the data folder, {data}: '{SEPARATOR}' separates folders, and of the split '{name}' only the "
                    f"first folder would be scored: give one folder, and run the command for each"
                )
    return None


def _split_existing(original: typing.Callable, paths: str, separator: str = SEPARATOR) -> typing.List[str]:
    if separator != SEPARATOR or "://" in paths:
        return original(paths, separator)
    return split(paths)


def _has_sharded_data(original: typing.Callable, self: typing.Any, split_name: str) -> bool:
    from fairseq import utils

    options = getattr(self, "cfg", None) or self.args  # tasks of fairseq's older kind have no cfg
    return original(self, split_name) and len(utils.split_paths(options.data)) > 1


class _Files(str):
    """List of files whose ``split`` keeps existing paths whole."""

    folder = ""

    def split(self, sep: typing.Any = None, maxsplit: typing.Any = -1) -> typing.List[str]:
        """Return the names, see :func:`split`."""
        return split(str(self), self.folder)


def _with_split_files(
    original: typing.Callable,
    model_name_or_path: typing.Any,
    checkpoint_file: str = "model.pt",
    data_name_or_path: typing.Any = ".",
    archive_map: typing.Optional[typing.Mapping[str, typing.Any]] = None,
    **kwargs: typing.Any,
) -> typing.Any:
    model, data = os.fspath(model_name_or_path), os.fspath(data_name_or_path)
    if "://" not in model and model not in (archive_map or {}):
        _check_folder(model, f"give its folder, and checkpoint_file='{os.path.basename(model)}'")
        if data.startswith("."):
            path = os.path.join(model, data)
            _check_folder(path, "give the data folder", f", as {data} starts from the folder of the model")
        elif "://" not in data and data not in (archive_map or {}):
            _check_folder(data, "give the data folder")
    files = _Files(checkpoint_file)
    files.folder = model
    return original(model, files, data, archive_map, **kwargs)


def _check_folder(path: str, remedy: str, because: str = "") -> None:
    """Raise an OSError unless a path is a folder; fairseq unpacks a file as an archive, and removes the archive."""
    if os.path.isfile(path):
        raise NotADirectoryError(f"from_pretrained: {path} is a file: {remedy}; unpack an archive first")
    if not os.path.isdir(path):
        raise FileNotFoundError(f"from_pretrained: {path} does not exist{because}: give a folder")
