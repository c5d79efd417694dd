"""How fairseq-interactive reads its lines."""

import typing

from .patching import wrap

BYTE_ORDER_MARK = "\ufeff"


def drop_byte_order_marks() -> None:
    """Leave out a byte-order mark in front of a line: fairseq makes an unknown word, or bytes never seen, of it.

    It stands at the beginning of many files of UTF-8, and so within the lines of files that are joined.
    """
    from fairseq.tasks import FairseqTask

    wrap(FairseqTask, "get_interactive_tokens_and_lengths", _without_byte_order_marks)


def _without_byte_order_marks(
    original: typing.Callable,
    self: typing.Any,
    lines: typing.Sequence[str],
    encode_fn: typing.Callable[[str], str],
) -> typing.Any:
    return original(self, [line.lstrip(BYTE_ORDER_MARK) for line in lines], encode_fn)
