"""Generated tables in a Markdown file, each between two markers, and the markers of pictures.

<!-- table: NAME ARGUMENT ... -->
| ... |
<!-- /table -->
"""

import re
import shlex
from pathlib import Path
from typing import Callable, List, Mapping, NamedTuple, Sequence, Tuple, TypeVar

BEGIN, END = "<!-- table: ", "<!-- /table -->"
PICTURE = "<!-- picture: "
TITLE = re.compile(r"#+ (?P<heading>.+)|\*\*(?P<bold>[^*]+)\*\*")
IMAGE = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<file>[^)]+)\)")
BLOCK = re.compile(r"^<!-- table: (?P<call>[^\n]*?) -->\n(?P<body>.*?)^<!-- /table -->$", re.DOTALL | re.MULTILINE)


class Call(NamedTuple):
    """A request for a table or a picture: its name, and its result files or folders."""

    name: str
    words: List[str]

    def __str__(self) -> str:
        return shlex.join([self.name, *self.words])


def _call(text: str) -> Call:
    name, *words = shlex.split(text)
    return Call(name, words)


Made = TypeVar("Made")


def make(kind: str, makers: Mapping[str, Callable[[Path, Sequence[str]], Made]], document: Path, call: Call) -> Made:
    """Return the table or picture of a document's marker.

    Args:
        kind: "table" or "picture", for messages.
        makers: functions of the document's folder and the words of the call, by names of calls.

    Raises:
        ValueError: naming document and call, if it is unknown or a result is missing or damaged.
    """
    where = f"{document}: {kind} {str(call)!r}"
    if call.name not in makers:
        raise ValueError(f"{where} is unknown: give {', '.join(sorted(makers))}")
    try:
        return makers[call.name](document.parent, call.words)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{where}: {error!r}" if isinstance(error, KeyError) else f"{where}: {error}") from error


def check_pairs(text: str) -> None:
    """Raise a ValueError, naming the line, for a marker without its other half."""
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        begins, ends = line.startswith(BEGIN), line == END
        if (begins and (is_open or not line.endswith(" -->"))) or (ends and not is_open):
            raise ValueError(f"line {number}: a table begins with '{BEGIN}NAME ... -->' and ends with '{END}'")
        is_open = begins or (is_open and not ends)
    if is_open:
        raise ValueError(f"the last table has no '{END}'")


def replace(text: str, fill: Callable[[Call, str], str]) -> str:
    """Return the text with every table replaced by ``fill``, a function of the call and the present table.

    Raises:
        ValueError: for a marker without its other half.
    """
    check_pairs(text)

    def block(match: "re.Match[str]") -> str:
        return f"{BEGIN}{match['call']} -->\n{fill(_call(match['call']), match['body'].rstrip())}\n{END}"

    return BLOCK.sub(block, text)


def pictures(text: str) -> List[Tuple[Call, str, str]]:
    """Return the markers of pictures, and words and file of the picture below each.

    Raises:
        ValueError: naming the line, for a marker without a picture below.
    """
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith(PICTURE):
            image = IMAGE.fullmatch(lines[number]) if number < len(lines) else None
            if image is None or not line.endswith(" -->"):
                raise ValueError(f"line {number}: '{PICTURE}NAME ... -->' stands in the line before '![words](file)'")
            found.append((_call(line[len(PICTURE) : -len(" -->")]), image["words"], image["file"]))
    return found


def titles(text: str) -> List[str]:
    """Return a title for each generated table: the words in bold at the head of a paragraph above it, or a heading."""
    found, title = [], ""
    for line in text.splitlines():
        named = TITLE.match(line)
        if line.startswith(BEGIN):
            found.append(title)
        elif named is not None:
            title = (named["heading"] or named["bold"]).replace("`", "").strip().rstrip(".:")
    return found


def outside(text: str) -> str:
    """Return the text without its generated tables."""
    return BLOCK.sub("", text)
