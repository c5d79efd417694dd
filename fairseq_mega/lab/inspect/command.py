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
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import layouts
from fairseq_mega.convert.options import flat_options
from fairseq_mega.lab.runs.text_tables import Table, terminal

from . import averages, parts

PROGRAM = "fairseq-mega-inspect"
LENGTH = 4096  # of the kernels


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


def read(path: Path) -> Dict[str, Any]:
    """Return a checkpoint of this package, or a converted published one; raise OSError and ValueError."""
    checkpoint = load_checkpoint(path)
    return layouts.to_ours(checkpoint, str(path)) if layouts.is_published_file(checkpoint) else checkpoint


def chunk_of(checkpoint: Dict[str, Any]) -> Optional[int]:
    """Return the chunk of the attention, or None."""
    options = flat_options(checkpoint)
    sizes = [options.get(f"{side}_chunk_size") for side in ("encoder", "decoder")]
    return next((int(size) for size in sizes if size is not None and size > 0), None)


def summary(checkpoint: Dict[str, Any]) -> str:
    """Return options, training, parameters by part and moving averages of a checkpoint."""
    counts = parts.parameters_by_part(checkpoint["model"])
    total = max(sum(count for _, count in counts), 1)
    lines = [f"{name:18}{value}" for name, value in parts.description(checkpoint)]
    rows = [[f"  {part}", f"{count:,}", f"{count / total:.1%}"] for part, count in counts]
    lines += ["", terminal(Table(["parameters", f"{total:,}", ""], rows))]
    try:
        last = terminal(averages.table(averages.averages_of(checkpoint["model"], LENGTH)))
    except ValueError as error:
        last = str(error)
    return "\n".join([*lines, "", last])


def draw(checkpoint: Dict[str, Any], name: str, folder: Path) -> List[Path]:
    """Write the pictures of the moving averages; return their files."""
    from . import pictures

    found = averages.averages_of(checkpoint["model"], LENGTH)
    title = f"Moving averages of {name}"
    files = [folder / "kernels.png", folder / "half_lives.png"]
    pictures.draw_kernels(found, f"{title}: weight of an input by its distance", files[0])
    half_lives = {average.layer: average.half_lives for average in found}
    pictures.draw_histograms(half_lives, "half-life", chunk_of(checkpoint), f"{title}: half-life of an input", files[1])
    if found[0].periods.numel():
        files.append(folder / "periods.png")
        periods = {average.layer: average.periods for average in found}
        pictures.draw_histograms(periods, "period", chunk_of(checkpoint), f"{title}: period", files[2])
    return files


def report(options: argparse.Namespace) -> None:
    """Print the report that the options select and draw the pictures; raise OSError and ValueError."""
    folder = options.checkpoint.parent if options.pictures is None else options.pictures
    if options.memory is not None:
        from .memory import lines_of  # needs the recipes

        bf16 = options.precision == "bf16"
        print("\n".join(lines_of(str(options.checkpoint), options.memory, options.symbols, bf16)))
        return
    if options.attention is not None:
        from . import pictures
        from .attention import attention_for

        found = attention_for(options.checkpoint, options.data, options.attention, options.layer)
        file = folder / "attention.png"
        pictures.draw_attention(found.weights, found.rows, found.columns, found.title, file)
        print(file)
        return
    checkpoint = read(options.checkpoint)
    print(summary(checkpoint))
    if options.draw:
        print("\n" + "\n".join(map(str, draw(checkpoint, options.checkpoint.stem, folder))))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status, 1 after an error message."""
    options = build_parser().parse_args(argv)
    return exit_status(PROGRAM, lambda: report(options))


if __name__ == "__main__":
    sys.exit(main())
