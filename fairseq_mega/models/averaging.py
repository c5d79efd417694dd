"""Average the weights of several checkpoints."""

import logging
import re
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.compat.files.card import KEY, Card, card_of, differences
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.compat.files.settings import group_of, other_settings, seed_of, setting_of

logger = logging.getLogger("fairseq_mega.averaging")
EPOCH_CHECKPOINT = re.compile(r"checkpoint(\d+)\.pt")
MANY = 0.05  # share of the first weights in an average
DROPPED = ("last_optimizer_state",)


class AveragingError(ValueError):
    """Error for checkpoints that cannot be averaged; the message names the file, the fault and the remedy."""


def epoch_checkpoints(folder: Path) -> List[Path]:
    """Return all ``checkpoint<epoch>.pt`` of a folder, oldest first."""
    matches = ((EPOCH_CHECKPOINT.fullmatch(path.name), path) for path in folder.iterdir())
    return [path for _epoch, path in sorted((int(match.group(1)), path) for match, path in matches if match)]


def last_epoch_checkpoints(folder: Path, count: int) -> List[Path]:
    """Return the ``count`` newest ``checkpoint<epoch>.pt`` of ``folder``, oldest first.

    Checkpoints within an epoch (``checkpoint_<epoch>_<update>.pt``) do not count. Raises :class:`AveragingError` if
    there are fewer than ``count`` checkpoints.
    """
    if count < 1:
        raise AveragingError(f"--last-epochs {count}: must be at least 1")
    if not folder.is_dir():
        raise AveragingError(f"--dir {folder} is not a folder; give the --save-dir of the training")
    numbered = epoch_checkpoints(folder)
    if len(numbered) < count:
        raise AveragingError(
            f"--last-epochs {count}: --dir {folder} has only {len(numbered)} epoch checkpoints; give a smaller number, "
            f"or train longer with --keep-last-epochs {count}"
        )
    return numbered[-count:]


def check_same_shape(first: Dict[str, Tensor], other: Dict[str, Tensor], first_path: Path, path: Path) -> None:
    """Raise :class:`AveragingError` unless both checkpoints have the same keys, shapes and dtypes."""
    for key in first:
        if key not in other:
            raise AveragingError(f"{path} lacks the key {key!r} of {first_path}; average checkpoints of one model")
    for key, tensor in other.items():
        if key not in first:
            raise AveragingError(
                f"{path} has the key {key!r} that {first_path} lacks; average checkpoints of one model"
            )
        if tensor.shape != first[key].shape or tensor.dtype != first[key].dtype:
            raise AveragingError(
                f"{path}: {key!r} is {tensor.dtype} {tuple(tensor.shape)}, in {first_path} it is "
                f"{first[key].dtype} {tuple(first[key].shape)}; average checkpoints of one model"
            )


def check_same_card(first: Card, other: Card, first_path: Path, path: Path) -> None:
    """Raise :class:`AveragingError` if two checkpoints were trained on data with different cards."""
    found = differences(first, other, (str(first_path), str(path)))
    if found:
        raise AveragingError(
            f"{path} was trained on other data than {first_path} ({'; '.join(found)}); average checkpoints of one "
            f"training, or of trainings on one data folder"
        )


