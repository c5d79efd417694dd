"""Read files of torch.save: always as data, whatever torch's default is; and whole files of binarised data."""

import errno
import importlib
import logging
import os
import pickle
import re
import tarfile
import typing
import zipfile

import torch

from fairseq_mega.compat.files.expressions import UnsafeExpression
from fairseq_mega.compat.patching import ModuleWith, around

from . import safetensors_files
from .safe_globals import RefusedContents

logger = logging.getLogger(__name__)
# The modules of fairseq that open files with torch.load.
LOADING_MODULES = (
    "checkpoint_utils",
    "data.codedataset",
    "distributed.utils",
    "models.speech_to_text.xm_transformer",
    "models.text_to_speech.vocoder",
    "modules.quantization.pq.em",
)
REFUSED = (
    r"(?:Unsupported global: GLOBAL|unsupported GLOBAL) (?P<name>\S+)",
    r"Trying to call reduce for unrecognized function (?P<call>.+)",
    r"(?:Can only create new object|Can only build) .* but got (?P<kind>.+)",
)
ADVICE = (
    "A file that contains more than tensors and plain values can run any program on the machine that reads it: get "
    "the checkpoint from a source that you trust, saved as plain values"
)


class UnreadableFile(ValueError):
    """A file is damaged, or of another kind; the message names the file."""


class OtherLayout(UnreadableFile):
    """A checkpoint has the layout of the published code; the message contains the remedy."""


def check_layout(tensors: typing.Iterable[typing.Any], where: str) -> None:
    """Raise OtherLayout for the names of tensors of the published code; ``where`` names the checkpoint."""
    if any(isinstance(name, str) and ".mega_layer." in name for name in tensors):
        raise OtherLayout(
            f"{where} was written by the published code, with other names and shapes of tensors: convert the "
            "checkpoint with fairseq-mega-convert --input OLD.pt --output NEW.pt"
        )


