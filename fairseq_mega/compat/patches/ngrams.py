"""--no-repeat-ngram-size, which fairseq without its CUDA extension looks for in the wrong place."""

import typing

from fairseq_mega.compat.patching import wrap


def look_at_what_was_generated() -> None:
    """Compare with the last words of each hypothesis; fairseq takes the end of the room for them, which is padding."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    wrap(NGramRepeatBlock, "_no_repeat_ngram", _without_room)


def _without_room(
    original: typing.Callable, self: typing.Any, tokens: typing.Any, lprobs: typing.Any, bsz: int, beam: int, step: int
) -> typing.Any:
    return original(self, tokens[:, : step + 1], lprobs, bsz, beam, step)
