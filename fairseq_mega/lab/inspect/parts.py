"""Summary of a checkpoint: its options, its training, and parameters by part."""

import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from torch import Tensor

from fairseq_mega.compat.files.card import card_of, shown
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import layouts
from fairseq_mega.convert.options import flat_options
from fairseq_mega.lab.runs.text_tables import Table, terminal

# The first pattern that matches a tensor's name decides its part.
PARTS = (
    (r"\.ema\.|\.cema\.", "moving average"),
    (r"\.cross_attention\.", "cross attention"),
    (r"\.feed_forward\.", "feed-forward"),
    (r"\.layers\.\d+\.", "gated attention"),
    (r"\.embedding\.", "embeddings"),
    (r"output|adaptive_softmax|head\.", "output"),
    (r"final_norm", "final norm"),
)
BUFFERS = re.compile(  # names of tensors that are not learned
    r"(^|\.)(dictionary_fingerprints?|sample_scale|version|_float_tensor|running_\w+|num_batches_tracked|start)$"
)


def read(path: Path) -> Dict[str, Any]:
    """Return a checkpoint of this package, or a converted published one; raise OSError and ValueError."""
    checkpoint = load_checkpoint(path)
    return layouts.to_ours(checkpoint, str(path)) if layouts.is_published_file(checkpoint) else checkpoint


def summary(checkpoint: Dict[str, Any]) -> str:
    """Return options, training and parameters by part of a checkpoint."""
    counts = parameters_by_part(checkpoint["model"])
    total = max(sum(count for _, count in counts), 1)
    lines = [f"{name:18}{value}" for name, value in description(checkpoint)]
    rows = [[f"  {part}", f"{count:,}", f"{count / total:.1%}"] for part, count in counts]
    return "\n".join([*lines, "", terminal(Table(["parameters", f"{total:,}", ""], rows))])


def part_of(name: str) -> str:
    """Return side and part of a tensor, for instance "encoder gated attention"."""
    part = next((part for pattern, part in PARTS if re.search(pattern, name)), "other")
    side = name.split(".")[0]
    return f"{side} {part}" if side in ("encoder", "decoder") else part


def parameters_by_part(model: Dict[str, Tensor]) -> List[Tuple[str, int]]:
    """Return the number of parameters of each part, the largest first; shared tensors are counted once."""
    counts: Dict[str, int] = {}
    seen = set()
    for name, tensor in model.items():
        place = (tensor.data_ptr(), tensor.shape)
        if BUFFERS.search(name) or place in seen:
            continue
        seen.add(place)
        counts[part_of(name)] = counts.get(part_of(name), 0) + tensor.numel()
    return sorted(counts.items(), key=lambda item: -item[1])


def description(checkpoint: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return the names and values of a checkpoint's model and training, without absent values."""
    options = flat_options(checkpoint)
    history = (checkpoint.get("optimizer_history") or [{}])[-1]
    extra = checkpoint.get("extra_state") or {}
    chunks = {side: options.get(f"{side}_chunk_size") for side in ("encoder", "decoder")}
    chunks = {side: "none: full attention" if size in (-1, "-1") else size for side, size in chunks.items()}
    iterator = extra.get("train_iterator") or {}
    found = [
        ("architecture", options.get("arch")),
        ("task", options.get("task")),
        *((f"{side} chunk", size) for side, size in chunks.items()),
        ("EMA truncation", options.get("truncation_length") or None),
        ("tokens per sample", options.get("tokens_per_sample")),
        ("source positions", options.get("max_source_positions")),
        ("target positions", options.get("max_target_positions")),
        ("positions", options.get("max_positions")),
        *((entry, shown(text)) for entry, text in sorted(card_of(checkpoint, "the checkpoint").items())),
        ("updates", history.get("num_updates")),
        ("optimizer", history.get("optimizer_name") or None),
        ("epoch", iterator.get("epoch")),
        ("best score", extra.get("best")),
        ("validation loss", extra.get("val_loss")),
    ]
    return [(name, str(value)) for name, value in found if value is not None]
