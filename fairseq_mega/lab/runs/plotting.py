"""Matplotlib without a screen: panels of curves, and figures saved to files."""

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

DOTS = 120  # per inch
COLOURS = 96  # colours of a picture that is made small: enough for lines, letters and shades


class Line(NamedTuple):
    """A curve: its points, its name in the legend, options of ``Axes.plot``, and x, lower and upper end of a band."""

    points: Sequence[Tuple[float, float]]
    name: Optional[str] = None
    style: Mapping[str, Any] = {}
    band: Sequence[Tuple[float, float, float]] = ()


class Panel(NamedTuple):
    """Curves over one pair of axes.

    Attributes:
        lines: in the order of their colours and of the legend.
        axes: options of ``Axes.set``: titles, limits and scales.
        ticks: names of the places 0, 1, ... of the horizontal axis; None for numbers.
        base: of a logarithmic horizontal axis whose ticks are powers of another number than ten.
        legend: options of ``Axes.legend``; None for no legend.
    """

    lines: Sequence[Line]
    axes: Mapping[str, Any]
    ticks: Optional[Sequence[str]] = None
    base: Optional[int] = None
    legend: Optional[Mapping[str, Any]] = None


def draw_panels(
    panels: Sequence[Panel],
    output: Path,
    size: Tuple[float, float],
    columns: Optional[int] = None,
    widths: Optional[Sequence[float]] = None,
    source: Optional[str] = None,
) -> None:
    """Draw panels of curves to an image file.

    Args:
        panels: row by row.
        output: image file.
        size: of the figure, in inches.
        columns: panels of a row; None for all.
        widths: of the columns beside each other; None for equal ones.
        source: as in :func:`save`.

    Raises:
        SystemExit: without matplotlib.
    """
    columns = columns or len(panels)
    grid = {"figsize": size, "squeeze": False, "gridspec_kw": {"width_ratios": widths}}
    figure, places = load_pyplot().subplots(-(-len(panels) // columns), columns, **grid)
    for place, panel in zip(places.flat, panels):
        for line in panel.lines:
            (drawn,) = place.plot(
                [x for x, _ in line.points], [y for _, y in line.points], label=line.name, **line.style
            )
            if line.band:
                place.fill_between(*zip(*line.band), color=drawn.get_color(), alpha=0.25, linewidth=0)
        place.set(**panel.axes)
        if panel.ticks is not None:
            place.set_xticks(range(len(panel.ticks)), panel.ticks)
        if panel.base is not None:
            place.set_xscale("log", base=panel.base)
        place.grid(True, alpha=0.3)
        if panel.legend is not None:
            place.legend(**panel.legend)
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    save(figure, output, source)


def load_pyplot() -> Any:
    """matplotlib.pyplot, drawing to files only; SystemExit with the remedy without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("a plot needs matplotlib: pip install 'matplotlib>=3.6'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, output: Path, source: Optional[str] = None) -> None:
    """Save a figure to an image file, whose folder is created if needed, and close it.

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
    """Keep some colours of a PNG, and write the digest of its source into it."""
    from PIL import Image, PngImagePlugin  # a requirement of matplotlib, too

    notes = PngImagePlugin.PngInfo()
    notes.add_text("source", source)
    with Image.open(image) as picture:
        small = picture.convert("RGB").quantize(COLOURS)
    small.save(image, optimize=True, pnginfo=notes)
