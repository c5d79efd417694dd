"""Options that several data sets have, and those of the texts for language models, checked before the environment.

Needs the standard library only, as scripts/check_options.py runs :func:`main` with any Python 3.
"""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from fairseq_mega.cli.usage import Parser
from fairseq_mega.lab.runs.options import add_environment, at_least, flag, for_script, usable_cores

HELD_OUT_SHARE, BLOCKS, SUBWORDS = 0.05, 20, 8000
WIKITEXT_FILES = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"
DATA_BIN = "Writes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx)"
WRITTEN = ("out", "archives")  # the second one is a folder that archives may be downloaded to
LENGTH = 4000  # bytes of a text that are kept by default


def add_out(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add --out."""
    usual = "" if required else " (default: a folder in outputs of the checkout, named after the data)"
    parser.add_argument("--out", type=Path, required=required, metavar="DIR", help=f"folder to write{usual}")


def add_smoke(parser: argparse.ArgumentParser) -> None:
    """Add --smoke; its value is None where it is not passed."""
    toy = "make a little invented data instead, in seconds"
    parser.add_argument("--smoke", action="store_const", const=True, help=toy)


def add_path(parser: "argparse._ActionsContainer", option: str, text: str, **others: Any) -> None:
    """Add an option for a file, or for a folder if ``metavar`` is "DIR"."""
    parser.add_argument(option, **{"type": Path, "metavar": "FILE", "help": text, **others})


def add_number(parser: argparse.ArgumentParser, option: str, default: Any, text: str, least: int = 1) -> None:
    """Add an option for a whole number of at least ``least``."""
    usual = "" if default is None else " (default: %(default)s)"
    parser.add_argument(option, type=at_least(least), default=default, metavar="N", help=text + usual)


def add_length(parser: argparse.ArgumentParser) -> None:
    """Add --length, for texts as bytes."""
    add_number(parser, "--length", LENGTH, "bytes to keep of the beginning of a text")


def add_seed(parser: argparse.ArgumentParser, things: str) -> None:
    """Add --seed."""
    add_number(parser, "--seed", 1, f"seed of the {things}", 0)


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    values = [at_least(1)(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text!r}: one number or three are needed: TRAIN,VALID,TEST")
    return values * 3 if len(values) == 1 else values


def add_archive(parser: "argparse._ActionsContainer", name: str) -> None:
    """Add --archive, for a published archive of this name."""
    add_path(parser, "--archive", f"your copy of {name}, instead of a download")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    keep = "keep this many examples of each split (or of train, valid and test), drawn with a fixed seed"
    parser.add_argument("--limit", type=parse_limit, metavar="N[,N,N]", help=keep)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers, by default one process per usable core; the result does not depend on it."""
    cores = usable_cores()
    parser.add_argument(
        "--workers", type=at_least(1), default=cores, metavar="N", help="number of processes (default: cores)"
    )


def check_together(args: argparse.Namespace, *names: str) -> None:
    """Raise ValueError if some of the options that set these attributes are passed without the others."""
    if len({getattr(args, name) is None for name in names}) > 1:
        raise ValueError(f"{' and '.join(map(flag, names))} are passed together")


def check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError naming the option of a file or folder that does not exist, but for those that are written."""
    for name, value in vars(args).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and name not in WRITTEN and not path.exists():
                raise ValueError(f"{flag(name)}: {path} does not exist")


# --- Texts for language models


class TextOptions(NamedTuple):
    """Options of a text in the description of its data set."""

    details: str
    add: Callable[[argparse.ArgumentParser], None]
    usual_out: Callable[[argparse.Namespace], str]
    check: Callable[[argparse.Namespace], None] = lambda args: None


ENWIK8 = f"""\
{DATA_BIN} of the first 90, next 5 and last 5 million bytes
of enwik8. Every byte is a token, its decimal number; the line feed ends a line and becomes </s>. So a split has as
many tokens as bytes, and bits per token are bits per character. A split that does not end in a line feed has one
token more: fairseq appends </s> to its unfinished last line. Estimated: a quarter of an hour on 2 cores, 800 MB."""
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
GCIDE = f"""\
{DATA_BIN} of the Collaborative International Dictionary of
English, from the Debian package dict-gcide (GPL-2+): a stand-in for enwik8 and WikiText-103 where you cannot download
them. The text is alphabetical, so valid and test are drawn from 20 evenly spaced blocks of it (90, 5 and 5 % of every
block). About six minutes on 2 cores, 400 MB."""
TEXT_LM = f"""\
{DATA_BIN} of your own text, for fairseq's language
modelling. A text of 1 MB becomes 2 MB as bytes."""


def add_enwik8(parser: argparse.ArgumentParser) -> None:
    """Add the options of enwik8."""
    copy = "your copy of enwik8.zip or of enwik8; its checksum is compared (default: download it)"
    add_path(parser, "--archive", copy)


def add_wikitext(parser: argparse.ArgumentParser) -> None:
    """Add the options of WikiText."""
    versions = "WikiText-103 or WikiText-2 (default: %(default)s)"
    parser.add_argument("--version", choices=("103", "2"), default="103", help=versions)
    sources = parser.add_mutually_exclusive_group()
    add_path(sources, "--archive", "your copy of wikitext-103-v1.zip or wikitext-2-v1.zip; its MD5 is compared")
    texts = f"folder with {WIKITEXT_FILES}, plain or .gz, instead of an archive"
    add_path(sources, "--text", texts, metavar="DIR")


def add_gcide(parser: argparse.ArgumentParser) -> None:
    """Add the options of the dictionary."""
    units = "bytes (like enwik8: every byte a token) or words (default: %(default)s)"
    parser.add_argument("--unit", choices=("bytes", "words"), default="bytes", help=units)
    add_cutting(parser, 5, None)
    sources = parser.add_mutually_exclusive_group()
    add_path(sources, "--deb", "your copy of the package (default: apt-get download fetches it)")
    add_path(sources, "--dictionary", "gcide.dict.dz from the package, instead of --deb")


def add_text_lm(parser: argparse.ArgumentParser) -> None:
    """Add the options of a text of one's own."""
    add_path(parser, "--train", "text to train on")
    add_path(parser, "--valid", "validation text (default: evenly spaced blocks of lines held out of --train)")
    add_path(parser, "--test", "test text (default: other such blocks)")
    units = "words (UTF-8, split at white space), subwords (pieces of words, learnt from train) or bytes (any file)"
    choices = ("words", "subwords", "bytes")
    parser.add_argument("--unit", choices=choices, default="words", help=f"{units} (default: %(default)s)")
    add_number(parser, "--vocab-size", None, f"number of subwords to learn (default: {SUBWORDS})")
    add_cutting(parser, 2, HELD_OUT_SHARE)


def add_cutting(parser: argparse.ArgumentParser, threshold: int, held_out: Optional[float]) -> None:
    """Add the options that cut a text into splits and tokens."""
    seen = f"replace words that occur fewer than N times in train by <unk> (default: {threshold})"
    add_number(parser, "--threshold", None, seen, 0)
    share = f"share of the text for valid, and for test (default: {HELD_OUT_SHARE})"
    parser.add_argument("--held-out", type=float, default=held_out, metavar="SHARE", help=share)
    add_number(parser, "--limit", None, "use this many bytes only, in equal parts from all blocks (default: all)")
    add_number(parser, "--blocks", BLOCKS, "number of blocks of the text, whose ends are held out")


def check_text_lm(args: argparse.Namespace) -> None:
    """Refuse to learn from nothing."""
    if args.train is None and not args.smoke:
        raise ValueError("--train is missing: give the text to learn from; see --help")


TEXTS: Dict[str, TextOptions] = {
    "enwik8": TextOptions(ENWIK8, add_enwik8, lambda args: "enwik8"),
    "wikitext": TextOptions(WIKITEXT, add_wikitext, lambda args: f"wikitext-{args.version}"),
    "gcide": TextOptions(GCIDE, add_gcide, lambda args: f"gcide-{args.unit}"),
    "text-lm": TextOptions(TEXT_LM, add_text_lm, lambda args: "text", check_text_lm),
}


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
        check_paths(args)
        text.check(args)
    except ValueError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    print(for_script(args))
