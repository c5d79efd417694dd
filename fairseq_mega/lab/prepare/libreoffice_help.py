"""The pages of the LibreOffice help, from packages of Debian, as paragraphs of text."""

import argparse
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.checksums import Records
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.shared_options import exactly_one
from fairseq_mega.lab.prepare.work_folder import WorkFolder

PACKAGES = {"en-US": "libreoffice-help-en-us", "de": "libreoffice-help-de"}  # by the language's folder
HELP = Path("usr/share/libreoffice/help")
UNPACKED = {"packages": (str(HELP),)}  # the part of their folder that is read
Paragraph = Tuple[str, str]  # identifier and text

_BLOCK_TAGS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPH_ID = re.compile(r"(par|hd)_")
_CODE_CLASSES = frozenset({"code", "codeintable", "smathcode", "bascode"})
_NAME_CLASSES = frozenset({"emph", "menuitem", "widget"})  # of the interface's own names
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


def add_packages(parser: argparse.ArgumentParser) -> None:
    """Add the options of the packages' copies."""
    parser.add_argument("--deb", type=Path, nargs="+", metavar="FILE", help="your copies of the packages")
    parser.add_argument(
        "--packages", type=Path, metavar="DIR", help="folder with the unpacked packages (it holds usr/)"
    )


def check_packages(args: argparse.Namespace) -> None:
    """Raise ValueError where two sources are given, or a folder that holds no unpacked packages."""
    exactly_one(args, "--deb", "--packages")
    if args.packages is not None and not (args.packages / HELP).is_dir():
        raise ValueError(f"--packages {args.packages}: {HELP} is not there; unpack with dpkg-deb -x PACKAGE.deb DIR")


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


def pages_of(root: Path, language: str) -> Dict[str, Path]:
    """Return the files of a language's help pages by their paths below its folder, with forward slashes, sorted.

    ``root`` is the folder that the packages were unpacked into, which holds ``usr/``.
    """
    folder = root / HELP / language / "text"
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.html"))}


def read_paragraphs(html: str) -> List[Paragraph]:
    """Read the (id, text) of the paragraphs and headings of one help page, without empty and code ones."""
    return _parsed(html).paragraphs


def read_page_and_names(path: Path) -> Tuple[List[Paragraph], List[Paragraph]]:
    """Read the paragraphs of a page, and the name in each that emphasises exactly one part of the interface."""
    parser = _parsed(_text_of(path))
    return parser.paragraphs, parser.names


def _parsed(html: str) -> _HelpPageParser:
    parser = _HelpPageParser()
    parser.feed(html)
    parser.close()
    return parser


def _text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")
