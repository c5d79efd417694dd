"""A corpus of sentence pairs without repeats and leaks: from pages, or from a person's own pairs."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Set, Tuple

from fairseq_mega.lab.prepare.splits import HELD_OUT, SPLITS
from fairseq_mega.lab.prepare.translation.parallel_text import (
    HELP_RULES,
    LEARNT_RULES,
    Pair,
    PairRules,
    clean_text,
    rejection,
)
from fairseq_mega.lab.prepare.translation.sentences import pair_sentences

VALID_SHARE, TEST_SHARE = 0.035, 0.045  # of the pages


@dataclass
class Corpus:
    """Pairs per split, and how many pairs were dropped for which reason."""

    splits: Dict[str, List[Pair]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    dropped: Counter = field(default_factory=Counter)


def split_of_page(page: str, valid_share: float, test_share: float) -> str:
    """Return the split of a page, by its path alone, so that it does not depend on other pages."""
    draw = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:8], "big") / 2.0**64
    if draw < test_share:
        return "test"
    return "valid" if draw < test_share + valid_share else "train"


def leak_key(text: str) -> str:
    """Return the text without regard to letter case, spacing and closing marks: texts of one key are one sentence."""
    return " ".join(text.casefold().split()).rstrip(" .!?:;,…。！？：；，、")


def clean_pages(
    pages: Iterable[Tuple[str, List[Tuple[str, str]]]],
    rules: PairRules = HELP_RULES,
    valid_share: float = VALID_SHARE,
    test_share: float = TEST_SHARE,
    learnt: PairRules = LEARNT_RULES,
) -> Corpus:
    """Clean, pair by sentence and split pages of (path, [(source, target)]) into a corpus without leaks.

    Pages of `train` follow the rules `learnt`, the others `rules`.

    Every pair occurs once; a source sentence of `test` is neither in `train` nor in `valid`,
    one of `valid` not in `train`.
    """
    corpus = Corpus()
    for page, paragraphs in pages:
        name = split_of_page(page, valid_share, test_share)
        kept, allowed = corpus.splits[name], learnt if name == "train" else rules
        for source, target in paragraphs:
            paragraph = Pair(clean_text(source), clean_text(target))
            reason = rejection(paragraph, allowed)
            if reason:
                corpus.dropped[reason] += 1
                continue
            for pair in pair_sentences(paragraph, allowed):
                reason = rejection(pair, allowed)
                if reason:
                    corpus.dropped[reason] += 1
                else:
                    kept.append(pair)
    remove_repeats(corpus)
    return corpus


def add_names(corpus: Corpus, pages: Iterable[Tuple[str, List[Tuple[str, str]]]]) -> None:
    """Add names of the interface to `train` (in place): those of its pages that are new, and held out nowhere."""
    held_out = {leak_key(pair.source) for name in ("valid", "test") for pair in corpus.splits[name]}
    known = set(corpus.splits["train"])
    for page, names in pages:
        if split_of_page(page, VALID_SHARE, TEST_SHARE) != "train":
            continue
        for source, target in names:
            pair = Pair(clean_text(source), clean_text(target))
            if pair not in known and leak_key(pair.source) not in held_out and not rejection(pair, LEARNT_RULES):
                known.add(pair)
                corpus.splits["train"].append(pair)


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
        train: pairs to learn from; useless ones (an empty side, hundreds of words) are dropped.
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
        held_out = min(1000, len(usable) // HELD_OUT)
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
