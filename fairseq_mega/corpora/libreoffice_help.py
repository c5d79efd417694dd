"""Paragraph pairs from the LibreOffice help packages of Debian (English beside another language)."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

_BLOCK_TAGS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPH_ID = re.compile(r"(par|hd)_")
_CODE_CLASSES = frozenset({"code", "codeintable", "smathcode", "bascode"})
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


class PagePair(NamedTuple):
    """The paragraphs two translations of one help page have in common.

    `page` is the path below the language's folder, with forward slashes; `paragraphs` holds
    (source, target) texts.
    """

    page: str
    paragraphs: List[Tuple[str, str]]


class HelpCorpusStatistics(NamedTuple):
    """How much of the help pages could be paired."""

    pages_paired: int
    pages_of_one_language: int
    paragraphs_paired: int
    paragraphs_unpaired: int


class _Node:
    """An open element inside a paragraph: its text so far, and how it takes part in a switch."""

    def __init__(self, tag: str, attributes: Dict[str, str]) -> None:
        self.tag = tag
        self.is_switch = "switchinline" in attributes.get("class", "").split()
        self.is_default = attributes.get("id", "").startswith("default")
        self.parts: List[str] = []
        self.default: Optional[str] = None
        self.first: Optional[str] = None

    def text(self) -> str:
        if self.is_switch:
            return self.first or "" if self.default is None else self.default
        return "".join(self.parts)

    def close_child(self, child: "_Node") -> None:
        text = child.text()
        if not self.is_switch:
            self.parts.append(text)
            return
        if child.is_default and self.default is None:
            self.default = text
        if self.first is None:
            self.first = text


class _HelpPageParser(HTMLParser):
    """Collects (id, text) of every `<p>` and `<h1>`..`<h6>` whose id begins with `par_` or `hd_`.

    A switch holds one alternative per operating system or module; its default alternative is kept (the
    first one where none is marked as default), so that a sentence never carries both "Command" and "Ctrl".
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: List[Tuple[str, str]] = []
        self._id = ""
        self._open: List[_Node] = []

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag in _BLOCK_TAGS:
            self._finish()
            identifier = attributes.get("id", "")
            is_code = not _CODE_CLASSES.isdisjoint(attributes.get("class", "").split())
            if _PARAGRAPH_ID.match(identifier) and not is_code:
                self._id = identifier
                self._open = [_Node(tag, attributes)]
        elif self._open:
            if tag == "br":
                self._open[-1].parts.append(" ")
            elif tag not in _VOID_TAGS:
                self._open.append(_Node(tag, attributes))

    def handle_startendtag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        if tag == "br" and self._open:
            self._open[-1].parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if not self._open:
            return
        if tag == self._open[0].tag:
            self._finish()
        elif tag in (node.tag for node in self._open):
            while True:
                node = self._open.pop()
                self._open[-1].close_child(node)
                if node.tag == tag:
                    break

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].parts.append(data)

    def close(self) -> None:
        super().close()
        self._finish()

    def _finish(self) -> None:
        """Close the paragraph that is open, if any, with everything left open inside it."""
        if not self._open:
            return
        while len(self._open) > 1:
            node = self._open.pop()
            self._open[-1].close_child(node)
        text = " ".join(self._open[0].text().split())
        if text:
            self.paragraphs.append((self._id, text))
        self._open = []


def read_paragraphs(html: str) -> List[Tuple[str, str]]:
    """Read the (id, text) of the paragraphs and headings of one help page, without empty and code ones."""
    parser = _HelpPageParser()
    parser.feed(html)
    parser.close()
    return parser.paragraphs


def pair_paragraphs(source: List[Tuple[str, str]], target: List[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """Pair the paragraphs of two translations of one page by id.

    An id that occurs several times (text embedded from another page) is paired in order of occurrence, and
    only where both pages hold it equally often.
    """
    source_counts = Counter(identifier for identifier, _ in source)
    positions: Dict[str, List[str]] = {}
    for identifier, text in target:
        positions.setdefault(identifier, []).append(text)
    taken: Counter = Counter()
    pairs = []
    for identifier, text in source:
        texts = positions.get(identifier, [])
        if len(texts) == source_counts[identifier]:
            pairs.append((text, texts[taken[identifier]]))
            taken[identifier] += 1
    return pairs


def _pages(folder: Path) -> Dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.html")}


class HelpCorpus:
    """The help pages two languages have in common, read from the unpacked Debian packages.

    Args:
        root: folder the packages were unpacked into (the one that holds `usr/`).
        source_folder, target_folder: the languages' folder names below `usr/share/libreoffice/help`.

    Raises:
        FileNotFoundError: where a language has no pages there.
    """

    def __init__(self, root: Path, source_folder: str = "en-US", target_folder: str = "de") -> None:
        help_folder = root / "usr" / "share" / "libreoffice" / "help"
        self._pages: List[Dict[str, Path]] = []
        for folder in (source_folder, target_folder):
            pages = _pages(help_folder / folder / "text")
            if not pages:
                raise FileNotFoundError(
                    f"no help pages (*.html) below {help_folder / folder / 'text'}: unpack the package "
                    f"libreoffice-help-{folder.lower()} into {root} with `dpkg-deb -x PACKAGE.deb {root}`"
                )
            self._pages.append(pages)
        self.statistics = HelpCorpusStatistics(0, 0, 0, 0)

    def __len__(self) -> int:
        return len(self._common())

    def __iter__(self) -> Iterator[PagePair]:
        """Yield the page pairs in order of their path; `statistics` is complete after the last one."""
        common = self._common()
        paired = unpaired = 0
        for page in common:
            source, target = (read_paragraphs(_read_page(pages[page])) for pages in self._pages)
            paragraphs = pair_paragraphs(source, target)
            paired += len(paragraphs)
            unpaired += len(source) - len(paragraphs)
            yield PagePair(page, paragraphs)
        alone = len(set(self._pages[0]) ^ set(self._pages[1]))
        self.statistics = HelpCorpusStatistics(len(common), alone, paired, unpaired)

    def _common(self) -> List[str]:
        return sorted(set(self._pages[0]) & set(self._pages[1]))


def _read_page(path: Path) -> str:
    """Read a page as UTF-8; a stray byte becomes U+FFFD, so that cleaning drops its pair and no more."""
    return path.read_bytes().decode("utf-8", errors="replace")
