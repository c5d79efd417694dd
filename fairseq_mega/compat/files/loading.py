"""Read files of torch.save: always as data, whatever torch's default is, and with readable errors."""

import argparse
import contextlib
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
from fairseq_mega.compat.patching import ModuleWith, wrap
from fairseq_mega.compat.versions.architectures import UnexpectedName

from . import safetensors_files
from .safe_globals import RefusedContents
from .settings import settings_of, task_of

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
MOST_VALUES = 10**7  # in a checkpoint, counted once for each place where they stand
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
        RefusedContents: if the file contains anything else, which is not built, or unpacks into far more than its size.
        UnreadableFile: if the file is damaged or of another kind.
    """
    where = str(getattr(file, "name", "the data")) if hasattr(file, "read") else os.fspath(file)
    if os.path.isdir(where):
        raise IsADirectoryError(f"{where} is a folder; give the file of a checkpoint in it")
    if safetensors_files.names_safetensors(where):
        return _read_safetensors(where, map_location)
    try:
        mmap = _is_archive(file) and mmap  # files of torch before 1.6 cannot be mapped
        loaded = torch.load(file, map_location=map_location, weights_only=True, mmap=mmap)
        _count_values(loaded, {})
        return loaded
    except FileNotFoundError:
        raise FileNotFoundError(f"{where} does not exist; check the path") from None
    except RefusedContents as error:
        raise RefusedContents(f"{where} is refused: it contains {error}. {ADVICE}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a damaged file, which leads torch astray
            raise
        asked = _asked_for(error)
        if asked is not None:
            raise RefusedContents(f"{where} is refused: it contains {asked}. {ADVICE}") from error
        raise UnreadableFile(f"{where} cannot be read: it is truncated or not a checkpoint of fairseq") from error


def _read_safetensors(where: str, map_location: typing.Any) -> typing.Any:
    try:
        checkpoint = safetensors_files.read(where)
    except safetensors_files.UnreadableSafetensors as error:
        raise UnreadableFile(str(error)) from error
    _count_values(checkpoint, {})
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


def _asked_for(error: Exception) -> typing.Optional[str]:
    """Return the name of the object in a file that torch refused to build or call; None for another error."""
    if not isinstance(error, pickle.UnpicklingError):
        return None
    for pattern in REFUSED:
        found = re.search(pattern, str(error))
        if found:
            return next(iter(found.groupdict().values())).rstrip(".")
    return None


def _is_archive(file: typing.Any) -> bool:
    """Return whether a file is a zip archive.

    Raises:
        RefusedContents: if its records are compressed or larger than the file, which torch.save never writes.
    """
    with contextlib.ExitStack() as stack:
        stream = file if hasattr(file, "read") else stack.enter_context(open(file, "rb"))
        begin = stream.tell()
        size = stream.seek(0, os.SEEK_END)
        try:
            with zipfile.ZipFile(stream) as archive:
                records = archive.infolist()
        except zipfile.BadZipFile:
            return False
        finally:
            stream.seek(begin)
    stored = all(record.compress_type == zipfile.ZIP_STORED for record in records)
    if not stored or sum(record.file_size for record in records) > size:
        raise RefusedContents("records that unpack into more than the file, which torch.save never writes")
    return True


def _count_values(value: typing.Any, known: typing.Dict[int, int]) -> int:
    """Count the values in `value`, each as often as it occurs: a few nested containers can hold 2^30 values."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if not isinstance(value, (dict, list, tuple)):
        return 1
    count = known.get(id(value))
    if count is None:
        known[id(value)] = MOST_VALUES  # of itself within itself
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = count = 1 + sum(_count_values(item, known) for item in items)
        if count > MOST_VALUES:
            raise RefusedContents(f"more than {MOST_VALUES:,} values")
    return count


