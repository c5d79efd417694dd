"""Prepare text for language modelling.

    python -m fairseq_mega.lab.prepare.language_modeling obtain --corpus enwik8 --output DIR --record FILE [...]
    python -m fairseq_mega.lab.prepare.language_modeling dictionary --dictionary FILE --output FILE --record FILE
    python -m fairseq_mega.lab.prepare.language_modeling check --unit words FILE...
    python -m fairseq_mega.lab.prepare.language_modeling split --unit words --train FILE --output DIR
    python -m fairseq_mega.lab.prepare.language_modeling count --data DATA_BIN --text DIR
    python -m fairseq_mega.lab.prepare.language_modeling decode <NUMBERS >TEXT

`split` writes train, valid and test, in the form that `fairseq-preprocess --only-source` takes, and counts.json, which
`count` compares with the binarised data; there it leaves unit.json, which names the unit of the tokens. The scripts
prepare_*.sh run these commands in their order.
"""

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.cli.commands import Commands
from fairseq_mega.data.byte_text import decode
from fairseq_mega.data.text_units import UNITS
from fairseq_mega.lab.prepare.language_modeling.counting import command_count
from fairseq_mega.lab.prepare.language_modeling.obtaining import command_dictionary, command_obtain
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.language_modeling.splitting import check_files, command_split
from fairseq_mega.lab.prepare.splits import SPLITS


def command_check(args: argparse.Namespace) -> None:
    """Refuse files that are missing, empty, without a word, or no UTF-8, with the place and the remedy."""
    check_files(args.files, args.unit, args.replace_invalid)


def command_decode(args: argparse.Namespace) -> None:
    """Turn lines of decimal numbers on stdin, for instance generated ones, into the text they stand for."""
    sys.stdout.buffer.write(decode(sys.stdin.read()))


def sizes(text: str) -> List[int]:
    """Parse the argument of --sizes."""
    values = [int(part) for part in text.split(",")]
    if len(values) != len(SPLITS) or min(values) < 1:
        raise ValueError
    return values


def add_obtaining(commands: Commands) -> None:
    """Add the commands that obtain a text."""
    obtain = commands.add("obtain", command_obtain)
    obtain.add_argument("--corpus", choices=sorted(CORPORA), required=True)
    obtain.add_argument("--archive", type=Path, metavar="FILE", help="an own copy of the download")
    obtain.add_argument("--text", type=Path, metavar="DIR", help="folder that holds the unpacked files, plain or .gz")
    dictionary = commands.add("dictionary", command_dictionary)
    dictionary.add_argument("--dictionary", type=Path, required=True, metavar="FILE")
    dictionary.add_argument("--package", type=Path, metavar="FILE", help="the package that the dictionary came in")
    dictionary.add_argument("--version", default="unknown", help="version of the package")
    for command in (obtain, dictionary):
        command.add_argument("--output", type=Path, required=True, metavar="PATH")
        command.add_argument("--record", type=Path, required=True, metavar="FILE", help="where to record the source")
        command.add_argument("--smoke", action="store_true", help="make a text up: no download, no checksums")


def add_splitting(commands: Commands) -> None:
    """Add the commands that check and split a text."""
    check, split = commands.add("check", command_check), commands.add("split", command_split)
    for command in (check, split):
        command.add_argument("--unit", choices=UNITS, required=True, help="the unit of a token")
        command.add_argument("--replace-invalid", action="store_true", help="except for bytes: no UTF-8 becomes U+FFFD")
    check.add_argument("files", type=Path, nargs="+", metavar="FILE")
    split.add_argument("--train", type=Path, required=True, metavar="FILE")
    for name in ("valid", "test"):
        split.add_argument(f"--{name}", type=Path, metavar="FILE", help="default: held out of --train")
    split.add_argument("--output", type=Path, required=True, metavar="DIR")
    split.add_argument("--sizes", type=sizes, metavar="N,N,N", help="cut --train into three parts of so many bytes")
    split.add_argument("--blocks", type=int, default=20, metavar="N", help="blocks that each give to every split")
    split.add_argument("--held-out", type=float, default=0.05, metavar="SHARE", help="share of valid and of test")
    split.add_argument("--limit", type=int, metavar="BYTES", help="use so many bytes of --train, from every block")
    split.add_argument("--vocab-size", type=int, default=8000, metavar="N", help="subwords: how many to learn")
    split.add_argument("--smoke", action="store_true", help="make a text up and write it to the file of --train")


def add_counting(commands: Commands) -> None:
    """Add the commands that look at binarised text."""
    count = commands.add("count", command_count)
    count.add_argument("--data", type=Path, required=True, metavar="DIR", help="output of fairseq-preprocess")
    count.add_argument("--text", type=Path, required=True, metavar="DIR", help="output of split")
    count.add_argument("--threshold", type=int, default=0, metavar="N", help="--thresholdsrc of fairseq-preprocess")
    count.add_argument("--corpus", choices=sorted(CORPORA), help="compare with its published counts, too")
    count.add_argument("--json", type=Path, metavar="FILE", help="write the counts to this file")
    commands.add("decode", command_decode)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    commands = Commands("language_modeling", __doc__)
    add_obtaining(commands)
    add_splitting(commands)
    add_counting(commands)
    return commands.run(argv)
