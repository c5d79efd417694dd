"""Matplotlib without a screen, and figures saved to files."""

from pathlib import Path
from typing import Any


def load_pyplot() -> Any:
    """matplotlib.pyplot, drawing to files only; SystemExit with the remedy without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("a plot needs matplotlib: pip install 'matplotlib>=3.5'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, output: Path) -> None:
    """Save a figure to an image file, whose folder is made if need be, and close it."""
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)
    load_pyplot().close(figure)
