"""--no-repeat-ngram-size, which fairseq without its CUDA extension looks for in the wrong place."""

import math
import typing

from fairseq_mega.compat.patching import wrap


def look_at_what_was_generated() -> None:
    """Compare with the last words of each hypothesis; fairseq uses the end of the buffer instead, which is padding.

    A single word is compared with no words before it, where fairseq compares a whole row and never finds it.
    """
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    wrap(NGramRepeatBlock, "_no_repeat_ngram", _without_room)


def _without_room(
    original: typing.Callable, self: typing.Any, tokens: typing.Any, lprobs: typing.Any, bsz: int, beam: int, step: int
) -> typing.Any:
    if self.no_repeat_ngram_size == 1:
        return lprobs.scatter_(1, tokens[:, 1 : step + 1], -math.inf)  # the first symbol ends a sentence
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam, step)
