"""Paragraph pairs of the LibreOffice help: English and another language."""

from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from fairseq_mega.lab.prepare.libreoffice_help import HELP, Paragraph, pages_of, read_page_and_names


class PagePair(NamedTuple):
    """The paragraphs that two translations of one help page have in common.

    `page` is the path below the language's folder, with forward slashes; `paragraphs` are (source, target) texts.
    """

    page: str
    paragraphs: List[Tuple[str, str]]


class HelpCorpusStatistics(NamedTuple):
    """Numbers of paired and of unpaired pages and paragraphs."""

    pages_paired: int
    pages_of_one_language: int
    paragraphs_paired: int
    paragraphs_unpaired: int


def pair_paragraphs(source: List[Paragraph], target: List[Paragraph]) -> List[Tuple[str, str]]:
    """Pair the paragraphs of two translations of one page by id.

    An id that occurs several times (text embedded from another page) is paired in order of occurrence, and only if it
    occurs equally often in both pages.
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


class HelpCorpus:
    """The help pages that two languages have in common, read from the unpacked Debian packages.

    Args:
        root: folder of the unpacked packages, which contains `usr/`.
        source_folder, target_folder: the languages' folder names below `usr/share/libreoffice/help`.

    Raises:
        FileNotFoundError: if a language has no pages.
    """

    def __init__(self, root: Path, source_folder: str = "en-US", target_folder: str = "de") -> None:
        self._pages: List[Dict[str, Path]] = []
        for folder in (source_folder, target_folder):
            pages = pages_of(root, folder)
            if not pages:
                raise FileNotFoundError(
                    f"no help pages (*.html) below {root / HELP / folder / 'text'}: unpack the package "
                    f"libreoffice-help-{folder.lower()} into {root} with `dpkg-deb -x PACKAGE.deb {root}`"
                )
            self._pages.append(pages)
        self.statistics = HelpCorpusStatistics(0, 0, 0, 0)
        self.names: List[PagePair] = []

    def __len__(self) -> int:
        return len(self._common())

    def __iter__(self) -> Iterator[PagePair]:
        """Yield the page pairs in the order of their paths; `statistics` and `names` are complete after the last pair.

        `names` are names of the interface, each emphasised in a paragraph of both languages.
        """
        common = self._common()
        self.names = []
        paired = unpaired = 0
        for page in common:
            (source, source_names), (target, target_names) = (read_page_and_names(side[page]) for side in self._pages)
            self.names.append(PagePair(page, pair_paragraphs(source_names, target_names)))
            paragraphs = pair_paragraphs(source, target)
            paired += len(paragraphs)
            unpaired += len(source) - len(paragraphs)
            yield PagePair(page, paragraphs)
        alone = len(set(self._pages[0]) ^ set(self._pages[1]))
        self.statistics = HelpCorpusStatistics(len(common), alone, paired, unpaired)

    def _common(self) -> List[str]:
        return sorted(set(self._pages[0]) & set(self._pages[1]))
