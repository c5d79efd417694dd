"""The pages of the LibreOffice help, from packages of Debian, as paragraphs of text in two languages."""

import argparse
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.checksums import Records
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.shared_options import add_path
from fairseq_mega.lab.prepare.work_folder import WorkFolder

PACKAGES = {"en-US": "libreoffice-help-en-us", "de": "libreoffice-help-de"}  # by the language's folder
HELP = Path("usr/share/libreoffice/help")
UNPACKED = {"packages": (str(HELP),)}  # the part of their folder that is read
Paragraph = Tuple[str, str]  # identifier and text
Page = Tuple[str, List[Tuple[str, str]]]  # path below the language's folder, with forward slashes; source and target

_BLOCK_TAGS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPH_ID = re.compile(r"(par|hd)_")
_CODE_CLASSES = frozenset({"code", "codeintable", "smathcode", "bascode"})
_NAME_CLASSES = frozenset({"emph", "menuitem", "widget"})  # of the interface's own names
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


def add_packages(parser: argparse.ArgumentParser) -> None:
    """Add the options of the packages' copies."""
    add_path(parser, "--deb", "your copies of the packages", nargs="+")
    add_path(parser, "--packages", "folder with the unpacked packages (it holds usr/)", metavar="DIR")


def unpacked(args: argparse.Namespace, work: WorkFolder, names: Sequence[str]) -> Tuple[Path, Records]:
    """Return the folder that packages are unpacked in, and their entries in card.json.

    Raises:
        DownloadError: if a package cannot be obtained.
    """
    if args.packages is not None:
        return args.packages, {}
    folder = work.scratch / "packages"
    return folder, obtain_packages(names, args.deb, work.raw, folder)


class _Node:
    """An open element inside a paragraph: its text so far, and its part in a switch."""

    def __init__(self, tag: str, attributes: Dict[str, str]) -> None:
        self.tag = tag
        classes = attributes.get("class", "").split()
        self.is_switch = "switchinline" in classes
        self.is_name = not _NAME_CLASSES.isdisjoint(classes)
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
            self._finish()
            identifier = attributes.get("id", "")
            is_code = not _CODE_CLASSES.isdisjoint(attributes.get("class", "").split())
            if _PARAGRAPH_ID.match(identifier) and not is_code:
                self._id = identifier
                self._open = [_Node(tag, attributes)]
                self._names = []
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
                node = self._close_last()
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
            self._close_last()
        text = " ".join(self._open[0].text().split())
        if text:
            self.paragraphs.append((self._id, text))
            if len(self._names) == 1:
                self.names.append((self._id, self._names[0]))
        self._open = []

    def _close_last(self) -> _Node:
        """Close the innermost element that is open, which is not the paragraph itself, and return it."""
        node = self._open.pop()
        self._open[-1].close_child(node)
        if node.is_name:
            self._names.append(" ".join(node.text().split()))
        return node


def read_page(html: str) -> Tuple[List[Paragraph], List[Paragraph]]:
    """Read (id, text) of the paragraphs and headings of a page, without empty and code ones.

    Returns:
        The paragraphs, and the name in each that emphasises exactly one part of the interface.
    """
    parser = _HelpPageParser()
    parser.feed(html)
    parser.close()
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


class HelpCorpus:
    """The help pages that two languages have in common, read from the unpacked Debian packages.

    Args:
        root: folder of the unpacked packages, which contains `usr/`.
        folders: of the languages below `usr/share/libreoffice/help`.

    Raises:
        FileNotFoundError: if they have no page in common.
    """

    def __init__(self, root: Path, *folders: str) -> None:
        tops = [root / HELP / folder / "text" for folder in folders]
        self._pages = [{path.relative_to(top).as_posix(): path for path in top.rglob("*.html")} for top in tops]
        self._common = sorted(set(self._pages[0]) & set(self._pages[1]))
        if not self._common:
            raise FileNotFoundError(f"no help pages (*.html) below {tops[0]} and {tops[1]}: unpack both packages there")
        self.names: List[Page] = []

    def __len__(self) -> int:
        return len(self._common)

    def __iter__(self) -> Iterator[Page]:
        """Yield pages with their pairs of paragraphs, in the order of their paths; a stray byte becomes U+FFFD.

        After the last page, `names` has names of the interface, each emphasised in a paragraph of both languages.
        """
        self.names = []
        for page in self._common:
            texts = (side[page].read_bytes().decode("utf-8", errors="replace") for side in self._pages)
            (source, source_names), (target, target_names) = map(read_page, texts)
            self.names.append((page, pair_paragraphs(source_names, target_names)))
            yield page, pair_paragraphs(source, target)
