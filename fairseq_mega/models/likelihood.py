"""The likelihood that language models give to a text, which they read once with the memory carried."""

import math
from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.state import StreamState

from .context import device_of

POSITIONS = 1024  # whose logits are in memory at once


class ScoredTokens(NamedTuple):
    """Tokens of a text that were scored one after the other."""

    log_probs: Tensor  # (L,) float64
    greedy: Tensor  # (L,) bool: the token is the likeliest one of those that are not excluded
    state: Optional[StreamState]  # after all tokens but the last


class Likelihood(NamedTuple):
    """Score of a text.

    Attributes:
        tokens: how many were scored, each once.
        bytes: of the text in UTF-8.
        bits_per_token, bits_per_byte: -log2 of the text's probability, divided by these numbers.
        perplexity: of a token.
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
    """Score each token but the first, given those before it; whole chunks are read in a call.

    Args:
        model: language model of this package.
        tokens: one at least.
        state: before the first one.
        excluded: tokens that are never the likeliest one.
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
    """Score the tokens of a text behind the first one, by the mean of the probabilities of several models.

    Args:
        models: language models of this package.
        tokens: two at least; ``</s>`` is in front.
        size: bytes of the text, one at least.
    """
    log_probs = torch.stack([score_tokens(model, tokens).log_probs for model in models])
    mean = torch.logsumexp(log_probs, dim=0) - math.log(len(models))
    count, bits = mean.numel(), -float(mean.sum()) / math.log(2)
    return Likelihood(count, size, bits / count, bits / size, 2 ** (bits / count))
