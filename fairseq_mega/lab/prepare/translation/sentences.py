"""Split paragraph pairs into sentence pairs."""

import re
from typing import List

from fairseq_mega.lab.prepare.translation.parallel_text import Pair, PairRules, lengths_agree

_SENTENCE_END = re.compile(r"[.!?]+[\"'”“’»«)\]]*\s+(?=[\"'„“‘‚»«(\[]*[^\W_])")
_NO_SENTENCE_END = re.compile(
    r"(?:^|[\s(\[\"'„“])(?:\w|\d+|etc|vs|no|nr|fig|cf|approx|incl|mr|mrs|ms|dr|prof|st|ca|bzw|usw|vgl|abb|abs|bsp|evtl"
    r"|ggf|inkl|max|min|sog|str|tel|zzgl|engl|i\.e|e\.g|z\.\s?b|d\.\s?h|u\.\s?a|o\.\s?ä)\.$",
    re.IGNORECASE,
)


def split_sentences(text: str) -> List[str]:
    """Split a cleaned text into sentences at `.`, `!` and `?`; joined by single spaces they are the text.

    A text is not split after an abbreviation, a single letter or a number (German ordinals), nor before a small letter.
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
    """Split both sides into sentences if the sentences agree in number and lengths, else return the pair."""
    sources, targets = split_sentences(pair.source), split_sentences(pair.target)
    if len(sources) != len(targets):
        return [pair]
    pairs = [Pair(source, target) for source, target in zip(sources, targets)]
    return pairs if all(lengths_agree(p, rules) for p in pairs) else [pair]
