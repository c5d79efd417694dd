"""The corpora that WMT'16 English-German consists of, and their archives."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from fairseq_mega.lab.prepare.archives import name_of

LANGUAGES = ("en", "de")
TRAIN = "train"


@dataclass(frozen=True)
class Corpus:
    """A part of the data: its archive, its file names per language, and the lines that each must have."""

    name: str
    url: str
    files: Dict[str, Tuple[str, ...]]
    lines: int
    exact: bool = True

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return name_of(self.url)


def _text(stem: str) -> Dict[str, Tuple[str, ...]]:
    return {language: (f"{stem}.{language}",) for language in LANGUAGES}


def _sgm(stem: str) -> Dict[str, Tuple[str, ...]]:
    # A language may be stored as source or as reference; the English source comes with the German reference.
    roles = {"en": ("src", "ref"), "de": ("ref", "src")}
    return {language: tuple(f"{stem}-{role}.{language}.sgm" for role in roles[language]) for language in LANGUAGES}


STATMT, DATA = "http://www.statmt.org", "http://data.statmt.org/wmt16/translation-task"
# In the order in which the training corpora are concatenated. Lines as counted by the shared task; the test sets
# must match exactly, the training corpora within 1 % (line counts of repackaged copies differ slightly).
TRAINING = (
    Corpus("europarl-v7", f"{STATMT}/europarl/v7/de-en.tgz", _text("europarl-v7.de-en"), 1920209, False),
    Corpus(
        "commoncrawl", f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz", _text("commoncrawl.de-en"), 2399123, False
    ),
    Corpus(
        "news-commentary-v11", f"{DATA}/training-parallel-nc-v11.tgz", _text("news-commentary-v11.de-en"), 242770, False
    ),
)
EVALUATION = (
    Corpus("newstest2013", f"{DATA}/dev.tgz", _text("newstest2013"), 3000),
    Corpus("newstest2014", f"{DATA}/dev.tgz", _sgm("newstest2014-deen"), 3003),
    Corpus("newstest2015", f"{DATA}/dev.tgz", _sgm("newstest2015-ende"), 2169),
    Corpus("newstest2016", f"{DATA}/test.tgz", _sgm("newstest2016-ende"), 2999),
)
SPLITS = (TRAIN, *(corpus.name for corpus in EVALUATION))


def archive_urls() -> List[str]:
    """Return the addresses of the five archives, each once."""
    return list(dict.fromkeys(corpus.url for corpus in TRAINING + EVALUATION))


def corpora_with_counts(counts_file: Optional[Path]) -> Tuple[Corpus, ...]:
    """Return all corpora; ``counts_file`` (JSON, ``{name: lines}``) replaces the expected numbers of lines."""
    corpora = TRAINING + EVALUATION
    if counts_file is None:
        return corpora
    counts = json.loads(counts_file.read_text(encoding="utf-8"))
    return tuple(Corpus(c.name, c.url, c.files, counts[c.name], True) for c in corpora)
