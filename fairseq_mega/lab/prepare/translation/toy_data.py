"""Toy help pages in English and German, for --smoke: they pass the same stages as the real pages."""

from itertools import product
from pathlib import Path
from typing import List

from fairseq_mega.lab.prepare.libreoffice_help import HELP

ADJECTIVES = {"old": "alte", "new": "neue", "small": "kleine", "round": "runde"}
NOUNS = {"button": "Knopf", "text": "Text", "table": "Tisch", "printer": "Drucker", "folder": "Ordner"}
VERBS = {"shows": "zeigt", "opens": "öffnet", "moves": "bewegt", "holds": "hält"}
PAGES = 200  # a few pages are held out for valid and test


def write_pages(folder: Path) -> List[str]:
    """Write the pages to ``folder/usr/share/libreoffice/help``; return the options that read them."""
    nouns = list(product(ADJECTIVES, NOUNS))
    sentences = [(*first, verb, *second) for first, verb, second in product(nouns, VERBS, nouns)]
    for language in ("en-US", "de"):
        (folder / HELP / language / "text").mkdir(parents=True)
    for page in range(PAGES):
        texts = {"en-US": "", "de": ""}
        for number, (old, one, verb, new, other) in enumerate(sentences[page :: 2 * PAGES]):
            english = f"The {old} {one} {verb} the {new} {other}."
            german = f"Der {ADJECTIVES[old]} {NOUNS[one]} {VERBS[verb]} den {ADJECTIVES[new]}n {NOUNS[other]}."
            for language, sentence in (("en-US", english), ("de", german)):
                texts[language] += f'<p id="par_id{number}">{sentence}</p>\n'
        for language, text in texts.items():
            (folder / HELP / language / "text" / f"page{page}.html").write_text(text, encoding="utf-8")
    return ["--packages", str(folder)]
