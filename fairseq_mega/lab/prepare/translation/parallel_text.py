"""Pairs of a text and its translation: cleaning, and the rules for kept pairs."""

from dataclasses import dataclass, replace
from typing import List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.data.text_cleaning import SENTENCES, clean

PARTS = 20  # of a text, each compared with the first
COMPARED = 10_000  # pairs of a text that are compared with another one
SWAPPED = 0.2  # by so much greater is the share of known words in swapped pairs from the other side of the training


class Pair(NamedTuple):
    """A source text and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class PairRules:
    """Limits of kept pairs: lengths in words between spaces, letters as a share of visible characters."""

    min_source_words: int = 1
    max_words: int = 150
    max_length_ratio: float = 0.0  # 0: any ratio
    length_slack: int = 3
    min_letters: float = 0.0
    must_differ: bool = False


# A paragraph of a help page must be prose in two languages: no key names, formulas or untranslated text.
HELP_RULES = PairRules(min_source_words=3, max_length_ratio=2.5, min_letters=0.65, must_differ=True)
LEARNT_RULES = replace(HELP_RULES, min_source_words=1)  # for training, short names of the interface are also kept


def clean_text(text: str) -> str:
    """Compose characters (NFC), remove control and invisible characters, and replace white space by single spaces."""
    return clean(text, SENTENCES)


def letter_share(text: str) -> float:
    """Return the share of letters among the characters other than white space; 0 for a text without characters."""
    visible = "".join(text.split())
    return sum(map(str.isalpha, visible)) / len(visible) if visible else 0.0


def rejection(pair: Pair, rules: PairRules) -> Optional[str]:
    """Return the first rule that a pair breaks, or None for a pair to keep."""
    words = [len(text.split()) for text in pair]
    if min(words) == 0:
        return "empty side"
    if "\ufffd" in pair.source or "\ufffd" in pair.target:
        return "broken characters"
    if rules.must_differ and pair.source == pair.target:
        return "not translated"
    if words[0] < rules.min_source_words:
        return "too short"
    if max(words) > rules.max_words:
        return "too long"
    if not lengths_agree(pair, rules):
        return "lengths differ too much"
    if min(letter_share(text) for text in pair) < rules.min_letters:
        return "too few letters"
    return None


def lengths_agree(pair: Pair, rules: PairRules) -> bool:
    """Return whether neither side has more than `max_length_ratio` times the other's words plus `length_slack`."""
    if rules.max_length_ratio <= 0:
        return True
    words = sorted(len(text.split()) for text in pair)
    return words[1] <= rules.max_length_ratio * words[0] + rules.length_slack


def seem_swapped(pairs: Sequence[Pair], training: Sequence[Pair]) -> bool:
    """Return whether both sides of pairs have more words in common with the other side of training pairs.

    Where words are not separated by blanks, characters are compared.
    """
    for units in (str.split, set):
        words = [[unit for pair in pairs[:COMPARED] for unit in units(pair[side])] for side in (0, 1)]
        known = [{unit for pair in training[:COMPARED] for unit in units(pair[side])} for side in (0, 1)]
        gains = [
            sum((word in known[1 - side]) - (word in known[side]) for word in words[side]) / max(len(words[side]), 1)
            for side in (0, 1)
        ]
        if min(gains) > SWAPPED:
            return True
    return False


def swapped_lines(pairs: Sequence[Pair]) -> List[Tuple[int, int]]:
    """Return the first and last line, from 1, of parts whose languages seem swapped against the first part."""
    size = max(-(-len(pairs) // PARTS), 1)
    found: List[Tuple[int, int]] = []
    for begin in range(size, len(pairs), size):
        end = min(begin + size, len(pairs))
        if seem_swapped(pairs[begin:end], pairs[:size]):
            joins = bool(found) and found[-1][1] == begin
            found.append((found.pop()[0] if joins else begin + 1, end))
    return found
