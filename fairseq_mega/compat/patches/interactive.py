"""Text on its way to a model, in fairseq-interactive and through the hub: cleaned as the training text was."""

import fileinput
import io
import logging
import pathlib
import sys
import typing

from fairseq_mega.compat.patching import ModuleWith, wrap

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = "\ufeff"
TO_LINE_FEEDS = r"`tr '\r' '\n'` makes line feeds of them"  # of carriage returns
Steps = typing.Sequence[str]


def drop_byte_order_marks() -> None:
    """Leave out a byte-order mark in front of a line: fairseq makes an unknown word, or bytes never seen, of it.

    It stands at the beginning of many files of UTF-8, and so within the lines of files that are joined.
    """
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask

    wrap(FairseqTask, "get_interactive_tokens_and_lengths", _without_byte_order_marks)
    wrap(GeneratorHubInterface, "tokenize", _without_a_byte_order_mark)


def tell_unknown_symbols() -> None:
    """Warn of a text with symbols that are unknown to the model: its output for them is no translation."""
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask

    wrap(FairseqTask, "get_interactive_tokens_and_lengths", _with_unknown_symbols_of_lines)
    wrap(GeneratorHubInterface, "binarize", _with_unknown_symbols)


def end_lines_at_line_feeds() -> None:
    """Read a line for each line feed of the input: to Python a carriage return ends one, too, and later lines shift."""
    from fairseq import options

    wrap(options, "get_interactive_generation_parser", _with_lines_of_line_feeds)
    _read_lines_of_line_feeds()  # fairseq-interactive loads the plugin within that function


def _with_lines_of_line_feeds(original: typing.Callable, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    _read_lines_of_line_feeds()
    return original(*args, **kwargs)


def _read_lines_of_line_feeds() -> None:
    interactive = sys.modules.get("fairseq_cli.interactive")
    if interactive is None:
        return

    def hook_encoded(encoding: str) -> typing.Callable:
        return lambda name, mode: open(name, mode, encoding=encoding, newline="\n")

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(newline="\n", errors="strict")  # as a file: C.UTF-8 accepts any bytes
    vars(interactive)["fileinput"] = ModuleWith(fileinput, hook_encoded=hook_encoded)


def _without_byte_order_marks(
    original: typing.Callable,
    self: typing.Any,
    lines: Steps,
    encode_fn: typing.Callable[[str], str],
) -> typing.Any:
    if any("\r" in line for line in lines):
        logger.warning(f"a line has carriage returns in it, which end no line ({TO_LINE_FEEDS})")
    return original(self, [line.lstrip(BYTE_ORDER_MARK) for line in lines], encode_fn)


def _with_unknown_symbols_of_lines(
    original: typing.Callable, self: typing.Any, lines: Steps, encode_fn: typing.Callable[[str], str]
) -> typing.Any:
    found = original(self, lines, encode_fn)
    for line, tokens in zip(lines, found[0]):
        _tell_empty(line, self)
        tell_unknown(line, tokens, self.source_dictionary)
    return found


def _with_unknown_symbols(original: typing.Callable, self: typing.Any, sentence: str) -> typing.Any:
    tokens = original(self, sentence)
    _tell_empty(sentence, self.task)
    tell_unknown(sentence, tokens, self.src_dict)
    return tokens


def _tell_empty(text: str, task: typing.Any) -> None:
    if not text.strip() and getattr(getattr(task, "cfg", None), "source_lang", None) is not None:
        logger.warning("a line holds no text: what the model makes of it is no translation")


def tell_unknown(text: str, tokens: typing.Any, dictionary: typing.Any) -> None:
    """Warn of the symbols of a text that a dictionary does not have.

    Args:
        text: as it was written.
        tokens: (L,) long, of the text.
        dictionary: that made them.
    """
    unknown = int((tokens == dictionary.unk()).sum()) - text.split().count(dictionary.unk_word)
    if unknown > 0:
        kept = int((tokens != dictionary.eos()).sum())
        logger.warning(f"{unknown} of the {kept} symbols of the text {text[:40]!r} are unknown to the model (<unk>)")


def _without_a_byte_order_mark(original: typing.Callable, self: typing.Any, sentence: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in sentence):
        raise ValueError(f"the text {sentence[:40]!r} is not Unicode: it holds bytes that were not decoded")
    return original(self, sentence.lstrip(BYTE_ORDER_MARK))


def clean_as_in_training(
    clean: typing.Callable[[str, Steps], str],
    steps_of_model: typing.Callable[[pathlib.Path], Steps],
    steps_of_folder: typing.Callable[[pathlib.Path], Steps],
) -> None:
    """Clean text before ``--bpe sentencepiece`` cuts it, and before data without pieces look its words up.

    Args:
        clean: applies steps to a text.
        steps_of_model: that the file of a sentencepiece model names.
        steps_of_folder: that a data folder names.
    """
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
    from fairseq.hub_utils import GeneratorHubInterface
    from fairseq.tasks import FairseqTask

    def with_steps_of_the_model(original: typing.Callable, self: typing.Any, cfg: typing.Any) -> None:
        from fairseq import file_utils

        original(self, cfg)
        self.cleaning = steps_of_model(pathlib.Path(file_utils.cached_path(cfg.sentencepiece_model)))

    def cleaned_for_pieces(original: typing.Callable, self: typing.Any, x: str) -> str:
        return original(self, clean(x, self.cleaning))

    def lines_cleaned_for_the_data(
        original: typing.Callable, self: typing.Any, lines: Steps, encode_fn: typing.Callable[[str], str]
    ) -> typing.Any:
        steps = _steps_of_data(self, steps_of_folder)
        return original(self, [clean(line, steps) for line in lines], encode_fn)

    def cleaned_for_the_data(original: typing.Callable, self: typing.Any, sentence: str) -> str:
        return original(self, clean(sentence, _steps_of_data(self.task, steps_of_folder)))

    wrap(SentencepieceBPE, "__init__", with_steps_of_the_model)
    wrap(SentencepieceBPE, "encode", cleaned_for_pieces)
    wrap(FairseqTask, "get_interactive_tokens_and_lengths", lines_cleaned_for_the_data)
    wrap(GeneratorHubInterface, "tokenize", cleaned_for_the_data)


def _steps_of_data(task: typing.Any, steps_of_folder: typing.Callable[[pathlib.Path], Steps]) -> Steps:
    from fairseq import utils

    settings = getattr(task, "args", None) or getattr(task, "cfg", None)
    data = getattr(settings, "data", None)
    folders = utils.split_paths(data) if isinstance(data, str) else []
    return steps_of_folder(pathlib.Path(folders[0])) if folders else ()
