"""Cleaning, sentence pairing, de-duplication and splitting of parallel text."""

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from fairseq_mega.corpora.splits import SPLITS

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_SENTENCE_END = re.compile(r"[.!?]+[\"'”“’»«)\]]*\s+(?=[\"'„“‘‚»«(\[]*[^\W_])")
_NO_SENTENCE_END = re.compile(
    r"(?:^|[\s(\[\"'„“])(?:\w|\d+|etc|vs|no|nr|fig|cf|approx|incl|mr|mrs|ms|dr|prof|st|ca|bzw|usw|vgl|abb|abs|bsp|evtl"
    r"|ggf|inkl|max|min|sog|str|tel|zzgl|engl|i\.e|e\.g|z\.\s?b|d\.\s?h|u\.\s?a|o\.\s?ä)\.$",
    re.IGNORECASE,
)


class Pair(NamedTuple):
    """A source text and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class PairRules:
    """Which pairs are kept: lengths in words between spaces, letters as a share of the visible characters."""

    min_source_words: int = 1
    max_words: int = 150
    max_length_ratio: float = 0.0  # 0: any ratio
    length_slack: int = 3
    min_letters: float = 0.0
    must_differ: bool = False


# A paragraph of a help page is real prose in two languages: no key names, formulas or untranslated text.
HELP_RULES = PairRules(min_source_words=3, max_length_ratio=2.5, min_letters=0.65, must_differ=True)


@dataclass
class Corpus:
    """Pairs per split, and how many pairs were dropped for which reason."""

    splits: Dict[str, List[Pair]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    dropped: Counter = field(default_factory=Counter)


def clean_text(text: str) -> str:
    """Compose characters (NFC), remove control and invisible ones, and make white space single spaces."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    return " ".join(_CONTROL.sub(" ", text).split())


def letter_share(text: str) -> float:
    """Share of the characters other than white space that are letters; 0 for a text without characters."""
    visible = "".join(text.split())
    return sum(map(str.isalpha, visible)) / len(visible) if visible else 0.0


def rejection(pair: Pair, rules: PairRules) -> Optional[str]:
    """Name the first rule the pair breaks, or return None for a pair to keep."""
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
    """Whether neither side has more than `max_length_ratio` times the other's words plus `length_slack`."""
    if rules.max_length_ratio <= 0:
        return True
    words = sorted(len(text.split()) for text in pair)
    return words[1] <= rules.max_length_ratio * words[0] + rules.length_slack


def split_sentences(text: str) -> List[str]:
    """Cut a cleaned text into sentences at `.`, `!` and `?`; single spaces join them again.

    No cut is made after an abbreviation, a single letter or a number (German ordinals), nor before a small
    letter.
    """
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        following = text[end.end() :].lstrip("\"'„“‘‚»«([")
        if following[:1].islower():
            continue
        sentence = text[start : end.end()].rstrip()
        if _NO_SENTENCE_END.search(sentence):
            continue
        sentences.append(sentence)
        start = end.end()
    rest = text[start:].strip()
    return [*sentences, rest] if rest else sentences


def pair_sentences(pair: Pair, rules: PairRules) -> List[Pair]:
    """Split both sides into sentences if they have equally many of agreeing lengths, else return the pair."""
    sources, targets = split_sentences(pair.source), split_sentences(pair.target)
    if len(sources) != len(targets):
        return [pair]
    pairs = [Pair(source, target) for source, target in zip(sources, targets)]
    return pairs if all(lengths_agree(p, rules) for p in pairs) else [pair]


def split_of_page(page: str, valid_share: float, test_share: float) -> str:
    """Name the split of a page, by its path alone: it stays when other pages come and go."""
    draw = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:8], "big") / 2.0**64
    if draw < test_share:
        return "test"
    return "valid" if draw < test_share + valid_share else "train"


def leak_key(text: str) -> str:
    """Return what two texts share that count as one sentence: letter case, spacing, closing marks ignored."""
    return " ".join(text.casefold().split()).rstrip(" .!?:;,…")


def clean_pages(
    pages: Iterable[Tuple[str, List[Tuple[str, str]]]],
    rules: PairRules = HELP_RULES,
    valid_share: float = 0.035,
    test_share: float = 0.045,
) -> Corpus:
    """Clean, pair by sentence and split pages of (path, [(source, target)]) into a corpus without leaks.

    Every pair occurs once; a source sentence of `test` is neither in `train` nor in `valid`,
    one of `valid` not in `train`.
    """
    corpus = Corpus()
    for page, paragraphs in pages:
        kept = corpus.splits[split_of_page(page, valid_share, test_share)]
        for source, target in paragraphs:
            paragraph = Pair(clean_text(source), clean_text(target))
            reason = rejection(paragraph, rules)
            if reason:
                corpus.dropped[reason] += 1
                continue
            for pair in pair_sentences(paragraph, rules):
                reason = rejection(pair, rules)
                if reason:
                    corpus.dropped[reason] += 1
                else:
                    kept.append(pair)
    remove_repeats(corpus)
    return corpus


def remove_repeats(corpus: Corpus) -> None:
    """Drop repeated pairs of a split and, from valid and test, sources of an earlier split (in place)."""
    seen_sources: Set[str] = set()
    for name in ("train", "test", "valid"):
        pairs, seen = [], set()
        for pair in corpus.splits[name]:
            # A held-out source is scored once, whatever its translations; training may learn several of them.
            key = pair if name == "train" else leak_key(pair.source)
            if key in seen:
                corpus.dropped["repeated"] += 1
            elif name != "train" and leak_key(pair.source) in seen_sources:
                corpus.dropped["held out, but known from another split"] += 1
            else:
                seen.add(key)
                pairs.append(pair)
        corpus.splits[name] = pairs
        seen_sources.update(leak_key(pair.source) for pair in pairs)
