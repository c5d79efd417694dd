"""Score texts with the memory carried: the batches of an evaluation, and single texts."""

import logging
import math
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.state import StreamState, reorder_state

from .context import device_of

logger = logging.getLogger(__name__)
POSITIONS = 1024  # positions whose logits are in memory at once


class Carry:
    """State of each stream from one call of a model to the next."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, Tuple[List[int], StreamState]] = weakref.WeakKeyDictionary()

    def state(
        self, model: Any, streams: List[int], position: int, device: Optional[torch.device] = None
    ) -> Optional[StreamState]:
        """Return the state of the streams, one per row, after ``position`` tokens each; None at their beginning.

        Args:
            model: model that read the streams.
            streams: indices of streams of the previous call, in any order.
            position: number of tokens that were read of each stream.
            device: device of the state.

        Raises:
            ValueError: if the previous call did not end at ``position`` of these streams.
        """
        if position == 0:
            return None
        before, state = self._kept.get(model, ([], None))
        end = 0 if state is None else state.step
        if end != position or not set(streams) <= set(before):
            raise ValueError(
                f"streams {streams} must continue at token {position}, but streams {before} were read up to token "
                f"{end}: read the batches of a streamed text in their order, each once"
            )
        return reorder_state(state, torch.tensor([before.index(stream) for stream in streams], device=device))

    def keep(self, model: Any, streams: List[int], state: StreamState) -> None:
        """Store ``state`` as the state of the streams, one per row."""
        self._kept[model] = (list(streams), state)

    def added_to(self, sample: Dict[str, Any]) -> Dict[str, Any]:
        """Return the batch, with this carry for the model if it is a batch of streams."""
        if "streams" not in sample.get("net_input", {}):
            return sample
        return {**sample, "net_input": {**sample["net_input"], "carry": self}}


class ScoredOnce:
    """Batches of an evaluation with the carried memory; iterating checks that every token is scored once.

    Args:
        batches: batches of ``dataset``, in order.
        dataset: dataset of streams.
        carry: the carried memory.
    """

    def __init__(self, batches: Any, dataset: StreamedSegmentDataset, carry: Carry) -> None:
        self.batches, self.dataset, self.carry = batches, dataset, carry

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def n(self) -> int:
        """Number of batches so far."""
        return self.batches.n

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        items = tokens = 0
        for sample in self.batches:
            items += sample["id"].numel()
            tokens += sample["ntokens"]
            yield self.carry.added_to(sample)
        expected = self.dataset.text.tokens
        if tokens != expected or items != len(self.dataset):
            raise RuntimeError(f"{tokens:,} of {expected:,} tokens were scored: the batches do not cover the text")
        longest = int((self.dataset.segments[:, 1] - self.dataset.segments[:, 0]).max())
        logger.info(
            f"scored {tokens:,} of {expected:,} tokens, each once, in {counted(self.dataset.segments)} of up to "
            f"{longest:,} tokens"
        )


def counted(segments: Any) -> str:
    """Return the number of segments with its noun."""
    return f"{len(segments):,} segment{'s' * (len(segments) != 1)}"


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
