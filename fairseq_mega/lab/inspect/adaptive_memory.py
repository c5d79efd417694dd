"""Bytes that adaptive tables keep for each token: bands of a dictionary that is sorted by frequency.

A token costs the head, and its own band alone; which share of a text falls into a band is taken from Zipf's law (word n
comes in proportion to 1 / n), unless it is given. The backward pass begins with all logits, and holds the gradients of
one band at a time, the widest. Dropout within the tables is left out.

Source: AdaptiveSoftmax and AdaptiveInput of fairseq.
"""

from typing import List, Optional, Sequence

from omegaconf import DictConfig

from fairseq_mega.models.tables import band_ends

from .layer_memory import WIDE

INDEX = 24  # bytes of the places, classes and targets of a token in a rarer band
MASK = 9  # bytes of a token's mask and place in the bands of an adaptive input


def zipf_shares(ends: Sequence[int]) -> List[float]:
    """The shares of bands that end before these symbols, the last of which is their number."""
    sums, total = [], 0.0
    for number in range(1, ends[-1] + 1):
        total += 1 / number
        if number in ends:
            sums.append(total)
    return [(high - low) / total for low, high in zip([0.0, *sums], sums)]


def adaptive_output_bytes(cfg: DictConfig, symbols: int, given: Optional[Sequence[float]] = None) -> float:
    """Bytes of an adaptive softmax for each token, on average; ``given``: the shares of the bands."""
    ends = [*band_ends("--adaptive-softmax-cutoff", cfg.adaptive_softmax_cutoff, symbols), symbols]
    shares, d = given or zipf_shares(ends), cfg.decoder_embed_dim
    widths = [float(ends[0] + len(ends) - 1)]
    widths += [share * (high - low) for share, low, high in zip(shares[1:], ends, ends[1:])]
    rare = [WIDE * (d + d // cfg.adaptive_softmax_factor**band) + INDEX for band in range(1, len(ends))]
    return WIDE * (sum(widths) + max(widths)) + sum(share * size for share, size in zip(shares[1:], rare))


def adaptive_input_bytes(cfg: DictConfig, symbols: int, given: Optional[Sequence[float]] = None) -> float:
    """Bytes of an adaptive input for each token, on average, beside its embedding of width d."""
    cutoff = cfg.adaptive_input_cutoff or cfg.adaptive_softmax_cutoff
    shares = given or zipf_shares([*band_ends("--adaptive-input-cutoff", cutoff, symbols), symbols])
    first = cfg.decoder_input_dim or cfg.decoder_embed_dim
    return MASK + sum(share * WIDE * (first // cfg.adaptive_input_factor**band) for band, share in enumerate(shares))
