"""Likelihood of a text by language models, which read the text once with the memory carried."""

import math
from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.state import StreamState

from .context import device_of

POSITIONS = 1024  # positions whose logits are in memory at once


class ScoredTokens(NamedTuple):
    """Scores of the tokens of a text, in order."""

    log_probs: Tensor  # (L,) float64
    greedy: Tensor  # (L,) bool: the token is the likeliest token that is not excluded
    state: Optional[StreamState]  # after all tokens but the last


class Likelihood(NamedTuple):
    """Score of a text.

    Attributes:
        tokens: number of scored tokens, each scored once.
        bytes: bytes of the text in UTF-8.
        bits_per_token, bits_per_byte: -log2 of the text's probability, divided by ``tokens`` or ``bytes``.
        perplexity: perplexity of a token.
    """

    tokens: int
    bytes: int
    bits_per_token: float
    bits_per_byte: float
    perplexity: float


@torch.no_grad()
def score_tokens(
    model: Any, tokens: Sequence[int], state: Optional[StreamState] = None, excluded: Sequence[int] = ()
) -> ScoredTokens:
    """Score each token but the first, given the tokens before it; a call reads whole chunks.

    Args:
        model: language model of this package.
        tokens: at least one token.
        state: state before the first token.
        excluded: tokens that never count as the likeliest token.
    """
    model.eval()
    decoder = model.decoder
    row = torch.tensor([list(tokens)], device=device_of(model))
    inputs, targets = row[:, :-1], row[:, 1:]
    log_probs, greedy = [row.new_zeros(0, dtype=torch.float64)], [row.new_zeros(0, dtype=torch.bool)]
    chunk = max(decoder.chunk_size, 1)
    size = max(POSITIONS // chunk, 1) * chunk
    for begin in range(0, inputs.size(1), size):
        out = decoder.run(inputs[:, begin : begin + size], LayerContext(return_state=True), state)
        state, expected = out.state, targets[:, begin : begin + size]
        for features, some in zip(out.hidden.split(POSITIONS, dim=1), expected.split(POSITIONS, dim=1)):
            scores = model.get_normalized_probs((decoder.output_layer(features), {}), log_probs=True)[0]
            log_probs.append(scores.gather(1, some[0].unsqueeze(1)).squeeze(1).double())
            scores[:, list(excluded)] = -torch.inf
            greedy.append(scores.argmax(dim=1) == some[0])
    return ScoredTokens(torch.cat(log_probs), torch.cat(greedy), state)


def likelihood_of(models: Sequence[Any], tokens: Sequence[int], size: int) -> Likelihood:
    """Score the tokens of a text after the first, by the mean of the probabilities of several models.

    Args:
        models: language models of this package.
        tokens: at least two tokens, the first of them ``</s>``.
        size: bytes of the text, at least one.
    """
    log_probs = torch.stack([score_tokens(model, tokens).log_probs for model in models])
    mean = torch.logsumexp(log_probs, dim=0) - math.log(len(models))
    count, bits = mean.numel(), -float(mean.sum()) / math.log(2)
    return Likelihood(count, size, bits / count, bits / size, 2 ** (bits / count))
