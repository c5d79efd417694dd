"""Repair --no-repeat-ngram-size, for which fairseq without its CUDA extension compares the wrong tokens."""

import math
import typing

from fairseq_mega.compat.patching import wrap


def look_at_what_was_generated() -> None:
    """Compare with the last words of each hypothesis; fairseq compares with the end of the buffer, which is padding.

    With a size of 1 no earlier words are compared; fairseq compares a whole row, which never matches.
    """
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    wrap(NGramRepeatBlock, "_no_repeat_ngram", _without_room)


def _without_room(
    original: typing.Callable, self: typing.Any, tokens: typing.Any, lprobs: typing.Any, bsz: int, beam: int, step: int
) -> typing.Any:
    if self.no_repeat_ngram_size == 1:
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)  # the first symbol ends a sentence
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam, step)
