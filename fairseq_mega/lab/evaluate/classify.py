"""Classify new texts, recordings or images with a trained classifier.

    fairseq-mega-classify DATA --path CHECKPOINT <TEXTS        # a text per line
    fairseq-mega-classify DATA --path CHECKPOINT FILE...       # a text, a recording or a colour image per file

DATA is the folder that the classifier was trained on; its dictionaries, labels and scales are read. For each example
one line is printed: the likeliest label, its probability, and the line or the name of the file. With --all the line has
every label.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from fairseq_mega.cli.commands import exit_status

PROGRAM = "fairseq-mega-classify"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("data", type=Path, metavar="DATA", help="data folder of the training")
    files = "texts, recordings or images to classify (default: the lines of stdin)"
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help=files)
    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--precision", default="fp32", help="as of fairseq-mega-train (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="print every label with its probability, likeliest first")
    return parser


def run(args: argparse.Namespace) -> None:
    """Classify the examples; raise OSError and ValueError."""
    from fairseq_mega.lab.evaluate.new_examples import print_answers  # with torch and fairseq it needs seconds

    print_answers(args)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    args = build_parser().parse_intermixed_args(argv)  # files may follow options
    return exit_status(PROGRAM, lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
