"""Fonts for the symbols of any language in pictures of matplotlib, whose own font lacks Chinese and Japanese."""

from functools import lru_cache
from typing import FrozenSet, List, NamedTuple, Sequence, Set

LAST_RESORT = "Last Resort"  # beginning of the name of a font that draws boxes


class Labels(NamedTuple):
    """Texts for a picture.

    Attributes:
        texts: each character that no font has is replaced by its number, for instance U+65E5; formulas are escaped.
        families: of fonts that have the other characters, the usual one first.
        missing: characters that no font has, sorted.
    """

    texts: List[str]
    families: List[str]
    missing: List[str]


def drawable(texts: Sequence[str]) -> Labels:
    """Find installed fonts for the characters of texts."""
    from matplotlib import font_manager

    usual = font_manager.FontProperties()
    families = usual.get_family()
    missing = {character for text in texts for character in text} - characters_of(font_manager.findfont(usual))
    files = {font.name: font.fname for font in font_manager.fontManager.ttflist if font.style == "normal"}
    for name, file in sorted(files.items()):
        if missing and not name.startswith(LAST_RESORT):
            found = missing & characters_of(file)
            families = [*families, name] if found else families
            missing = missing - found
    return Labels([_written(text, missing) for text in texts], families, sorted(missing))


def _written(text: str, missing: Set[str]) -> str:
    return "".join(f"U+{ord(one):04X}" if one in missing else one for one in text).replace("$", r"\$")


@lru_cache(maxsize=None)
def characters_of(file: str) -> FrozenSet[str]:
    """Return the characters that a font has; none of a file that cannot be read."""
    from matplotlib import font_manager

    try:
        return frozenset(map(chr, font_manager.get_font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
