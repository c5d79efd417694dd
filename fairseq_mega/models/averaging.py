"""Average the weights of several checkpoints."""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.compat.files.card import KEY, Card, card_of, differences
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.compat.files.settings import other_settings

EPOCH_CHECKPOINT = re.compile(r"checkpoint(\d+)\.pt")


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
    numbered = epoch_checkpoints(folder)
    if not 1 <= count <= len(numbered):
        raise AveragingError(
            f"--last-epochs {count}: --dir {folder} has {len(numbered)} epoch checkpoints; give at least 1 and at most "
            f"as many, or train longer with --keep-last-epochs {count}"
        )
    return numbered[-count:]


def check_same_shape(first: Dict[str, Tensor], other: Dict[str, Tensor], first_path: Path, path: Path) -> None:
    """Raise :class:`AveragingError` unless both checkpoints have the same keys, shapes and dtypes."""
    for key in {**first, **other}:
        found, expected = (_described(tensors.get(key)) for tensors in (other, first))
        if found != expected:
            raise AveragingError(
                f"{path}: {key!r} is {found}, in {first_path} it is {expected}; average checkpoints of one model"
            )


def _described(tensor: Optional[Tensor]) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def average(paths: Sequence[Path]) -> Dict[str, Any]:
    """Return the last checkpoint with its weights replaced by the mean over all checkpoints.

    Sums are in float64 and results are cast back; integer and boolean entries are those of the last file.
    Configuration and training history are kept; the states of the optimiser and of fairseq's EMA are removed. One file
    is in memory at a time.

    Raises:
        AveragingError: if the files do not fit together.
        OSError, ValueError: as :func:`fairseq_mega.compat.files.loading.load`.
    """
    sums: Dict[str, Tensor] = {}
    first: Dict[str, Tensor] = {}
    checkpoint: Dict[str, Any] = {}
    before: Dict[str, Any] = {}
    card: Card = {}
    for path in paths:
        checkpoint = load_checkpoint(path)
        model, own = checkpoint["model"], card_of(checkpoint, path)
        # Tensors on the meta device keep shapes and dtypes without the memory of a second model.
        first = first or {key: torch.empty_like(tensor, device="meta") for key, tensor in model.items()}
        before = before or {"cfg": checkpoint.get("cfg"), "args": checkpoint.get("args"), "model": {}}
        others = other_settings(before, checkpoint)
        if others:
            raise AveragingError(
                f"{paths[0]} was trained with {'; '.join(others)} as {path}, so the same weights compute different "
                f"outputs; average checkpoints of one model"
            )
        check_same_shape(first, model, paths[0], path)
        unlike = differences(card, own, (str(paths[0]), str(path)))
        if unlike:
            raise AveragingError(
                f"{path} was trained on other data than {paths[0]} ({'; '.join(unlike)}); average checkpoints of one "
                f"training, or of trainings on one data folder"
            )
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
    checkpoint["model"] = averaged
    return _for_use(checkpoint)


def _for_use(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """Remove what belongs to the weights of the training."""
    checkpoint.pop("last_optimizer_state", None)
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
