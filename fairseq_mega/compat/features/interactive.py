"""Prepare text for a model in fairseq-interactive and the hub: clean it like the training text."""

import contextlib
import io
import itertools
import logging
import pathlib
import sys
from typing import Any, Callable, ContextManager, Iterator, List, Sequence, TextIO

from fairseq_mega.compat import hooks
from fairseq_mega.compat.files.settings import settings_of
from fairseq_mega.compat.patching import wrap

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = "\ufeff"
Steps = Sequence[str]


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


def clean_as_in_training(
    clean: Callable[[str, Steps], str],
    steps_of_model: Callable[[pathlib.Path], Steps],
    steps_of_folder: Callable[[pathlib.Path], Steps],
) -> None:
    """Clean text before ``--bpe sentencepiece`` cuts it, and before its words are looked up in data without subwords.

    Many UTF-8 files begin with a byte-order mark, so joined files have marks at the beginning of later lines: marks are
    removed from every line.

    Args:
        clean: applies steps to a text.
        steps_of_model: returns the steps recorded in a sentencepiece model.
        steps_of_folder: returns the steps recorded in a data folder.
    """
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

    def with_steps_of_the_model(original: Callable, self: Any, cfg: Any) -> None:
        from fairseq import file_utils

        original(self, cfg)
        self.cleaning = steps_of_model(pathlib.Path(file_utils.cached_path(cfg.sentencepiece_model)))

    def cleaned_for_pieces(original: Callable, self: Any, x: str) -> str:
        return original(self, clean(x, self.cleaning))

    def clean_lines(call: hooks.Call) -> Iterator[None]:
        steps = _steps_of_data(call.arguments["self"], steps_of_folder)
        call.arguments["lines"] = [clean(line.lstrip(BYTE_ORDER_MARK), steps) for line in call.arguments["lines"]]
        yield

    def clean_sentence(call: hooks.Call) -> Iterator[None]:
        steps = _steps_of_data(call.arguments["self"].task, steps_of_folder)
        call.arguments["sentence"] = clean(call.arguments["sentence"].lstrip(BYTE_ORDER_MARK), steps)
        yield

    wrap(SentencepieceBPE, "__init__", with_steps_of_the_model)
    wrap(SentencepieceBPE, "encode", cleaned_for_pieces)
    hooks.at("lines", clean_lines)
    hooks.at("sentence", clean_sentence)


def _steps_of_data(task: Any, steps_of_folder: Callable[[pathlib.Path], Steps]) -> Steps:
    from fairseq import utils

    data = getattr(settings_of(task), "data", None)
    folders = utils.split_paths(data) if isinstance(data, str) else []
    return steps_of_folder(pathlib.Path(folders[0])) if folders else ()
