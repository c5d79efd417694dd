"""Options of the texts for language models, checked with any Python 3 before an environment exists.

Needs the standard library only, as scripts/check_options.py runs :func:`main`.
"""

import argparse
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

from fairseq_mega.cli.usage import Parser, joining
from fairseq_mega.lab.prepare.shared_options import (
    add_out,
    add_smoke,
    add_workers,
    at_least,
    exactly_one,
    need_files,
    refuse_unused,
)
from fairseq_mega.lab.runs.options import add_environment, for_script

HELD_OUT_SHARE, BLOCKS, SUBWORDS = 0.05, 20, 8000
WIKITEXT_FILES = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"
DATA_BIN = "Writes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx)"


class TextOptions(NamedTuple):
    """Options of a text in the description of its data set."""

    details: str
    add: Callable[[argparse.ArgumentParser], None]
    check: Callable[[argparse.Namespace], None]
    usual_out: Callable[[argparse.Namespace], str]


ENWIK8 = f"""\
{DATA_BIN} of the first 90, next 5 and last 5 million bytes
of enwik8. Every byte is a token, its decimal number; the line feed ends a line and becomes </s>. So a split has as
many tokens as bytes, and bits per token are bits per character. A split that does not end in a line feed has one
token more: fairseq appends </s> to its unfinished last line. Estimated: a quarter of an hour on 2 cores, 800 MB."""


def add_enwik8(parser: argparse.ArgumentParser) -> None:
    """Add the options of enwik8."""
    copy = "your copy of enwik8.zip or of enwik8; its checksum is compared (default: download it)"
    parser.add_argument("--archive", type=Path, metavar="FILE", help=copy)


def check_enwik8(args: argparse.Namespace) -> None:
    """Refuse an archive that is not there."""
    need_files("--archive", args.archive, remedy="give a copy of enwik8.zip, or of enwik8 itself")


WIKITEXT = f"""\
{DATA_BIN} of WikiText, for fairseq's language modelling.
Lines, tokens and the size of the dictionary must be the published ones. Estimated for WikiText-103:
20 minutes on 2 cores, 2 GB in DIR.

The archives are downloaded from wikitext.smerity.com. If you cannot reach it, this writes the files for --text from
Salesforce/wikitext on Hugging Face (pip install datasets):

  import datasets
  for split, part in (("train", "train"), ("valid", "validation"), ("test", "test")):
      with open(f"wiki.{{split}}.tokens", "w", encoding="utf-8", newline="\\n") as file:
          for row in datasets.load_dataset("Salesforce/wikitext", "wikitext-103-v1", split=part):
              file.write(row["text"].rstrip("\\n") + "\\n")"""


def add_wikitext(parser: argparse.ArgumentParser) -> None:
    """Add the options of WikiText."""
    parser.add_argument(
        "--version", choices=("103", "2"), default="103", help="WikiText-103 or WikiText-2 (default: %(default)s)"
    )
    archives = "wikitext-103-v1.zip or wikitext-2-v1.zip"
    parser.add_argument("--archive", type=Path, metavar="FILE", help=f"your copy of {archives}; its MD5 is compared")
    texts = f"folder with {WIKITEXT_FILES}, plain or .gz, instead of an archive"
    parser.add_argument("--text", type=Path, metavar="DIR", help=texts)


def check_wikitext(args: argparse.Namespace) -> None:
    """Refuse two sources, and one that is not there."""
    exactly_one(args, "--archive", "--text")
    need_files("--archive", args.archive, remedy=f"give a copy of wikitext-{args.version}-v1.zip")
    if args.text is not None and not args.text.is_dir():
        raise ValueError(f"--text is '{args.text}': a folder with {WIKITEXT_FILES} is needed")


GCIDE = f"""\
{DATA_BIN} of the Collaborative International Dictionary of
English, from the Debian package dict-gcide (GPL-2+): a stand-in for enwik8 and WikiText-103 where you cannot download
them. The text is alphabetical, so valid and test are drawn from 20 evenly spaced blocks of it (90, 5 and 5 % of every
block). About six minutes on 2 cores, 400 MB."""


def add_gcide(parser: argparse.ArgumentParser) -> None:
    """Add the options of the dictionary."""
    units = "bytes (like enwik8: every byte a token) or words (default: %(default)s)"
    parser.add_argument("--unit", choices=("bytes", "words"), default="bytes", help=units)
    add_threshold(parser, 5)
    blocks = "number of blocks (default: %(default)s)"
    parser.add_argument("--blocks", type=at_least(1), default=BLOCKS, metavar="N", help=blocks)
    share = f"share of the text for valid, and for test (default: {HELD_OUT_SHARE})"
    parser.add_argument("--held-out", type=float, metavar="SHARE", help=share)
    add_limit(parser)
    deb = "your copy of the package (default: apt-get download fetches it)"
    parser.add_argument("--deb", type=Path, metavar="FILE", help=deb)
    dictionary = "gcide.dict.dz from the package, instead of --deb"
    parser.add_argument("--dictionary", type=Path, metavar="FILE", help=dictionary)


