"""Write archives of the same names and layout as WMT'16's, filled with a small invented language pair.

They go through the same checks and stages as the real ones. Their scores are meaningless.
"""

import random
import tarfile
from pathlib import Path
from typing import List, Sequence, Tuple

from fairseq_mega.lab.prepare.archives import name_of
from fairseq_mega.lab.prepare.classification.toy_data import add_file
from fairseq_mega.lab.prepare.wmt16.corpora import EVALUATION, LANGUAGES, TRAINING, Corpus, archive_urls
from fairseq_mega.lab.runs.files import write_json, written_whole

COUNTS = "counts.json"  # beside the archives
# 45 test sentences: not a multiple of 8, so that a dropped last batch would be noticed.
LINES = {
    "europarl-v7": 500,
    "commoncrawl": 400,
    "news-commentary-v11": 300,
    "newstest2013": 9,
    "newstest2014": 45,
    "newstest2015": 11,
    "newstest2016": 9,
}
SUBJECTS = (
    ("the commission", "die Kommission"),
    ("our president", "unser Präsident"),
    ("a well-known lawyer", "ein wohl-bekannter Anwalt"),
    ("the old house", "das alte Haus"),
    ("every member", "jedes Mitglied"),
    ("a state-of-the-art report", "ein state-of-the-art Bericht"),
)
VERBS = (("supports", "unterstützt"), ("rejects", "verwirft"), ("remembers", "erinnert"), ("describes", "beschreibt"))
OBJECTS = (
    ("the proposal", "den Vorschlag"),
    ("“new rules”", "„neue Regeln“"),
    ("3.5 % of the budget", "3,5 % des Haushalts"),
    ("Europe's future (2014)", "Europas Zukunft (2014)"),
    ("this debate", "diese Debatte"),
)
ENDINGS = (
    (" .", " ."),
    (".", "."),
    (" today.", " heute."),
    (" – and rightly so!", " – und zu Recht!"),
    (" in the year 1999.", " im Jahr 1999."),
)


def sentence_pair(rng: random.Random) -> Tuple[str, str]:
    """Return an English-like sentence and its German-like translation."""
    subject, verb, thing, end = (rng.choice(words) for words in (SUBJECTS, VERBS, OBJECTS, ENDINGS))
    english, german = (f"{subject[side]} {verb[side]} {thing[side]}{end[side]}" for side in (0, 1))
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def corpus_pairs(corpus: Corpus) -> List[Tuple[str, str]]:
    """Return the sentence pairs of a corpus, the same ones each time; training corpora have some rough lines."""
    rng = random.Random(corpus.name)
    pairs = [sentence_pair(rng) for _ in range(LINES[corpus.name])]
    if corpus in TRAINING:
        pairs[3] = ("", "")
        pairs[5] = (
            "Soft\u00adhyphen and\ttab and\u200bzero width line .",
            "Weicher\u00adTrennstrich und\tTabulator hier .",
        )
        pairs[7] = ("Too short", "Viel zu lang im Vergleich zum Englischen , das hier nur zwei kurze Wörter hat .")
    return pairs


def sgm(lines: Sequence[str], set_id: str, role: str) -> str:
    """Return the lines as an SGM test set with two documents."""
    kind, half = f"{role}set", len(lines) // 2
    documents = [
        f'<doc docid="smoke-{number}">\n<p>\n'
        + "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(part, start=1))
        + "</p>\n</doc>\n"
        for number, part in enumerate((lines[:half], lines[half:]))
    ]
    return f'<{kind} setid="{set_id}" srclang="any">\n{"".join(documents)}</{kind}>\n'


def write_archives(output: Path) -> None:
    """Write the five archives and ``COUNTS``, the number of lines of each corpus, to ``output``."""
    for url in archive_urls():
        with written_whole(output / name_of(url)) as partial, tarfile.open(partial, "w:gz") as archive:
            for corpus in TRAINING + EVALUATION:
                if corpus.url == url:
                    add_corpus(archive, corpus)
    write_json(output / COUNTS, LINES)


def add_corpus(archive: tarfile.TarFile, corpus: Corpus) -> None:
    """Add the files that a corpus consists of to its archive."""
    for language, lines in zip(LANGUAGES, zip(*corpus_pairs(corpus))):
        name = corpus.files[language][0]
        role = "src" if "-src." in name else "ref"
        text = sgm(lines, corpus.name, role) if name.endswith(".sgm") else "".join(f"{line}\n" for line in lines)
        add_file(archive, f"smoke/{name}", text.encode())
