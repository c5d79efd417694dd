"""A corpus of sentence pairs without repeats and leaks, from pages or from the user's pairs."""

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

VALID_SHARE, TEST_SHARE = 0.035, 0.045  # shares of the pages


@dataclass
class Corpus:
    """Pairs per split, and the number of dropped pairs by reason."""

    splits: Dict[str, List[Pair]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    dropped: Counter = field(default_factory=Counter)


def split_of_page(page: str) -> str:
    """Return the split of a page, which depends on its path alone."""
    draw = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:8], "big") / 2.0**64
    if draw < TEST_SHARE:
        return "test"
    return "valid" if draw < TEST_SHARE + VALID_SHARE else "train"


def leak_key(text: str) -> str:
    """Return a key without letter case, spacing and closing marks: texts with equal keys are one sentence."""
    return " ".join(text.casefold().split()).rstrip(" .!?:;,…。！？：；，、")


def clean_pages(pages: Iterable[Tuple[str, List[Tuple[str, str]]]]) -> Corpus:
    """Clean pages of (path, [(source, target)]), pair sentences, and divide them into a corpus without leaks.

    Pages of `train` follow LEARNT_RULES, the others HELP_RULES.

    Every pair occurs once; a source sentence of `test` is neither in `train` nor in `valid`,
    one of `valid` not in `train`.
    """
    corpus = Corpus()
    for page, paragraphs in pages:
        name = split_of_page(page)
        kept, allowed = corpus.splits[name], LEARNT_RULES if name == "train" else HELP_RULES
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
    """Add names of the interface to `train` (in place): new names from its pages that are not held out."""
    held_out = {leak_key(pair.source) for name in ("valid", "test") for pair in corpus.splits[name]}
    known = set(corpus.splits["train"])
    for page, names in pages:
        if split_of_page(page) != "train":
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
            # A held-out source is scored once, whatever its translations; training may use several translations.
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
    """Make a corpus of the user's pairs; a missing split is held out from the end of `train`.

    Args:
        train: pairs to learn from; pairs with an empty side or hundreds of words are dropped.
        valid, test: the user's pairs, which are kept line by line.
        held_out: pairs to hold out for each missing split; None: a twentieth of `train`, at most 1000.
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
