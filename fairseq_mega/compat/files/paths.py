"""Read folders of from_pretrained that are Path objects, and keep archives: fairseq removes an archive it unpacks."""

import os
import typing

from fairseq_mega.compat.patching import wrap


def read_folders_alone() -> None:
    """Make from_pretrained accept Path objects, and raise NotADirectoryError for a file, which may be an archive."""
    from fairseq import hub_utils

    wrap(hub_utils, "from_pretrained", _from_folders)


def _from_folders(
    original: typing.Callable,
    model_name_or_path: typing.Any,
    checkpoint_file: str = "model.pt",
    data_name_or_path: typing.Any = ".",
    *args: typing.Any,
    **kwargs: typing.Any,
) -> typing.Any:
    folders = [os.fspath(path) for path in (model_name_or_path, data_name_or_path)]
    for path in filter(os.path.isfile, folders):
        raise NotADirectoryError(f"from_pretrained: {path} is a file: give its folder, and the file to checkpoint_file")
    return original(folders[0], checkpoint_file, folders[1], *args, **kwargs)
