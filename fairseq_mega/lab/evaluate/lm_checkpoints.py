"""Checkpoints of language models, with the record of their training."""

from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.models import FairseqLanguageModel

from fairseq_mega.compat.features import precision
from fairseq_mega.compat.versions import architectures


def training_of(state: Dict[str, Any]) -> Dict[str, Any]:
    """Return seed, updates and precision of a checkpoint's training; None if not recorded."""
    cfg, history = state.get("cfg"), state.get("optimizer_history") or [{}]
    common = cfg["common"] if cfg else vars(state["args"])
    most = cfg["optimization"]["max_update"] if cfg else common.get("max_update")
    updates = history[-1].get("num_updates")
    return {"seed": common.get("seed"), "updates": updates, "max_update": most, "precision": precision.of(common)}


def load(path: Path, data: Path, chunk_size: Optional[int], device: torch.device) -> Tuple[Any, Any, Dict[str, Any]]:
    """Load model and task of a checkpoint for a data folder; return them with the result of :func:`training_of`.

    Raises:
        OSError: if a file is missing.
        ValueError: if the file is not a checkpoint of a language model, or contains more than tensors and plain values.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {"data": str(data)})
    if chunk_size is not None:
        if "test_chunk_size" not in (getattr(state.get("cfg"), "task", None) or ()):
            raise ValueError(
                f"--chunk-size {chunk_size}: {path} has no --task mega_language_modeling; omit --chunk-size"
            )
        state["cfg"].task.test_chunk_size = chunk_size
    with architectures.expect_models_of(FairseqLanguageModel):
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    model.to(device).eval()
    return model, task, training_of(state)