def check_gcide(args: argparse.Namespace) -> None:
    """Refuse a threshold of bytes, a share that is none, and files that are not there."""
    check_threshold(args)
    check_held_out(args)
    exactly_one(args, "--deb", "--dictionary")
    need_files("--deb", args.deb, remedy="give a copy of dict-gcide_VERSION_all.deb")
    need_files("--dictionary", args.dictionary, remedy="give a copy of gcide.dict.dz")


TEXT_LM = f"""\
{DATA_BIN} of your own text, for fairseq's language
modelling. A text of 1 MB becomes 2 MB as bytes."""


def add_text_lm(parser: argparse.ArgumentParser) -> None:
    """Add the options of a text of one's own."""
    parser.add_argument("--train", type=Path, metavar="FILE", help="text to train on")
    held_out = "validation text (default: evenly spaced blocks of lines held out of --train)"
    parser.add_argument("--valid", type=Path, metavar="FILE", help=held_out)
    parser.add_argument("--test", type=Path, metavar="FILE", help="test text (default: other such blocks)")
    units = "words (UTF-8, split at white space), subwords (pieces of words, learnt from train) or bytes (any file)"
    choices = ("words", "subwords", "bytes")
    parser.add_argument("--unit", choices=choices, default="words", help=f"{units} (default: %(default)s)")
    size = f"number of subwords to learn (default: {SUBWORDS})"
    parser.add_argument("--vocab-size", type=at_least(1), metavar="N", help=size)
    add_threshold(parser, 2)
    share = "share of --train for valid, and for test (default: %(default)s)"
    parser.add_argument("--held-out", type=float, default=HELD_OUT_SHARE, metavar="SHARE", help=share)
    add_limit(parser)
    blocks = "number of blocks of --train, whose ends are held out (default: %(default)s; 1: the end of the text)"
    parser.add_argument("--blocks", type=at_least(1), default=BLOCKS, metavar="N", help=blocks)


def check_text_lm(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other, and texts that are not there."""
    if args.vocab_size is not None and args.unit != "subwords":
        raise ValueError(f"--vocab-size is {args.vocab_size}, but only subwords are learnt: give --unit subwords")
    check_threshold(args)
    check_held_out(args)
    refuse_unused(args, ("--valid", "--test"), {"--held-out": HELD_OUT_SHARE, "--blocks": BLOCKS})
    if args.train is None and not args.smoke:
        raise ValueError("--train is missing: give the text to learn from; see --help")
    for name in ("train", "valid", "test"):
        path = getattr(args, name)
        is_folder = path is not None and path.is_dir()
        remedy = f"give --{name} all.txt, after `{joining([path])}`" if is_folder else "give a text file"
        need_files(f"--{name}", path, remedy=remedy)


TEXTS: Dict[str, TextOptions] = {
    "enwik8": TextOptions(ENWIK8, add_enwik8, check_enwik8, lambda args: "enwik8"),
    "wikitext": TextOptions(WIKITEXT, add_wikitext, check_wikitext, lambda args: f"wikitext-{args.version}"),
    "gcide": TextOptions(GCIDE, add_gcide, check_gcide, lambda args: f"gcide-{args.unit}"),
    "text-lm": TextOptions(TEXT_LM, add_text_lm, check_text_lm, lambda args: "text"),
}


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit, in bytes."""
    limit = "use this many bytes only, in equal parts from all blocks (default: all)"
    parser.add_argument("--limit", type=at_least(1), metavar="BYTES", help=limit)


def check_held_out(args: argparse.Namespace) -> None:
    """Raise ValueError for a --held-out that is no share."""
    if args.held_out is not None and not 0 < args.held_out < 1:
        raise ValueError(f"--held-out is {args.held_out}: a share between 0 and 1 is needed, for instance 0.05")


def add_threshold(parser: argparse.ArgumentParser, usual: int) -> None:
    """Add --threshold, for words."""
    seen = f"replace words that occur fewer than N times in train by <unk> (default: {usual})"
    parser.add_argument("--threshold", type=at_least(0), metavar="N", help=seen)


def check_threshold(args: argparse.Namespace) -> None:
    """Raise ValueError for a threshold of bytes or subwords, which are all kept."""
    if args.unit != "words" and args.threshold is not None:
        raise ValueError(
            f"--threshold is {args.threshold}, but --unit {args.unit} keeps every {args.unit[:-1]}: omit it, or "
            "give --unit words"
        )


def main(words: List[str]) -> None:
    """Check the command line of scripts/prepare_*.sh, a text's name in front, and print what the script needs of it."""
    name, *given = words
    text, form = TEXTS[name], argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=f"fairseq-mega-prepare {name}", description=text.details, formatter_class=form, allow_abbrev=False
    )
    add_out(parser, required=False)
    text.add(parser)
    add_workers(parser)
    add_smoke(parser)
    add_environment(parser)
    args = parser.parse_args(given)
    try:
        text.check(args)
    except ValueError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    print(for_script(args))
