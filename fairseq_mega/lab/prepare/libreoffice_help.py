"""The pages of the LibreOffice help, from packages of Debian, as paragraphs of text in two languages."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.progress import follow

PACKAGES = {"en-US": "libreoffice-help-en-us", "de": "libreoffice-help-de"}  # by the language's folder
HELP = Path("usr/share/libreoffice/help")
Paragraph = Tuple[str, str]  # identifier and text
Page = Tuple[str, List[Tuple[str, str]]]  # path below the language's folder, with forward slashes; source and target

_BLOCK_TAGS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPH_ID = re.compile(r"(par|hd)_")
_CODE_CLASSES = frozenset({"code", "codeintable", "smathcode", "bascode"})
_NAME_CLASSES = frozenset({"emph", "menuitem", "widget"})  # of the interface's own names
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


class _Node:
    """An open element inside a paragraph: its text so far, and the elements in it that are closed."""

    def __init__(self, tag: str, attributes: Dict[str, str]) -> None:
        self.tag, self.classes = tag, set(attributes.get("class", "").split())
        self.is_default = attributes.get("id", "").startswith("default")
        self.parts: List[str] = []
        self.alternatives: List[_Node] = []

    def text(self) -> str:
        """Return the text; of a switch, the one of its default alternative, or of the first."""
        if "switchinline" not in self.classes:
            return "".join(self.parts)
        chosen = [node for node in self.alternatives if node.is_default] or self.alternatives
        return chosen[0].text() if chosen else ""


class _HelpPageParser(HTMLParser):
    """Collector of (id, text) of every `<p>` and `<h1>`..`<h6>` whose id begins with `par_` or `hd_`.

    A switch holds one alternative per operating system or module; its default alternative is kept (the
    first one where none is marked as default), so that a sentence never carries both "Command" and "Ctrl".
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: List[Tuple[str, str]] = []
        self.names: List[Tuple[str, str]] = []  # of paragraphs that emphasise exactly one
        self._id = ""
        self._open: List[_Node] = []
        self._names: List[str] = []  # of the paragraph that is open

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag in _BLOCK_TAGS:
            self.finish()
            node = _Node(tag, attributes)
            if _PARAGRAPH_ID.match(attributes.get("id", "")) and _CODE_CLASSES.isdisjoint(node.classes):
                self._id, self._open, self._names = attributes["id"], [node], []
        elif self._open and tag == "br":
            self._open[-1].parts.append(" ")
        elif self._open and tag not in _VOID_TAGS:
            self._open.append(_Node(tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[0].tag:
            self.finish()
        elif tag in (node.tag for node in self._open):
            while self._close_last() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].parts.append(data)

    def finish(self) -> None:
        """Close the paragraph that is open, if any, with everything left open inside it."""
        while len(self._open) > 1:
            self._close_last()
        text = " ".join(self._open.pop().text().split()) if self._open else ""
        if text:
            self.paragraphs.append((self._id, text))
            if len(self._names) == 1:
                self.names.append((self._id, self._names[0]))

    def _close_last(self) -> str:
        """Close the innermost element that is open, which is not the paragraph itself, and return its tag."""
        node = self._open.pop()
        self._open[-1].parts.append(node.text())
        self._open[-1].alternatives.append(node)
        if not _NAME_CLASSES.isdisjoint(node.classes):
            self._names.append(" ".join(node.text().split()))
        return node.tag


def read_page(html: str) -> Tuple[List[Paragraph], List[Paragraph]]:
    """Read (id, text) of the paragraphs and headings of a page, and the names in those that emphasise one part."""
    parser = _HelpPageParser()
    parser.feed(html)
    parser.close()
    parser.finish()
    return parser.paragraphs, parser.names


def pair_paragraphs(source: List[Paragraph], target: List[Paragraph]) -> List[Tuple[str, str]]:
    """Pair the paragraphs of two translations of one page by id.

    An id that occurs several times (text embedded from another page) is paired in order of occurrence, and only if it
    occurs equally often in both pages.
    """
    texts: List[Dict[str, List[str]]] = [{}, {}]
    for side, paragraphs in zip(texts, (source, target)):
        for identifier, text in paragraphs:
            side.setdefault(identifier, []).append(text)
    left = {name: iter(found) for name, found in texts[1].items() if len(found) == len(texts[0].get(name, ()))}
    return [(text, next(left[identifier])) for identifier, text in source if identifier in left]


def read_help(root: Path, folders: Sequence[str]) -> Tuple[List[Page], List[Page]]:
    """Read the help pages that two languages have in common, in the order of their paths; a stray byte becomes U+FFFD.

    Args:
        root: folder of the unpacked packages, which contains `usr/`.
        folders: of the two languages below `usr/share/libreoffice/help`.

    Returns:
        For each page its pairs of paragraphs, and its names of the interface, each emphasised in both languages.
    """
    tops = [root / HELP / folder / "text" for folder in folders]
    common = sorted(
        set.intersection(*({path.relative_to(top).as_posix() for path in top.rglob("*.html")} for top in tops))
    )
    if not common:
        raise FileNotFoundError(f"no help pages (*.html) below {tops[0]} and {tops[1]}: unpack both packages there")
    pages: List[Page] = []
    names: List[Page] = []
    for page in follow(common, "reading", "help pages", len(common)):
        source, target = (read_page((top / page).read_bytes().decode("utf-8", errors="replace")) for top in tops)
        pages.append((page, pair_paragraphs(source[0], target[0])))
        names.append((page, pair_paragraphs(source[1], target[1])))
    return pages, names
