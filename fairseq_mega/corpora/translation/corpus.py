"""A corpus of sentence pairs without repeats and leaks: from pages, or from a person's own pairs."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Set, Tuple

from fairseq_mega.corpora.splits import SPLITS
from fairseq_mega.corpora.translation.parallel_text import HELP_RULES, Pair, PairRules, clean_text, rejection
from fairseq_mega.corpora.translation.sentences import pair_sentences


@dataclass
class Corpus:
    """Pairs per split, and how many pairs were dropped for which reason."""

    splits: Dict[str, List[Pair]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    dropped: Counter = field(default_factory=Counter)


def split_of_page(page: str, valid_share: float, test_share: float) -> str:
    """Name the split of a page, by its path alone: it stays when other pages come and go."""
    draw = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:8], "big") / 2.0**64
    if draw < test_share:
        return "test"
    return "valid" if draw < test_share + valid_share else "train"


def leak_key(text: str) -> str:
    """Return the text without regard to letter case, spacing and closing marks: texts of one key are one sentence."""
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


def own_corpus(
    train: List[Pair], valid: Optional[List[Pair]], test: Optional[List[Pair]], held_out: Optional[int] = None
) -> Corpus:
    """Make a corpus of a person's own pairs; a split not given is held out from the end of `train`.

    Args:
        train: pairs to learn from; those of no use (an empty side, hundreds of words) are dropped.
        valid, test: pairs given by the person; they are kept line by line.
        held_out: pairs to hold out per split not given; None: a twentieth of `train`, 1000 at most.
    """
    corpus = Corpus()
    usable = []
    for pair in train:
        reason = rejection(pair, PairRules())
        if reason:
            corpus.dropped[reason] += 1
        else:
            usable.append(pair)
    if held_out is None:
        held_out = min(1000, len(usable) // 20)
    for name, given in (("test", test), ("valid", valid)):
        if given is None:
            cut = max(0, len(usable) - held_out)
            corpus.splits[name], usable = usable[cut:], usable[:cut]
    corpus.splits["train"] = usable
    remove_repeats(corpus)
    for name, given in (("test", test), ("valid", valid)):
        if given is not None:
            corpus.splits[name] = given
    return corpus