def load_data_only() -> None:
    """Make fairseq read every file by :func:`load`."""
    from fairseq import checkpoint_utils

    for name in LOADING_MODULES:
        module: typing.Any = importlib.import_module(f"fairseq.{name}")
        if not isinstance(module.torch, ModuleWith):
            module.torch = ModuleWith(torch, load=load_for_fairseq if module is checkpoint_utils else load)
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", _naming_the_file)
    wrap(checkpoint_utils, "load_ema_from_checkpoint", _naming_the_file)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", _naming_the_configuration)


def read_the_named_file() -> None:
    """Make fairseq read the file of --path where it exists, not a file X-shard0.pt beside X.pt, of any training."""
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "get_maybe_sharded_checkpoint_filename", _named_first)


def _named_first(original: typing.Callable, filename: str, suffix: str, shard_idx: int, num_shards: int) -> str:
    found, named = original(filename, suffix, shard_idx, num_shards), filename.replace(".pt", f"{suffix}.pt")
    if num_shards > 1 or found == named or not os.path.isfile(named):
        return found
    logger.info(f"{named} is read, and {found} beside it is not")
    return named


def _naming_the_file(
    original: typing.Callable, path: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Call a function of fairseq that reads entries without checking that they exist; an error names the file."""
    try:
        return original(path, *args, **kwargs)
    except (OSError, UnreadableFile, RefusedContents):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UnreadableFile(
            f"{path} is not a checkpoint that this fairseq can read ({reason}): if it has the layout of another "
            f"program, convert it with fairseq-mega-convert"
        ) from error


def _naming_the_configuration(
    original: typing.Callable,
    filenames: typing.Any,
    arg_overrides: typing.Any = None,
    task: typing.Any = None,
    *args: typing.Any,
    **kwargs: typing.Any,
) -> typing.Any:
    """Call load_model_ensemble_and_task; the error of a refused configuration, or of another task's, names its file."""
    try:
        return original(filenames, arg_overrides, task, *args, **kwargs)
    except (AssertionError, AttributeError, TypeError) as error:  # of a model that relies on its own task
        for path in filter(os.path.isfile, filenames if task is not None else ()):
            trained, given = task_of(load_checkpoint(path)), task_of(settings_of(task))
            if None not in (trained, given) and trained != given:
                raise ValueError(
                    f"{path} was trained with --task {trained}, and its model cannot be built for --task {given}: give "
                    f"--task {trained} and the task's options of the training"
                ) from error
        raise
    except UnexpectedName as error:
        raise RefusedContents(f"{', '.join(map(str, filenames))} is refused: {error}") from error
    except UnsafeExpression as error:
        for path in filter(os.path.isfile, filenames):
            checkpoint = load_checkpoint(path)
            for name in _options_of(error.text, [checkpoint.get("cfg"), checkpoint.get("args")]):
                reason = f"its option {name} contains code: {error}. Get the checkpoint from a source that you trust"
                raise RefusedContents(f"{path} is refused: {reason}") from error
        raise  # of the command line


def _options_of(text: str, value: typing.Any, name: str = "") -> typing.Iterator[str]:
    """Yield the names of the options of a configuration whose value is `text`."""
    value = vars(value) if isinstance(value, argparse.Namespace) else value
    if isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else ((name, item) for item in value):
            yield from _options_of(text, item, str(key))
    elif isinstance(value, str) and value == text:
        yield name


class _ArchiveOfAFolder(tarfile.TarFile):
    """An archive that refuses members outside its target folder; Python releases before 2023 lack this check."""

    extraction_filter = staticmethod(getattr(tarfile, "data_filter", lambda member, path: member))


def unpack_archives_into_their_folder() -> None:
    """Make from_pretrained raise tarfile.TarError for an archive with members outside the folder of its contents."""
    from fairseq import file_utils

    if not isinstance(file_utils.tarfile, ModuleWith):
        file_utils.tarfile = ModuleWith(tarfile, open=_ArchiveOfAFolder.open)
