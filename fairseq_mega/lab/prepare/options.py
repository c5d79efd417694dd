"""Options that several data sets have, and those of the texts for language models, checked before the environment.

Needs the standard library only, as scripts/check_options.py runs :func:`main` with any Python 3.
"""

import argparse
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.cli.usage import Parser
from fairseq_mega.lab.runs.options import add_environment, at_least, flag, for_script, usable_cores

HELD_OUT_SHARE, BLOCKS, SUBWORDS = 0.05, 20, 8000
WIKITEXT_FILES = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"
DATA_BIN = "Writes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx)"
WRITTEN = ("out", "archives")  # the second one is a folder that archives may be downloaded to
LENGTH = 4000  # bytes of a text that are kept by default
USUAL = " (default: %(default)s)"

Option = Callable[["argparse._ActionsContainer"], object]  # adds itself to a parser


def option(*names: str, **keywords: Any) -> Option:
    """Return any option of argparse."""
    return lambda parser: parser.add_argument(*names, **keywords)


def file_option(*names: str, text: str, **others: Any) -> Option:
    """Return an option for a file, or for several with ``nargs``."""
    return option(*names, **{"type": Path, "metavar": "FILE", "help": text, **others})


def folder_option(*names: str, text: str, **others: Any) -> Option:
    """Return an option for a folder."""
    return file_option(*names, text=text, metavar="DIR", **others)


def number_option(name: str, default: Any, text: str, least: int = 1) -> Option:
    """Return an option for a whole number of at least ``least``."""
    usual = "" if default is None else USUAL
    return option(name, type=at_least(least), default=default, metavar="N", help=text + usual)


def choice(name: str, choices: Sequence[str], text: str) -> Option:
    """Return an option for one of some words, by default the first."""
    return option(name, choices=choices, default=choices[0], help=text + USUAL)


def switch(name: str, text: str) -> Option:
    """Return an option without a value."""
    return option(name, action="store_true", help=text)


def one_of(*options: Option) -> Option:
    """Return options that exclude each other."""

    def add(parser: "argparse._ActionsContainer") -> None:
        group = parser.add_mutually_exclusive_group()
        for each in options:
            each(group)

    return add


def archive(name: str) -> Option:
    """Return --archive, for a published archive of this name."""
    return file_option("--archive", text=f"your copy of {name}, instead of a download")


def seed(things: str) -> Option:
    """Return --seed."""
    return number_option("--seed", 1, f"seed of the {things}", 0)


def out(required: bool) -> Option:
    """Return --out."""
    usual = "" if required else " (default: a folder in outputs of the checkout, named after the data)"
    return folder_option("--out", required=required, text=f"folder to write{usual}")


def sources(things: str, *older: str, required: bool = True, **others: Any) -> Tuple[Option, ...]:
    """Return --train, --valid and --test of data of one's own.

    Args:
        older: names that the first had in earlier versions, and has in card.json.
        others: of each option, where it is not a file.
    """
    dest, form = (older or ("--train",))[0].lstrip("-"), {"type": Path, "metavar": "FILE", **others}
    held_out = "(default: held out of --train)"
    return (
        option("--train", *older, dest=dest, required=required, help=f"{things} to train on", **form),
        *(option(f"--{split}", help=f"{things} of {split} {held_out}", **form) for split in ("valid", "test")),
    )


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    values = [at_least(1)(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text!r}: one number or three are needed: TRAIN,VALID,TEST")
    return values * 3 if len(values) == 1 else values


# None where it is not passed, as all that older cards lack.
SMOKE = option("--smoke", action="store_const", const=True, help="make a little invented data instead, in seconds")
KEPT_LENGTH = number_option("--length", LENGTH, "bytes to keep of the beginning of a text")
KEPT = "keep this many examples of each split (or of train, valid and test), drawn with a fixed seed"
LIMIT = option("--limit", type=parse_limit, metavar="N[,N,N]", help=KEPT)
# The result does not depend on it.
WORKERS = option(
    "--workers", type=at_least(1), default=usable_cores(), metavar="N", help="number of processes (default: cores)"
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
    """Description of a text and its options."""

    details: str
    options: Tuple[Option, ...]
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
modelling. Evenly spaced blocks of lines are held out. A text of 1 MB becomes 2 MB as bytes."""


def cutting(threshold: int, held_out: Optional[float]) -> Tuple[Option, ...]:
    """Return the options that cut a text into splits and tokens."""
    seen = f"replace words that occur fewer than N times in train by <unk> (default: {threshold})"
    share = f"share of the text for valid, and for test (default: {HELD_OUT_SHARE})"
    return (
        number_option("--threshold", None, seen, 0),
        option("--held-out", type=float, default=held_out, metavar="SHARE", help=share),
        number_option("--limit", None, "use this many bytes only, in equal parts from all blocks (default: all)"),
        number_option("--blocks", BLOCKS, "number of blocks of the text, whose ends are held out"),
    )


def check_text_lm(args: argparse.Namespace) -> None:
    """Refuse to learn from nothing."""
    if args.train is None and not args.smoke:
        raise ValueError("--train is missing: give the text to learn from; see --help")


TEXTS: Dict[str, TextOptions] = {
    "enwik8": TextOptions(
        ENWIK8,
        (file_option("--archive", text="your copy of enwik8.zip or of enwik8, whose checksum is compared"),),
        lambda args: "enwik8",
    ),
    "wikitext": TextOptions(
        WIKITEXT,
        (
            choice("--version", ("103", "2"), "WikiText-103 or WikiText-2"),
            one_of(
                file_option("--archive", text="your copy of wikitext-103-v1.zip or wikitext-2-v1.zip, checked by MD5"),
                folder_option("--text", text=f"folder with {WIKITEXT_FILES}, plain or .gz, instead of an archive"),
            ),
        ),
        lambda args: f"wikitext-{args.version}",
    ),
    "gcide": TextOptions(
        GCIDE,
        (
            choice("--unit", ("bytes", "words"), "bytes (like enwik8: every byte a token) or words"),
            *cutting(5, None),
            one_of(
                file_option("--deb", text="your copy of the package (default: apt-get download fetches it)"),
                file_option("--dictionary", text="gcide.dict.dz from the package, instead of --deb"),
            ),
        ),
        lambda args: f"gcide-{args.unit}",
    ),
    "text-lm": TextOptions(
        TEXT_LM,
        (
            *sources("text", required=False),
            choice(
                "--unit",
                ("words", "subwords", "bytes"),
                "words (UTF-8, split at white space), subwords (learnt from train) or bytes (any file)",
            ),
            number_option("--vocab-size", None, f"number of subwords to learn (default: {SUBWORDS})"),
            *cutting(2, HELD_OUT_SHARE),
        ),
        lambda args: "text",
        check_text_lm,
    ),
}


def main(words: List[str]) -> None:
    """Check the command line of scripts/prepare_*.sh, a text's name in front, and print what the script needs of it."""
    name, *given = words
    text, form = TEXTS[name], argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=f"fairseq-mega-prepare {name}", description=text.details, formatter_class=form, allow_abbrev=False
    )
    for add in (out(required=False), *text.options, WORKERS, SMOKE):
        add(parser)
    add_environment(parser)
    args = parser.parse_args(given)
    try:
        check_paths(args)
        text.check(args)
    except ValueError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    print(for_script(args))
