"""The perplexity of a language model on a split; each token is scored once."""

import contextlib
import math
import time
from typing import Any, Iterator, NamedTuple, Optional

import numpy as np
import torch

from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.lab.evaluate.lm_likelihood import score_batches
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingTask


class Setting(NamedTuple):
    """Settings that differ between evaluations; None: as the model was trained, or not applicable."""

    segments: Optional[int]
    context: Optional[int]  # tokens of a segment
    chunk_size: Optional[int]
    context_window: Optional[int]
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
