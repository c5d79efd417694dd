"""Layouts of checkpoints that the converter reads, each recognised from the contents of a file or folder."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from fairseq_mega.compat.files.card import EARLIER, KEY, card_of
from fairseq_mega.compat.files.loading import load_checkpoint
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
    read_json,
    save_consolidated,
)
from .options import IMAGES, MASKED, flat_options, kind_of, refuse_ours_alone, scoring_options
from .transformers_mega import (
    convert_transformers,
    is_transformers,
    publish_transformers,
    read_transformers,
    save_transformers,
)

Checkpoint = Dict[str, Any]
SCORING = "scoring"  # options of criterion and task, in a checkpoint of a layout without them
BESIDE = {  # files of the package in a folder that is written here
    KEY: "card.json",
    EARLIER: "names.json",  # of earlier versions
    SCORING: "scoring.json",
}
FOLDERS = "holds neither consolidate_config.json (XuezheMax/megalodon) nor pytorch_model.bin or model.safetensors"


def missing(path: Path) -> str:
    """Return why a path cannot hold a checkpoint, or ""."""
    if path.is_dir():
        return "" if is_consolidated(path) or is_transformers(path) else f"{FOLDERS} (transformers)"
    return "" if path.is_file() else "does not exist"


def read(path: Path) -> Checkpoint:
    """Read a checkpoint from a file or a folder; raises OSError and ValueError."""
    if not path.is_dir():
        return load_checkpoint(path)
    found = read_consolidated(path) if is_consolidated(path) else read_transformers(path)
    return {**found, **{part: read_json(path / name) for part, name in BESIDE.items() if (path / name).is_file()}}


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
    converters: Tuple[Tuple[str, Callable[[Any, str], Checkpoint]], ...] = (
        ("consolidation", convert_megalodon),
        ("transformers", convert_transformers),
    )
    usual = convert_images if is_images(given["model"]) else convert_checkpoint
    converted = next((convert for part, convert in converters if part in given), usual)(given, where)
    converted["args"].__dict__.update(given.get(SCORING, {}))
    return _with_card(converted, given)


def advice(given: Checkpoint) -> str:
    """Return a note for the user of a converted published checkpoint, or ""."""
    if "consolidation" not in given or has_fairseq_order(given):
        return ""
    return (
        "Tokens now have the ids of fairseq's dictionaries. Padding is a new token and has no probability. "
        "The model's dict.txt must list the tokens of its tokeniser from id 3 on: one a line, followed by a count."
    )


def to_official(given: Checkpoint, where: str) -> Checkpoint:
    """Convert a checkpoint of this package to its published layout: the inverse of :func:`to_ours`.

    Raises:
        ValueError: if the checkpoint has another layout, or the published code does not have the model.
    """
    refuse_ours_alone(flat_options(given))
    if is_megalodon(given):
        return _with_card({**publish_megalodon(given), SCORING: scoring_options(given)}, given)
    publishers = {MASKED: publish_transformers, IMAGES: publish_images}
    kind = kind_of(given["model"]) if is_ours(given) else ""
    converted = publishers.get(kind, publish_checkpoint)(given, where)
    return _with_card({**converted, SCORING: scoring_options(given)} if kind == MASKED else converted, given)


def _with_card(converted: Checkpoint, given: Checkpoint) -> Checkpoint:
    """Return a converted checkpoint with the data card, which keeps it from other data."""
    card = card_of({part: given.get(part) for part in (KEY, EARLIER) if part in given}, "the checkpoint")
    return {**converted, KEY: card} if card else converted


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint of any layout; raises OSError and ValueError."""
    writers = {"consolidation": save_consolidated, "transformers": save_transformers}
    writer = next((write for part, write in writers.items() if part in checkpoint), None)
    if writer is None:
        save(checkpoint, path)
        return
    path.mkdir(parents=True)
    for part in BESIDE.keys() & checkpoint.keys():
        (path / BESIDE[part]).write_text(json.dumps(checkpoint[part], indent=1) + "\n", encoding="utf-8")
    writer(checkpoint, path)
