"""Describe a checkpoint: its model, its training, and parameters by part.

    fairseq-mega-inspect CHECKPOINT                    # as text
    fairseq-mega-inspect CHECKPOINT --attention TEXT   # a picture of a layer's attention; of a translator its alignment
    fairseq-mega-inspect mega_lm_enwik8_base --memory 24 80   # longest context in 24 and 80 GiB

Checkpoints of the published code are read, too. Nothing in a file is executed.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from fairseq_mega.cli.commands import exit_status

PROGRAM = "fairseq-mega-inspect"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    checkpoint = "checkpoint; for --memory also an architecture"
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=checkpoint)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--attention", metavar="TEXT", help="draw the attention of one layer for a text")
    memory = "estimate the longest context of a language model's training step in this memory"
    what.add_argument("--memory", type=float, nargs="+", metavar="GIB", help=memory)
    add = parser.add_argument
    symbols = "for --memory of an architecture: size of the dictionary (default: its recipes', or 32000)"
    add("--symbols", type=int, metavar="N", help=symbols)
    precision = "for --memory: precision of the training (default: fp32)"
    add("--precision", choices=["fp32", "bf16"], default="fp32", help=precision)
    add("--layer", type=int, metavar="N", help="for --attention: number of the layer, from 1 (default: the last)")
    add("--data", type=Path, help="for --attention: data folder (default: that of the training)")
    add("--pictures", type=Path, metavar="FOLDER", help="folder of the pictures (default: that of the checkpoint)")
    return parser


def report(options: argparse.Namespace) -> None:
    """Print the report that the options select and draw the pictures; raise OSError and ValueError."""
    path, folder = options.checkpoint, options.pictures or options.checkpoint.parent
    if options.memory is not None:  # imports of the selected report alone: they take seconds
        from .memory import lines_of

        print("\n".join(lines_of(str(path), options.memory, options.symbols, options.precision == "bf16")))
    elif options.attention is not None:
        from .attention import attention_for, draw_attention

        draw_attention(attention_for(path, options.data, options.attention, options.layer), folder / "attention.png")
        print(folder / "attention.png")
    else:
        from .parts import read, summary

        print(summary(read(path)))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status, 1 after an error message."""
    options = build_parser().parse_args(argv)
    return exit_status(PROGRAM, lambda: report(options))


if __name__ == "__main__":
    sys.exit(main())
