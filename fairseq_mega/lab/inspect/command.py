"""Describe a checkpoint: parameters by part, training, and the half-lives of each layer's moving average.

    fairseq-mega-inspect CHECKPOINT                    # as text
    fairseq-mega-inspect CHECKPOINT --draw             # with pictures: kernels, half-lives
    fairseq-mega-inspect CHECKPOINT --attention TEXT   # a picture of a layer's attention; of a translator its alignment
    fairseq-mega-inspect mega_lm_enwik8_base --memory 24 80   # longest context in 24 and 80 GiB

Checkpoints of the published code are read, too. Nothing in a file is executed.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.lab.inspect.report import report

PROGRAM = "fairseq-mega-inspect"
READ_WITH = {  # options, and the options of which each requires one
    "layer": ["attention"],
    "data": ["attention"],
    "symbols": ["memory"],
    "precision": ["memory"],
    "pictures": ["draw", "attention"],
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="checkpoint; for --memory also an architecture"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--draw", action="store_true", help="draw the kernels and half-lives of all layers")
    what.add_argument("--attention", metavar="TEXT", help="draw the attention of one layer for a text")
    what.add_argument(
        "--memory",
        type=float,
        nargs="+",
        metavar="GIB",
        help="estimate the longest context of a language model's training step in this memory",
    )
    symbols = "for --memory of an architecture: size of the dictionary (default: its recipes', or 32000)"
    parser.add_argument("--symbols", type=int, metavar="N", help=symbols)
    precision = "for --memory: precision of the training (default: fp32)"
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help=precision)
    parser.add_argument(
        "--layer", type=int, metavar="N", help="for --attention: number of the layer, from 1 (default: the last)"
    )
    parser.add_argument("--data", type=Path, help="for --attention: data folder (default: that of the training)")
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="folder of the pictures (default: that of the checkpoint)"
    )
    return parser


def unread(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Optional[str]:
    """Return an error for an option without any of the options that it requires; None if all options are used."""
    given = {name for name, value in vars(options).items() if value != parser.get_default(name)}
    for name, others in READ_WITH.items():
        if name in given and not given & set(others):
            wanted = " or ".join(f"--{other}" for other in others)
            return f"--{name} {getattr(options, name)} requires {wanted}: add it, or omit --{name}"
    return None


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status, 1 after an error message."""
    parser = build_parser()
    options = parser.parse_args(argv)
    problem = unread(options, parser)
    if problem is not None:
        parser.error(problem)
    return exit_status(PROGRAM, lambda: report(options))


if __name__ == "__main__":
    sys.exit(main())
