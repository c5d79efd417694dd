"""Repair --no-repeat-ngram-size, for which fairseq without its CUDA extension compares the wrong tokens."""

import contextvars
import math
import typing

import torch

from fairseq_mega.compat.patching import wrap

_forced: "contextvars.ContextVar[typing.Optional[torch.Tensor]]" = contextvars.ContextVar("forced", default=None)


def look_at_what_was_generated() -> None:
    """Compare with the last words of each hypothesis; fairseq compares with the end of the buffer, which is padding.

    With a size of 1 no earlier words are compared; fairseq compares a whole row, which never matches. Words of a prompt
    or of --prefix-size may repeat others; in fairseq their hypotheses become impossible, and the search fails.
    """
    from fairseq.ngram_repeat_block import NGramRepeatBlock
    from fairseq.sequence_generator import SequenceGenerator

    wrap(NGramRepeatBlock, "_no_repeat_ngram", _without_room)
    wrap(SequenceGenerator, "_prefix_tokens", _remember_forced)
    wrap(NGramRepeatBlock, "forward", _after_forced)


def _without_room(
    original: typing.Callable, self: typing.Any, tokens: typing.Any, lprobs: typing.Any, bsz: int, beam: int, step: int
) -> typing.Any:
    if self.no_repeat_ngram_size == 1:
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)  # the first symbol ends a sentence
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam, step)


def _remember_forced(
    original: typing.Callable,
    self: typing.Any,
    step: int,
    lprobs: torch.Tensor,
    scores: torch.Tensor,
    tokens: torch.Tensor,
    prefix_tokens: torch.Tensor,
    beam_size: int,
) -> typing.Any:
    """Remember the rows whose next token is given, for the block of n-grams that fairseq calls next, if any."""
    if self.repeat_ngram_blocker is not None:
        _forced.set(prefix_tokens[:, step].ne(self.pad).repeat_interleave(beam_size))
    return original(self, step, lprobs, scores, tokens, prefix_tokens, beam_size)


def _after_forced(
    original: typing.Callable,
    self: typing.Any,
    tokens: torch.Tensor,
    lprobs: torch.Tensor,
    *rest: typing.Any,
    **named: typing.Any,
) -> torch.Tensor:
    """Block repetitions, but in rows whose next token is given."""
    forced = _forced.get()
    _forced.set(None)
    if forced is None:
        return typing.cast(torch.Tensor, original(self, tokens, lprobs, *rest, **named))
    given = lprobs.clone()  # the original writes into its argument
    return torch.where(forced.unsqueeze(1), given, original(self, tokens, lprobs, *rest, **named))
