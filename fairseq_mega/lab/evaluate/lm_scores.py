"""The perplexity of a language model's checkpoint on a split; each token is scored once."""

import contextlib
import logging
import math
import time
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils, utils
from fairseq.models import FairseqLanguageModel
from torch import Tensor

from fairseq_mega.compat import checks
from fairseq_mega.compat.features import precision
from fairseq_mega.criterions.adaptive_loss import adaptive_nll
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingTask

INTERVAL = 10.0  # seconds between lines on the progress
logger = logging.getLogger("evaluate_lm")


class Setting(NamedTuple):
    """Settings that differ between evaluations; None: as the model was trained, or not applicable."""

    segments: Optional[int] = None
    context: Optional[int] = None  # tokens of a segment
    chunk_size: Optional[int] = None
    context_window: Optional[int] = None
    exact_context: Optional[int] = None


class Sizes(NamedTuple):
    """Sizes that bound the memory; scores do not depend on them."""

    chunk_nums: int  # chunks that one call reads
    max_tokens: int  # of one call, of segments side by side
    softmax_batch: int  # positions whose softmax is in memory


class Score(NamedTuple):
    """The outcome of one evaluation."""

    tokens: int
    bits: float  # per token
    seconds: float
    mean_segment: Optional[float]  # tokens
    longest_segment: Optional[int]


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
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    checks.require_models([model], FairseqLanguageModel)
    model.to(device).eval()
    return model, task, training_of(state)


def negative_log_likelihood(model: Any, features: Tensor, target: Tensor, pad: int, positions: int) -> float:
    """Sum of -log p(target), natural logarithm.

    Args:
        model: a language model of fairseq.
        features: (B, L, d), the input of its output layer.
        target: (B, L) long; ``pad`` is not scored.
        positions: number of positions whose logits are in memory at once.
    """
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    total = 0.0
    pieces = zip(features.flatten(0, 1).split(positions), target.flatten().split(positions))
    for some, expected in pieces:
        if adaptive is not None:
            total += float(adaptive_nll(adaptive, some, expected, pad))
        else:
            logits = model.output_layer(some).float()
            total += float(F.cross_entropy(logits, expected, ignore_index=pad, reduction="sum"))
    return total


def score_batches(model: Any, batches: Any, pad: int, positions: int) -> Tuple[int, float]:
    """Return the number of scored tokens and the sum of their negative log likelihoods; log the progress."""
    device = next(model.parameters()).device
    tokens, total, last = 0, 0.0, time.monotonic()
    for number, sample in enumerate(batches, 1):
        sample = utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
        target = sample["target"].clone()
        for row, start in enumerate(sample.get("start_indices", [])):
            target[row, :start] = pad  # context only
        features, _ = model(**sample["net_input"], features_only=True)
        total += negative_log_likelihood(model, features, target, pad, positions)
        tokens += int(target.ne(pad).sum())
        if time.monotonic() - last > INTERVAL:
            last = time.monotonic()
            logger.info(
                f"{number} of {len(batches)} batches, {tokens:,} tokens, {total / math.log(2) / tokens:.4f} bits"
            )
    return tokens, total


def set_segments(task: MegaLanguageModelingTask, subset: str, setting: Setting, chunk_nums: int) -> None:
    """Make a task read a split in the segments of a setting."""
    task.segments, task.args.chunk_nums = setting.segments or task.segments, chunk_nums
    task.exact_context = setting.exact_context
    if setting.context is not None:
        task.load_dataset(subset)
        task.segments = math.ceil(task.dataset(subset).text.tokens / setting.context)


@contextlib.contextmanager
def shorter_blocks(task: Any, setting: Setting) -> Iterator[None]:
    """Make a task of fairseq read blocks with room for the context window; errors as in :func:`evaluate`."""
    window, block = setting.context_window or 0, task.args.tokens_per_sample
    if (setting.segments, setting.context, setting.exact_context) != (None, None, None):
        raise ValueError("--segments, --contexts, --exact-contexts: this model has no memory; give --context-window")
    if window >= block:
        raise ValueError(f"--context-window {window}: blocks have {block} tokens; give fewer")
    task.args.tokens_per_sample = block - window
    try:
        yield
    finally:
        task.args.tokens_per_sample = block


def evaluate(model: Any, task: Any, subset: str, setting: Setting, sizes: Sizes) -> Score:
    """Score a split.

    Raises:
        ValueError: if a setting is not for this kind of model.
        RuntimeError: if the scored tokens are not the split's.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(task, MegaLanguageModelingTask):
            set_segments(task, subset, setting, sizes.chunk_nums)
        else:
            stack.enter_context(shorter_blocks(task, setting))
        task.load_dataset(subset)
        dataset = task.dataset(subset)
        batches = task.eval_lm_dataloader(
            dataset=dataset,
            max_tokens=sizes.max_tokens,
            batch_size=None,
            max_positions=None,
            num_workers=0,
            data_buffer_size=0,
            context_window=setting.context_window or 0,
        )
    begun = time.perf_counter()
    with torch.no_grad():
        tokens, total = score_batches(model, batches, task.target_dictionary.pad(), sizes.softmax_batch)
    seconds = time.perf_counter() - begun
    streams = isinstance(dataset, StreamedSegmentDataset)
    expected = dataset.text.tokens if streams else int(np.sum(dataset.sizes, dtype=np.int64))
    if tokens != expected:
        raise RuntimeError(f"{tokens:,} of {expected:,} tokens of {subset!r} were scored")
    lengths = dataset.segments[:, 1] - dataset.segments[:, 0] if streams else None
    bits = total / math.log(2) / tokens
    if not math.isfinite(bits):
        raise RuntimeError(f"the loss on {subset!r} is {bits}: the model's weights are broken")
    return Score(
        tokens,
        bits,
        seconds,
        None if lengths is None else float(lengths.mean()),
        None if lengths is None else int(lengths.max()),
    )


def describe(score: Score) -> str:
    """Return one line about a score."""
    rate = f"{score.tokens / score.seconds:,.0f} tokens/s"
    return f"{score.tokens:,} tokens, perplexity {2**score.bits:.2f}, {score.bits:.4f} bits per token, {rate}"
