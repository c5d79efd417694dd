"""Prepare text for a model in fairseq-interactive and the hub: clean it like the training text."""

import contextlib
import io
import logging
import pathlib
import re
import sys
import typing

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import wrap

from .translating import SPACES

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = "\ufeff"
TO_LINE_FEEDS = r"`tr '\r' '\n'` makes line feeds of them"  # remedy for carriage returns
MARK = SPACES["sentencepiece"]
Steps = typing.Sequence[str]
Encode = typing.Callable[[str], str]  # returns the symbols of a text, separated by spaces
TOO_LONG = re.compile(r"Size of sample #(\d+) is invalid \(=\(?(?:np\.\w+\()?(\d+).* since max_positions=(\(?)(\d+)")


class _Lines(typing.List[str]):
    """Lines of the input; `first` is the number of the first one, from 1."""

    first = 1


def tell_unknown_symbols() -> None:
    """Warn about a sentence of ``translate`` or ``sample`` with symbols that are unknown to the model."""
    from fairseq.hub_utils import GeneratorHubInterface

    wrap(GeneratorHubInterface, "binarize", _with_unknown_symbols)


def read_whole_lines() -> None:
    """Read a line for each line feed of the input, with the blanks at its ends.

    fairseq removes these blanks, which are a part of a prompt for models of bytes, and Python also ends lines at
    carriage returns, which shifts lines.
    """
    from fairseq import options

    def buffered_read(original: typing.Callable, input: str, buffer_size: int) -> typing.Iterator[typing.List[str]]:
        buffer = _Lines()
        with _opened(input) as file:
            for number, line in enumerate(file, start=1):
                buffer.append(line.rstrip("\r\n"))
                if len(buffer) >= buffer_size:
                    yield buffer
                    buffer = _Lines()
                    buffer.first = number + 1
        if buffer:
            yield buffer

    def replace() -> None:
        interactive = sys.modules.get("fairseq_cli.interactive")
        if interactive is not None:
            wrap(interactive, "buffered_read", buffered_read)
            wrap(interactive, "make_batches", _name_long_lines)

    def with_whole_lines(original: typing.Callable, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        replace()
        return original(*args, **kwargs)

    wrap(options, "get_interactive_generation_parser", with_whole_lines)
    replace()  # fairseq-interactive loads the plugin within that function


def _opened(name: str) -> typing.ContextManager[typing.TextIO]:
    """Open a file by name, or the standard input for ``-``; lines end at line feeds alone."""
    if name != "-":
        return open(name, encoding="utf-8", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", newline="\n", errors="strict")  # like a file, in every locale
    return contextlib.nullcontext(sys.stdin)


def _name_long_lines(
    original: typing.Callable, lines: typing.List[str], cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Iterator[typing.Any]:
    """Raise a ValueError with the number of a line that is too long: fairseq counts within the buffer."""
    try:
        yield from original(lines, cfg, *args, **kwargs)
    except Exception as error:
        source = "the input" if cfg.interactive.input == "-" else cfg.interactive.input
        _raise_too_long(error, "line", getattr(lines, "first", 1), source)
        raise


def name_long_sentences() -> None:
    """Raise a ValueError for a sentence of ``translate`` or ``sample`` that is too long."""
    from fairseq.hub_utils import GeneratorHubInterface

    wrap(GeneratorHubInterface, "_build_batches", _name_long_sentences)


def _name_long_sentences(original: typing.Callable, self: typing.Any, *args: typing.Any) -> typing.Any:
    try:
        return original(self, *args)
    except Exception as error:
        _raise_too_long(error, "sentence", 1, "the list")
        raise


def _raise_too_long(error: Exception, noun: str, first: int, source: str) -> None:
    """Raise a ValueError that names the text, counted from `first`, if fairseq's error is about a long one."""
    found = TOO_LONG.match(str(error))
    if found is None:
        return
    place, length, pair, most = found.groups()
    option = " (--max-source-positions)" if pair else ""
    raise ValueError(
        f"{noun} {first + int(place)} of {source} has {length} tokens with </s>, {most} at most{option}: shorten or "
        f"split the {noun}"
    ) from None


def drop_byte_order_marks(call: hooks.Call) -> typing.Iterator[None]:
    """Remove byte-order marks before lines, which fairseq reads as unknown words or bytes (event "lines").

    Many UTF-8 files begin with a byte-order mark, so joined files have marks at the beginning of later lines.
    """
    lines = call.arguments["lines"]
    if any("\r" in line for line in lines):
        logger.warning(f"a line has carriage returns in it, which do not end lines ({TO_LINE_FEEDS})")
    call.arguments["lines"] = [line.lstrip(BYTE_ORDER_MARK) for line in lines]
    yield


def tell_unknown_symbols_of_lines(call: hooks.Call) -> typing.Iterator[None]:
    """Warn about lines with symbols that are unknown to the model (event "lines")."""
    yield
    task, encode = call.arguments["self"], call.arguments["encode_fn"]
    for line, tokens in zip(call.arguments["lines"], call.result[0]):
        _tell_empty(tokens, task.source_dictionary, task)
        tell_unknown(line, tokens, task.source_dictionary, unchanged=MARK in line and encode(line) == line)


def _with_unknown_symbols(original: typing.Callable, self: typing.Any, sentence: str) -> typing.Any:
    tokens = original(self, sentence)
    _tell_empty(tokens, self.src_dict, self.task)
    tell_unknown(sentence, tokens, self.src_dict, unchanged=getattr(self.bpe, "unchanged", False))
    return tokens


def _tell_empty(tokens: typing.Any, dictionary: typing.Any, task: typing.Any) -> None:
    translates = getattr(getattr(task, "cfg", None), "source_lang", None) is not None
    if translates and bool((tokens == dictionary.eos()).all()):
        logger.warning("a line contains no text: its output is not a translation")


def tell_unknown(text: str, tokens: typing.Any, dictionary: typing.Any, unchanged: bool = False) -> None:
    """Warn about the symbols of a text that a dictionary does not have.

    The warning names the mark of sentencepiece in a text that was read as pieces because of it.

    Args:
        text: the original text.
        tokens: (L,) long, tokens of the text.
        dictionary: dictionary of the tokens.
        unchanged: whether the symbols are those of the text, and no encoder split it.
    """
    unknown = int((tokens == dictionary.unk()).sum()) - text.split().count(dictionary.unk_word)
    if unknown > 0:
        kept = int((tokens != dictionary.eos()).sum())
        is_of_pieces = unchanged and MARK in text and any(MARK in symbol for symbol in dictionary.symbols)
        cause = (
            f": {MARK} (U+2581) makes a text be read as pieces, so remove it from plain text" if is_of_pieces else ""
        )
        logger.warning(
            f"{unknown} of the {kept} symbols of the text {text[:40]!r} are unknown to the model (<unk>){cause}"
        )


def drop_byte_order_mark(call: hooks.Call) -> typing.Iterator[None]:
    """Remove a byte-order mark before a sentence (event "sentence")."""
    call.arguments["sentence"] = call.arguments["sentence"].lstrip(BYTE_ORDER_MARK)
    yield


def clean_as_in_training(
    clean: typing.Callable[[str, Steps], str],
    steps_of_model: typing.Callable[[pathlib.Path], Steps],
    steps_of_folder: typing.Callable[[pathlib.Path], Steps],
) -> None:
    """Clean text before ``--bpe sentencepiece`` cuts it, and before its words are looked up in data without pieces.

    Args:
        clean: applies steps to a text.
        steps_of_model: returns the steps recorded in a sentencepiece model.
        steps_of_folder: returns the steps recorded in a data folder.
    """
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

    def with_steps_of_the_model(original: typing.Callable, self: typing.Any, cfg: typing.Any) -> None:
        from fairseq import file_utils

        original(self, cfg)
        self.cleaning = steps_of_model(pathlib.Path(file_utils.cached_path(cfg.sentencepiece_model)))

    def cleaned_for_pieces(original: typing.Callable, self: typing.Any, x: str) -> str:
        return original(self, clean(x, self.cleaning))

    def clean_lines(call: hooks.Call) -> typing.Iterator[None]:
        steps = _steps_of_data(call.arguments["self"], steps_of_folder)
        call.arguments["lines"] = [clean(line, steps) for line in call.arguments["lines"]]
        yield

    def clean_sentence(call: hooks.Call) -> typing.Iterator[None]:
        steps = _steps_of_data(call.arguments["self"].task, steps_of_folder)
        call.arguments["sentence"] = clean(call.arguments["sentence"], steps)
        yield

    wrap(SentencepieceBPE, "__init__", with_steps_of_the_model)
    wrap(SentencepieceBPE, "encode", cleaned_for_pieces)
    hooks.at("lines", clean_lines)
    hooks.at("sentence", clean_sentence)


def _steps_of_data(task: typing.Any, steps_of_folder: typing.Callable[[pathlib.Path], Steps]) -> Steps:
    from fairseq import utils

    settings = getattr(task, "args", None) or getattr(task, "cfg", None)
    data = getattr(settings, "data", None)
    folders = utils.split_paths(data) if isinstance(data, str) else []
    return steps_of_folder(pathlib.Path(folders[0])) if folders else ()
