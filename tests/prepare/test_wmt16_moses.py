"""Words of the WMT'16 recipe, and those that fairseq's --tokenizer moses makes of the same text."""

import argparse

import pytest
from fairseq.data import encoders

from fairseq_mega.lab.prepare.wmt16.stages import TokenizerFactory

SENTENCES = [
    "It's a well-known fact, isn't it?",
    'He said: "No [really] & truly <b>yes</b>."',
    "The 3,5-fold rise of 1.5% | 20-year-olds",
    "Mr. Smith (aged 7) met Dr. No. on Jan. 5.",
    "Das ist z.B. der S-Bahn-Hof, ca. 5 km -- oder?",
    "Er sagte: \u201eNein\u201c \u2013 und ging\u2026",
    "a\u00a0b \u3000c\td  e",
    "&apos; and &amp; are kept @-@ so",
    "http://www.example.com/a-b?c=d a@b.de",
    "\u4eca\u65e5\u306f caf\u00e9 nai\u0308ve",
    "",
]


def words(language: str, line: str, **flags: bool) -> "list[str]":
    """Words of a line by fairseq's --tokenizer moses, as its dictionaries and encoders part them."""
    given = argparse.Namespace(tokenizer="moses", source_lang=language, target_lang=language, **flags)
    return encoders.build_tokenizer(given).encode(line).split(" ")


@pytest.mark.parametrize("language", ["en", "de"])
def test_fairseq_cuts_as_the_recipe_with_two_options(language: str) -> None:
    """Every line has the recipe's words with both options, and some lines differ without either."""
    recipe = TokenizerFactory(language, clean=False)()
    wanted = [recipe(line).split(" ") for line in SENTENCES]
    both = {"moses_no_escape": True, "moses_no_dash_splits": True}
    assert [words(language, line, **both) for line in SENTENCES] == wanted
    for omitted in both:
        assert [words(language, line, **{**both, omitted: False}) for line in SENTENCES] != wanted
