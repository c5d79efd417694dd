"""The report of a checkpoint."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional

from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import layouts
from fairseq_mega.convert.options import flat_options

from . import averages, parts

LENGTH = 4096  # of the kernels


def read(path: Path) -> Dict[str, Any]:
    """Return a checkpoint of this package, or a converted published one; raise OSError and ValueError."""
    checkpoint = load_checkpoint(path)
    return layouts.to_ours(checkpoint, str(path)) if layouts.is_published_file(checkpoint) else checkpoint


def chunk_of(checkpoint: Dict[str, Any]) -> Optional[int]:
    """Return the chunk of the attention, or None."""
    options = flat_options(checkpoint)
    sizes = [options.get(f"{side}_chunk_size") for side in ("encoder", "decoder")]
    return next((int(size) for size in sizes if size is not None and size > 0), None)


def columns(rows: List[List[str]]) -> List[str]:
    """Return rows as lines: the first column aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    ]


def summary(checkpoint: Dict[str, Any]) -> List[str]:
    """Return options, training, parameters by part and moving averages of a checkpoint, as lines of text."""
    counts = parts.parameters_by_part(checkpoint["model"])
    total = max(sum(count for _, count in counts), 1)
    lines = [f"{name:18}{value}" for name, value in parts.description(checkpoint)]
    rows = [["parameters", f"{total:,}", ""]]
    rows += [[f"  {part}", f"{count:,}", f"{count / total:.1%}"] for part, count in counts]
    lines += ["", *columns(rows)]
    try:
        found = averages.averages_of(checkpoint["model"], LENGTH)
    except ValueError as error:
        return [*lines, "", str(error)]
    return [*lines, "", *columns(averages.table(found))]


def draw(checkpoint: Dict[str, Any], name: str, folder: Path) -> List[Path]:
    """Write the pictures of the moving averages; return their files."""
    from . import pictures

    found = averages.averages_of(checkpoint["model"], LENGTH)
    title = f"Moving averages of {name}"
    files = [folder / "kernels.png", folder / "half_lives.png"]
    pictures.draw_kernels(found, f"{title}: weight of an input by its distance", files[0])
    pictures.draw_half_lives(found, chunk_of(checkpoint), f"{title}: half-life of an input", files[1])
    if found[0].periods.numel():
        files.append(folder / "periods.png")
        pictures.draw_periods(found, chunk_of(checkpoint), f"{title}: period", files[2])
    return files


def report(options: argparse.Namespace) -> None:
    """Print the report that the options select and draw the pictures; raise OSError and ValueError."""
    folder = options.checkpoint.parent if options.pictures is None else options.pictures
    if options.memory is not None:
        from .memory import lines_of

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
    print("\n".join(summary(checkpoint)))
    if options.draw:
        print("\n" + "\n".join(map(str, draw(checkpoint, options.checkpoint.stem, folder))))