def load(file: typing.Any, map_location: typing.Any = None, *, mmap: bool = False) -> typing.Any:
    """Read a file of torch.save that contains only tensors, plain containers and fairseq's settings.

    A file whose name ends with .safetensors is read by :mod:`fairseq_mega.compat.files.safetensors_files`.

    Args:
        file: a path, or a stream of bytes opened for reading.
        map_location: see torch.load.
        mmap: map tensors into memory where the file allows it.

    Raises:
        OSError: if the file cannot be opened.
        RefusedContents: if the file contains anything else, which is not built.
        UnreadableFile: if the file is damaged or of another kind.
    """
    where = str(getattr(file, "name", "the data")) if hasattr(file, "read") else os.fspath(file)
    if os.path.isdir(where):
        raise IsADirectoryError(f"{where} is a folder; give the file of a checkpoint in it")
    if safetensors_files.names_safetensors(where):
        return _read_safetensors(where, map_location)
    try:
        mmap = mmap and zipfile.is_zipfile(file)  # files of torch before 1.6 cannot be mapped
        return torch.load(file, map_location=map_location, weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise FileNotFoundError(f"{where} does not exist; check the path") from None
    except RefusedContents as error:
        raise RefusedContents(f"{where} is refused: it contains {error}. {ADVICE}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a damaged file, which leads torch astray
            raise
        refused = _refused_name(error)
        if refused is not None:
            raise RefusedContents(f"{where} is refused: it contains {refused}. {ADVICE}") from error
        raise UnreadableFile(f"{where} cannot be read: it is truncated or not a checkpoint of fairseq") from error


def _read_safetensors(where: str, map_location: typing.Any) -> typing.Any:
    try:
        checkpoint = safetensors_files.read(where)
    except safetensors_files.UnreadableSafetensors as error:
        raise UnreadableFile(str(error)) from error
    if isinstance(map_location, (str, torch.device)):
        checkpoint["model"] = {name: tensor.to(map_location) for name, tensor in checkpoint["model"].items()}
    return checkpoint


def load_checkpoint(file: typing.Any, map_location: typing.Any = "cpu") -> typing.Dict[str, typing.Any]:
    """Read a checkpoint of fairseq, see :func:`load`; raise UnreadableFile also if it contains no model."""
    checkpoint = load(file, map_location)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        where = getattr(file, "name", file)
        raise UnreadableFile(f"{where} is not a checkpoint of fairseq (it has no 'model'); give a file of a --save-dir")
    return checkpoint


def load_for_fairseq(file: typing.Any, map_location: typing.Any = "cpu") -> typing.Dict[str, typing.Any]:
    """Read a checkpoint of a model of this fairseq, see :func:`load_checkpoint`; raise OtherLayout for another one."""
    checkpoint = load_checkpoint(file, map_location)
    check_layout(checkpoint["model"], str(getattr(file, "name", file)))
    return checkpoint


def _refused_name(error: Exception) -> typing.Optional[str]:
    """Return the name of the object in a file that torch refused to build or call; None for another error."""
    if not isinstance(error, pickle.UnpicklingError):
        return None
    for pattern in REFUSED:
        found = re.search(pattern, str(error))
        if found:
            return next(iter(found.groupdict().values())).rstrip(".")
    return None


def load_data_only() -> None:
    """Make fairseq read every file by :func:`load`."""
    from fairseq import checkpoint_utils

    for name in LOADING_MODULES:
        module: typing.Any = importlib.import_module(f"fairseq.{name}")
        if not isinstance(module.torch, ModuleWith):
            module.torch = ModuleWith(torch, load=load_for_fairseq if module is checkpoint_utils else load)


@around("fairseq.checkpoint_utils", "get_maybe_sharded_checkpoint_filename")
def read_the_named_file(original: typing.Callable, filename: str, suffix: str, shard_idx: int, num_shards: int) -> str:
    """Read the file of --path where it exists, not a file X-shard0.pt beside X.pt, of any training."""
    found, named = original(filename, suffix, shard_idx, num_shards), filename.replace(".pt", f"{suffix}.pt")
    if num_shards > 1 or found == named or not os.path.isfile(named):
        return found
    logger.info(f"{named} is read, and {found} beside it is not")
    return named


@around("fairseq.checkpoint_utils", "load_model_ensemble_and_task")
def refuse_code(
    original: typing.Callable, filenames: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Name the files of a configuration with code in it."""
    try:
        return original(filenames, *args, **kwargs)
    except UnsafeExpression as error:
        raise RefusedContents(f"{', '.join(map(str, filenames))} is refused: {error}") from error


@around("fairseq.data.indexed_dataset", "MMapIndexedDataset._do_init")
def compare_binarised_files(original: typing.Callable, self: typing.Any, path: str) -> None:
    """Refuse a .bin file whose size is not that of its .idx file, which fairseq reads at wrong places."""
    original(self, path)
    sizes, pointers = self._index.sizes, self._index._pointers
    listed = int(pointers[-1]) + int(sizes[-1]) * self._index.dtype().itemsize if len(sizes) else 0
    found = os.path.getsize(f"{path}.bin")
    if found != listed:
        raise ValueError(
            f"{path}.bin has {found:,} bytes, and its index {path}.idx lists {listed:,}: one of them is cut off or of "
            "other data; make the data again, or copy both files again"
        )


class _ArchiveOfAFolder(tarfile.TarFile):
    """An archive that refuses members outside its target folder; Python releases before 2023 lack this check."""

    extraction_filter = staticmethod(getattr(tarfile, "data_filter", lambda member, path: member))


def unpack_archives_into_their_folder() -> None:
    """Make from_pretrained raise tarfile.TarError for an archive with members outside the folder of its contents."""
    from fairseq import file_utils

    if not isinstance(file_utils.tarfile, ModuleWith):
        file_utils.tarfile = ModuleWith(tarfile, open=_ArchiveOfAFolder.open)
