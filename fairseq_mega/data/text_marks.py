"""Marks that a text made for another tool has, and plain text does not."""

import contextlib
import re
import unicodedata
from typing import Callable, Dict, Iterable, Iterator, Sequence

_FORMS = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff61-\uff9f]")

_SUSPECT = re.compile("[\u00c2\u00c3\u00c5\u00d0\u00d1\u00e2].")


def _is_misread(line: str) -> bool:
    """Return whether a word of a line is UTF-8 once it is written in an encoding of one byte a character."""
    words = line.split() if _SUSPECT.search(line) else []
    for word in filter(_SUSPECT.search, words):
        for encoding in ("cp1252", "latin-1"):
            with contextlib.suppress(UnicodeError):
                return bool(word.encode(encoding).decode("utf-8"))
    return False


PROCESSED: Dict[str, Callable[[str], object]] = {  # a search for the marks in a line
    "escapes such as &apos; and &quot;": re.compile(r"&(apos|quot|amp|lt|gt|nbsp|#x?[0-9a-fA-F]+);").search,
    "subwords that end in @@": re.compile(r"\S@@(\s|$)").search,
    "pieces of sentencepiece (\u2581)": re.compile("\u2581").search,
    "words joined by @-@": re.compile(r"\s@-@\s").search,
    "letters such as \u00c3\u00a9 for \u00e9, of UTF-8 that was read as another encoding": _is_misread,
    "tags such as <seg> and <br>": re.compile(r"</?(seg|hl|p|br|tuv?|s|b|i)(\s[^<>]*)?/?>").search,
}
_COMPOSED = "accents that are not composed (`uconv -x any-nfc` composes them)"
WRITTEN: Dict[str, Callable[[str], object]] = {  # otherwise, what looks alike
    _COMPOSED: lambda line: not unicodedata.is_normalized("NFC", line),
    "invisible characters, as soft hyphens and zero-width spaces": re.compile("[\u00ad\u200b\u2060\ufeff]").search,
    "letters and digits of full width, or kana of half of it": _FORMS.search,
}


_MANY = 0.01  # of the lines


def told_marks(path: object, lines: Sequence[str]) -> Iterator[str]:
    """Notes on the marks of other tools in a training text: a model of it needs them in each text that it reads."""
    for what, has_mark in PROCESSED.items():
        count = counted(lines, has_mark)
        if count >= max(1, _MANY * len(lines)):
            yield (
                f"note: {count:,} of the {len(lines):,} lines of {path} hold {what}, which are learnt as they are: "
                f"undo them, or write new texts alike"
            )


def counted(lines: Iterable[str], has_mark: Callable[[str], object]) -> int:
    """Return how many lines have a mark."""
    return sum(bool(has_mark(line)) for line in lines)
