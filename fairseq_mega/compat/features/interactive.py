"""Read the lines of fairseq-interactive whole, and warn of tokens that are unknown to the model."""

import contextlib
import io
import itertools
import logging
import sys
from typing import Any, ContextManager, Iterator, List, TextIO

from fairseq_mega.compat import hooks

logger = logging.getLogger(__name__)


def read_whole_lines(call: hooks.Call) -> Iterator[None]:
    """Read a line for each line feed of the input, with the blanks at its ends (event "parse").

    fairseq removes these blanks, which are a part of a prompt for models of bytes, and Python also ends lines at
    carriage returns, which shifts lines.
    """
    if "fairseq_cli.interactive" in sys.modules:
        sys.modules["fairseq_cli.interactive"].buffered_read = _buffered_read  # type: ignore[attr-defined]
    yield


def _buffered_read(input: str, buffer_size: int) -> Iterator[List[str]]:
    with _opened(input) as file:
        lines = (line.rstrip("\r\n") for line in file)
        yield from iter(lambda: list(itertools.islice(lines, max(1, buffer_size))), [])


def _opened(name: str) -> ContextManager[TextIO]:
    """Open a file by name, or the standard input for ``-``; lines end at line feeds alone."""
    if name != "-":
        return open(name, encoding="utf-8", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", newline="\n", errors="strict")  # like a file, in every locale
    return contextlib.nullcontext(sys.stdin)


def warn_unknown_tokens(call: hooks.Call) -> Iterator[None]:
    """Warn about lines with tokens that are unknown to the model (event "lines")."""
    yield
    for line, tokens in zip(call.arguments["lines"], call.result[0]):
        warn_unknown(line, tokens, call.arguments["self"].source_dictionary)


def warn_unknown(text: str, tokens: Any, dictionary: Any) -> None:
    """Warn about the tokens of a text that a dictionary does not have.

    Args:
        text: the original text.
        tokens: (L,) long, tokens of the text.
        dictionary: dictionary of the tokens.
    """
    unknown = int((tokens == dictionary.unk()).sum()) - text.split().count(dictionary.unk_word)
    if unknown > 0:
        kept = int((tokens != dictionary.eos()).sum())
        logger.warning(f"{unknown} of the {kept} tokens of the text {text[:40]!r} are unknown to the model (<unk>)")
