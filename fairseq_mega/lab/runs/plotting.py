"""Matplotlib without a screen, and figures saved to files."""

from pathlib import Path
from typing import Any, Optional

DOTS = 120  # per inch
COLOURS = 96  # of a picture that is made small: enough for lines, letters and shades


def load_pyplot() -> Any:
    """matplotlib.pyplot, drawing to files only; SystemExit with the remedy without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("a plot needs matplotlib: pip install 'matplotlib>=3.5'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, output: Path, source: Optional[str] = None) -> None:
    """Save a figure to an image file, whose folder is made if need be, and close it.

    Args:
        source: for a picture that is kept beside its results, a PNG: their digest, written into the file, which is
            made small.
    """
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=DOTS)
    load_pyplot().close(figure)
    if source is not None:
        make_small(output, source)


def make_small(image: Path, source: str) -> None:
    """Keep some colours of a PNG, and note what it was drawn from."""
    from PIL import Image, PngImagePlugin  # matplotlib needs it, too

    notes = PngImagePlugin.PngInfo()
    notes.add_text("source", source)
    with Image.open(image) as picture:
        small = picture.convert("RGB").quantize(COLOURS)
    small.save(image, optimize=True, pnginfo=notes)
