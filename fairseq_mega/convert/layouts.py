"""Layouts of checkpoints that the converter reads, each recognised from the contents of a file or folder."""

from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from fairseq_mega.compat.checkpoints.loading import load_checkpoint
from fairseq_mega.models.checkpoint_files import save

from .checkpoints import convert_checkpoint, is_ours, is_published, publish_checkpoint
from .images import convert_images, is_images, publish_images
from .megalodon import (
    convert_megalodon,
    has_fairseq_order,
    is_consolidated,
    is_megalodon,
    publish_megalodon,
    read_consolidated,
    save_consolidated,
)
from .options import IMAGES, MASKED, kind_of
from .transformers_mega import (
    convert_transformers,
    is_transformers,
    publish_transformers,
    read_transformers,
    save_transformers,
)

Checkpoint = Dict[str, Any]
FOLDERS = "holds neither consolidate_config.json (XuezheMax/megalodon) nor pytorch_model.bin or model.safetensors"


def missing(path: Path) -> str:
    """Return why a path cannot hold a checkpoint, or ""."""
    if path.is_dir():
        return "" if is_consolidated(path) or is_transformers(path) else f"{FOLDERS} (transformers)"
    return "" if path.is_file() else "does not exist"


def read(path: Path) -> Checkpoint:
    """Read a checkpoint from a file or a folder; raises OSError and ValueError."""
    if path.is_dir():
        return read_consolidated(path) if is_consolidated(path) else read_transformers(path)
    return load_checkpoint(path)


def is_this_packages(given: Checkpoint) -> bool:
    """Return whether a checkpoint has this package's layout."""
    return is_ours(given) or is_megalodon(given)


def is_published_file(given: Checkpoint) -> bool:
    """Return whether the contents of a file are a checkpoint of one of the published codes."""
    return is_images(given["model"]) or is_published(given)


def to_ours(given: Checkpoint, where: str) -> Checkpoint:
    """Convert a published checkpoint to this package's layout.

    Raises:
        ValueError: if this package has no model for the checkpoint.
    """
    if is_images(given["model"]):
        return convert_images(given, where)
    converters: Tuple[Tuple[str, Callable[[Any, str], Checkpoint]], ...] = (
        ("consolidation", convert_megalodon),
        ("transformers", convert_transformers),
    )
    return next((convert for part, convert in converters if part in given), convert_checkpoint)(given, where)


def advice(given: Checkpoint) -> str:
    """Return a note for the user of a converted published checkpoint, or ""."""
    if "consolidation" not in given or has_fairseq_order(given):
        return ""
    return (
        "Symbols are now numbered as in fairseq's dictionaries. Padding is a new symbol and has no probability. "
        "The model's dict.txt must list the symbols of its tokeniser from number 3 on: one a line, followed by a count."
    )


def to_official(given: Checkpoint, where: str) -> Checkpoint:
    """Convert a checkpoint of this package to its published layout: the inverse of :func:`to_ours`.

    Raises:
        ValueError: if the checkpoint has another layout, or the published code does not have the model.
    """
    if is_megalodon(given):
        return publish_megalodon(given)
    kind = kind_of(given["model"]) if is_ours(given) else ""
    if kind in (MASKED, IMAGES):
        return (publish_transformers if kind == MASKED else publish_images)(given, where)
    return publish_checkpoint(given, where)


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint of any layout; raises OSError and ValueError."""
    writers = {"consolidation": save_consolidated, "transformers": save_transformers}
    next((write for part, write in writers.items() if part in checkpoint), save)(checkpoint, path)