def average(paths: Sequence[Path]) -> Dict[str, Any]:
    """Return the last checkpoint with its weights replaced by the mean over all checkpoints.

    Sums are in float64 and results are cast back; integer and boolean entries are those of the last file.
    Configuration and training history are kept; the states of the optimiser and of fairseq's EMA are removed. One file
    is in memory at a time.

    Raises:
        AveragingError: if the files do not fit together.
        OSError, ValueError: as :func:`fairseq_mega.compat.files.loading.load`.
    """
    if not paths:
        raise AveragingError("no checkpoints to average")
    sums: Dict[str, Tensor] = {}
    first: Dict[str, Tensor] = {}
    checkpoint: Dict[str, Any] = {}
    before: Dict[str, Any] = {}
    card: Card = {}
    for path in paths:
        checkpoint = load_checkpoint(path)
        others = other_settings(before, checkpoint) if before else []
        if others:
            raise AveragingError(
                f"{paths[0]} was trained with {'; '.join(others)} as {path}, so the same weights compute different "
                f"outputs; average checkpoints of one model"
            )
        seeds = [seed_of(before), seed_of(checkpoint)]
        if None not in seeds and seeds[0] != seeds[1]:
            logger.warning(
                f"{paths[0]} was trained with --seed {seeds[0]}, {path} with {seeds[1]}: the mean of two trainings is "
                f"useful only if both began with the same weights"
            )
        before = before or {"cfg": checkpoint.get("cfg"), "args": checkpoint.get("args"), "model": {}}
        model = checkpoint["model"]
        strange = [key for key, tensor in model.items() if not isinstance(tensor, Tensor)]
        if strange:
            raise AveragingError(f"{path}: {strange[0]!r} of its model is not a tensor; give files of a --save-dir")
        # Tensors on the meta device keep shapes and dtypes without the memory of a second model.
        first = first or {key: torch.empty_like(tensor, device="meta") for key, tensor in model.items()}
        check_same_shape(first, model, paths[0], path)
        own = card_of(checkpoint, path)
        check_same_card(card, own, paths[0], path)
        card.update(own)
        for key, tensor in model.items():
            if tensor.is_floating_point() or tensor.is_complex():
                wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                sums[key] = sums[key] + wide if key in sums else wide
    checkpoint["model"] = _means(checkpoint["model"], sums, len(paths))
    if card:
        checkpoint[KEY] = card
    return _for_use(checkpoint)


def average_of_training(path: Path) -> Dict[str, Any]:
    """Return a checkpoint with its weights replaced by the average that ``--store-ema`` keeps beside them.

    Raises:
        AveragingError: if the checkpoint has no average, or that of another model.
        OSError, ValueError: as :func:`fairseq_mega.compat.files.loading.load`.
    """
    checkpoint = load_checkpoint(path)
    averaged = (checkpoint.get("extra_state") or {}).get("ema")
    if not isinstance(averaged, dict):
        raise AveragingError(
            f"--ema {path} has no average of its weights: give a checkpoint of a training with --store-ema, or average "
            f"several checkpoints by --inputs"
        )
    check_same_shape(checkpoint["model"], averaged, path, Path(f"the average in {path}"))
    group = group_of(checkpoint, "ema")
    decay, start, every = (setting_of(group, f"ema_{name}") for name in ("decay", "start_update", "update_freq"))
    updates = (checkpoint.get("optimizer_history") or [{}])[-1].get("num_updates", 0)
    first = max((start or 0) - 1, 0)  # the update whose weights begin the average
    share = 0.0 if decay is None or updates <= first else decay ** ((updates - first) // (every or 1))
    if share > MANY:
        logger.warning(
            f"{share:.0%} of the average in {path} are weights of update {first:,} of {updates:,}: train longer, or "
            f"with a lower --ema-decay than {decay}"
        )
    checkpoint["model"] = averaged
    return _for_use(checkpoint)


def _for_use(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """Remove what belongs to the weights of the training."""
    for key in DROPPED:
        checkpoint.pop(key, None)
    for key in ("ema", "ema_fp32_params"):
        (checkpoint.get("extra_state") or {}).pop(key, None)
    return checkpoint


def _means(model: Dict[str, Tensor], sums: Dict[str, Tensor], count: int) -> Dict[str, Tensor]:
    # Tied embeddings have several keys: one shared tensor avoids a copy in the file for each key.
    shared: Dict[Tuple[Any, ...], Tensor] = {}
    means = {}
    for key, tensor in model.items():
        if key not in sums:
            means[key] = tensor
            continue
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or place not in shared:
            shared[place] = (sums[key] / count).to(tensor.dtype)
        means[key] = shared[place]
    return means
