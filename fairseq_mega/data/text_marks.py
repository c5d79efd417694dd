"""Marks of other tools in a text, which plain text does not have."""

import re
import unicodedata
from collections import Counter
from html.entities import html5
from pathlib import Path
from string import punctuation
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

_FORMS = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff61-\uff9f]")

# Single-byte letters that are the UTF-8 of other letters: a combination that no text has otherwise, or two in a row,
# as a single one may be an accent before a closing quotation mark.
_BYTES = {ord(char): byte for byte in range(0x80, 0xA0) for char in bytes([byte]).decode("cp1252", "ignore")}
_MISREAD = re.compile(
    "[\xc2\xc3\xc5\xd0\xd1][\x80-\xbf]|\xe1[\xba\xbb][\x80-\xbf]|\xe2\x80[\x80-\xbf]"
    "|([\xc4-\xde][\x80-\xbf]){2}|([\xe0-\xef][\x80-\xbf]{2}){2}"
)

_ESCAPE = re.compile(r"&(#\d+;|#[xX][0-9a-fA-F]+;|[a-zA-Z][a-zA-Z0-9]+;)")
_DOCUMENT = re.compile(r"^\s*<doc( [a-z]+=\"[^\"]*\")+>\s*$")
_SPECIAL = re.compile(r"<\|[a-z_]+\|>|^\s*(<(eos|bos|pad)>|\[(SEP|CLS|EOS)\])\s*$", re.IGNORECASE)
_TAG = re.compile(  # excludes <unk> and List<String>
    r"</?(seg|hl|p|br|tuv?|s|b|i)(\s[^<>]*)?/?>"
    r"|</[a-zA-Z][\w:.-]*\s*>|<[a-zA-Z][\w:.-]*(\s+[\w:.-]+\s*=\s*[\"'][^<>]*/?|\s*/)>"
    r"|<\?xml|<!DOCTYPE\b|<!--",
    re.IGNORECASE,
)

# Strings of code, and paths of Windows, where a backslash is meant.
_MEANT = re.compile(
    r"(?<!\\)\"(?:[^\"\\]|\\.)*\"|(?<![\w\\])[bfru]{0,2}'(?:[^'\\]|\\.)*'(?!\w)|`[^`]*`|\b[a-zA-Z]:\\\S*|(?<!\S)\\\\\w\S*"
)
_BACKSLASH = re.compile(
    r"\\[uU](?=[a-fA-F]*\d)[\da-fA-F]{4}|\\x(?!def)[\da-fA-F]{2}"  # \u00e9 or \xe9
    r"|\w:\\/\\/|\w\\'(?:s|t|re|ve|ll)\b|[\w.,!?]\\\"(?=[\s.,;:!?)]|$)"  # https:\/\/, don\'t or \"yes\"
    r"|[\w.,;:!?\"](?<!\\[a-z])(?:\\r)?\\[nt](?![a-z{])|\\n(?:\\r)?(?:\\n|[A-Z])"  # end.\nBegin, unlike \nabla
    r"|^[^\\${}]*(?:\w\\n[a-z][^\\${}]*){2,}$"  # one\ntwo\nthree and nothing of LaTeX
)

_LATEX = "begin|end|(sub)*section|chapter|emph|text[a-z]{2}|cite[a-z]*|(eq)?ref|label|footnote|usepackage|documentclass"


def _is_escaped(line: str) -> bool:
    """Return whether a line holds an escape of HTML or of Moses."""
    return any(name.startswith("#") or name in html5 for name in _ESCAPE.findall(line))


def _is_misread(line: str) -> bool:
    """Return whether a line has letters of UTF-8 that was read as cp1252 or Latin-1."""
    return not line.isascii() and _MISREAD.search(line.translate(_BYTES)) is not None


def _is_lost(line: str) -> bool:
    """Return whether a line has marks in place of letters that an encoding lacks."""
    if "\ufffd" in line:
        return True
    if "?" not in line:
        return False
    words = (word.strip(punctuation) for word in line.split())
    inside = any("?" in word and word.replace("?", "").isalpha() for word in words)
    return inside or ("??" in line and not any(map(str.isalnum, line)))


def _has_backslashes(line: str) -> bool:
    """Return whether a line holds escapes such as those of JSON outside of strings of code."""
    return "\\" in line and _BACKSLASH.search(_MEANT.sub('""', line)) is not None


