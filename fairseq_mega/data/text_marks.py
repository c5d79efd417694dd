"""Marks that a text made for another tool has, and plain text does not."""

import re
import unicodedata
from typing import Callable, Dict, Iterable

_FORMS = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff61-\uff9f]")

PROCESSED: Dict[str, Callable[[str], object]] = {  # a search for the marks in a line
    "escapes such as &apos; and &quot;": re.compile(r"&(apos|quot|amp|lt|gt|nbsp|#x?[0-9a-fA-F]+);").search,
    "subwords that end in @@": re.compile(r"\S@@(\s|$)").search,
    "pieces of sentencepiece (\u2581)": re.compile("\u2581").search,
    "words joined by @-@": re.compile(r"\s@-@\s").search,
    "tags such as <seg> and <br>": re.compile(r"</?(seg|hl|p|br|tuv?|s|b|i)(\s[^<>]*)?/?>").search,
}
_COMPOSED = "accents that are not composed (`uconv -x any-nfc` composes them)"
WRITTEN: Dict[str, Callable[[str], object]] = {  # otherwise, what looks alike
    _COMPOSED: lambda line: not unicodedata.is_normalized("NFC", line),
    "invisible characters, as soft hyphens and zero-width spaces": re.compile("[\u00ad\u200b\u2060\ufeff]").search,
    "letters and digits of full width, or kana of half of it": _FORMS.search,
}


def counted(lines: Iterable[str], has_mark: Callable[[str], object]) -> int:
    """Return how many lines have a mark."""
    return sum(bool(has_mark(line)) for line in lines)
