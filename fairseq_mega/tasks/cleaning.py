"""Clean text that a model reads as its training text was cleaned: in fairseq-interactive, the hub and before subwords.

Many UTF-8 files begin with a byte-order mark, so joined files have marks at the beginning of later lines: marks are
removed from every line.
"""

from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from fairseq import file_utils, utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from fairseq_mega.compat import hooks
from fairseq_mega.compat.files.settings import settings_of
from fairseq_mega.compat.patching import wrap
from fairseq_mega.data.text_cleaning import BYTE_ORDER_MARK, clean, steps_of_folder, steps_of_model


def clean_as_in_training() -> None:
    """Clean text before ``--bpe sentencepiece`` cuts it, or its words are looked up in data without subwords."""
    wrap(SentencepieceBPE, "__init__", _read_steps_of_the_model)
    wrap(SentencepieceBPE, "encode", _encode_cleaned)
    hooks.at("lines", _clean_lines)
    hooks.at("sentence", _clean_sentence)


def _read_steps_of_the_model(original: Callable, self: Any, cfg: Any) -> None:
    original(self, cfg)
    self.cleaning = steps_of_model(Path(file_utils.cached_path(cfg.sentencepiece_model)))


def _encode_cleaned(original: Callable, self: Any, x: str) -> str:
    return original(self, clean(x, self.cleaning))


def _clean_lines(call: hooks.Call) -> Iterator[None]:
    steps = _steps_of_data(call.arguments["self"])
    call.arguments["lines"] = [clean(line.lstrip(BYTE_ORDER_MARK), steps) for line in call.arguments["lines"]]
    yield


def _clean_sentence(call: hooks.Call) -> Iterator[None]:
    steps = _steps_of_data(call.arguments["self"].task)
    call.arguments["sentence"] = clean(call.arguments["sentence"].lstrip(BYTE_ORDER_MARK), steps)
    yield


def _steps_of_data(task: Any) -> Sequence[str]:
    data = getattr(settings_of(task), "data", None)
    folders = utils.split_paths(data) if isinstance(data, str) else []
    return steps_of_folder(Path(folders[0])) if folders else ()
