"""The likelihood of the tokens of batches under a language model."""

import logging
import math
import time
from typing import Any, Tuple

import torch.nn.functional as F
from fairseq import utils
from torch import Tensor

from fairseq_mega.criterions.adaptive_loss import adaptive_nll

INTERVAL = 10.0  # seconds between lines on the progress
logger = logging.getLogger("evaluate_lm")


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