PROCESSED: Dict[str, Callable[[str], object]] = {  # name of a mark -> search for the mark in a line
    "escapes such as &apos; and &quot;": _is_escaped,
    r"backslash escapes such as \u00e9 and \n (write the characters themselves)": _has_backslashes,
    "subwords that end in @@": re.compile(r"\S@@(\s|$)").search,
    "pieces of sentencepiece (\u2581)": re.compile("\u2581").search,
    "pieces of WordPiece (##) or GPT-2 (\u0120)": re.compile(r"\w ##\w|\u0120\w+ \u0120\w").search,
    "symbols of other models such as [CLS] and [SEP]": re.compile(r"\[(CLS|SEP|PAD|MASK|UNK)\]").search,
    "words joined by @-@": re.compile(r"\s@-@\s").search,
    "letters such as \u00c3\u00a9 for \u00e9, of UTF-8 that was read as another encoding": _is_misread,
    "? or \ufffd in place of letters that an encoding lacks (get the text again, in UTF-8)": _is_lost,
    "headers such as <doc id=...> of WikiExtractor": _DOCUMENT.search,
    "symbols of other models such as <|endoftext|> (an empty line divides documents)": _SPECIAL.search,
    "tags such as <seg> and <br>": _TAG.search,
    "times of subtitles": re.compile(r"^(\d+:)?\d\d:\d\d[.,]\d{3} --> ").search,
    "commands of LaTeX": re.compile(rf"\\({_LATEX})\b *[\[{{]").search,
    "marks of Markdown": re.compile(r"^#{2,6} \S|^```|\*\*\w[^*]*\*\*|\[[^\]]+\]\((https?:|#|\.)[^)]*\)").search,
}
_COMPOSED = "accents that are not composed (`uconv -x any-nfc` composes them)"
WRITTEN: Dict[str, Callable[[str], object]] = {  # other ways to write characters that look the same
    _COMPOSED: lambda line: not unicodedata.is_normalized("NFC", line),
    "invisible characters such as soft hyphens and zero-width spaces": re.compile("[\u00ad\u200b\u2060\ufeff]").search,
    "full-width letters and digits, or half-width kana": _FORMS.search,
}


_MISSING = re.compile(  # a missing value of databases, of R, Python and JavaScript, and of spreadsheets
    r"NA|NaT|None|(?i:\\N|null|<null>|\(null\)|-?nan|<na>|n/a|undefined|\((?:blank|empty)\)"
    r"|#(?:n/?a|name\?|null!|ref!|div/0!|value!|num!))"
)
_CELL = re.compile(r'(^|[,;\t])"([^"]|"")*"([,;\t]|$)|^\d+[,;\t](?!\d)').search  # quotes, or a number of rows
_HOLDING: Dict[str, Callable[[str], bool]] = {  # lines of CSV that have such a field
    "with a comma": lambda line: "," in line.rstrip(","),
    "with a semicolon": lambda line: ";" in line.rstrip(";"),
    "with text": lambda line: True,
}
_NEARLY = 0.9  # share of such lines in CSV
_MANY = 0.01  # share of the lines
_MOST = 0.5  # share of the lines with text
_FIELDS = 10  # such lines that are no chance
_FEW = 20  # lines that may be equal by chance
_ALWAYS = (_DOCUMENT.search, _SPECIAL.search)  # reported even if only one line has the mark
SAMPLE = 4_000_000  # characters or bytes at the beginning of a text that are searched for marks


def told_marks(path: object, lines: Sequence[str], first: bool = False, most: float = _MOST) -> Iterator[str]:
    """Yield notes on marks of other tools in a training text, and on a line that is much of the text.

    A model trained on a text with marks expects the marks in every text.

    Args:
        path: name of the text.
        lines: lines of the text.
        first: whether ``lines`` are only the first lines of the text.
        most: share of the lines that may be one line.
    """
    for what, has_mark in PROCESSED.items():
        count = counted(lines, has_mark)
        if count >= (1 if has_mark in _ALWAYS else max(1, _MANY * len(lines))):
            yield (
                f"note: {count:,} of the {'first ' if first else ''}{len(lines):,} lines of {path} hold {what}, which "
                f"the model learns: remove them, or give every text to the model in the same form"
            )
    text = [line.strip() for line in lines if line.strip()]
    for name, holds in _HOLDING.items():
        holding = list(filter(holds, text))
        fields = counted(holding, _CELL)
        if fields >= max(_FIELDS, _NEARLY * len(holding)):
            yield (
                f"note: {fields:,} of the {len(holding):,} lines of {path} {name} have fields in double quotes, or "
                "numbers, as in a table of CSV, and the model learns them: save the column as plain text"
            )
            break
    line, count = Counter(text).most_common(1)[0] if len(text) >= _FEW else ("", 0)
    if count > most * len(text):
        yield f"note: {count:,} of the {len(text):,} lines of {path} are {line[:60]!r}: leave them out unless meant"


def told_missing(
    path: object, fields: Sequence[str], rows: str, what: str = "text", share: float = _MANY
) -> Iterator[str]:
    """Yield a note on fields that are words for a missing value.

    Args:
        path: name of the text.
        rows: name of the places of the fields, in the plural.
        what: name of a field.
        share: least share of such fields that is reported; one is always needed.
    """
    missing = Counter(field.strip() for field in fields if _MISSING.fullmatch(field.strip()))
    count = sum(missing.values())
    if count >= max(1, share * len(fields)):
        words = ", ".join(repr(word) for word, _ in missing.most_common())
        yield (
            f"note: {count:,} of the {len(fields):,} {rows} of {path} have the {what} {words}, as programs write a "
            f"missing value, which the model learns as a {what}: leave them out unless they are meant"
        )


def first_lines(path: Path) -> Tuple[List[str], bool]:
    """Return the first lines of a file in UTF-8, and whether the file has more lines."""
    with path.open("rb") as stream:
        text = stream.read(SAMPLE)
        more = bool(stream.read(1))
    lines = text.decode("utf-8", "replace").splitlines()
    return (lines[:-1] or lines) if more else lines, more


def counted(lines: Iterable[str], has_mark: Callable[[str], object]) -> int:
    """Return the number of lines that have a mark."""
    return sum(bool(has_mark(line)) for line in lines)
