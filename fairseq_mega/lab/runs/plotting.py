"""Matplotlib without a screen, with one style for all pictures: panels of curves, and figures saved to files.

Curves differ in colour, dashes and markers, and so can be distinguished in grey and by colour-blind readers. One legend
stands below all panels, where it covers no curve; a name has one look in all of them.
"""

import math
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

COLOURS = ("#08306b", "#d55e00", "#56b4e9", "#00664b", "#cc79a7", "#7f7f7f")  # neighbours differ in grey, too
DASHES: Tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # a length without a common factor with the colours'
STYLE: Dict[Any, Any] = {  # matplotlib's rcParams
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#d5d9df",
    "grid.linewidth": 0.6,
    "savefig.dpi": 120,
}
SIZES = {1: (5.0, 3.3), 2: (4.4, 3.1), 3: (3.6, 2.7)}  # width and height of a panel in inches, by panels of a row
ROW, MARK, LETTER = 0.18, 0.75, 0.062  # inches of a legend: height of a row, width of a curve and, at most, of a letter
FEW = 20  # points with a marker each; of more points only some have a marker
MARKED = 8  # markers of a curve of many points
PIXEL_COLOURS = 256  # colours of a small picture: the most of a PNG with a palette


class Line(NamedTuple):
    """A curve: its points, its name in the legend, options of ``Axes.plot``, and x, lower and upper end of a band.

    Options that are not passed come from :func:`look`, by the place of the name in the legend.
    """

    points: Sequence[Tuple[float, float]]
    name: Optional[str] = None
    style: Mapping[str, Any] = {}
    band: Sequence[Tuple[float, float, float]] = ()


class Panel(NamedTuple):
    """Curves over one pair of axes."""

    lines: Sequence[Line]  # in the order of the legend
    axes: Mapping[str, Any]  # options of ``Axes.set``: labels, limits and scales
    ticks: Optional[Sequence[str]] = None  # names of the places 0, 1, ... of the horizontal axis; None for numbers.
    base: Optional[int] = None  # of a logarithmic horizontal axis whose ticks are powers of another number than ten


def look(number: int) -> Dict[str, Any]:
    """Return colour, dashes and marker of the curve with a number, as options of ``Axes.plot``."""
    kinds = {"color": COLOURS, "linestyle": DASHES, "marker": MARKERS}
    return {name: kind[number % len(kind)] for name, kind in kinds.items()}


def draw_panels(panels: Sequence[Panel], output: Path, columns: int = 3, source: Optional[str] = None) -> None:
    """Draw panels of curves to an image file.

    Args:
        panels: row by row.
        output: image file.
        columns: panels of a row at most.
        source: as in :func:`save`.

    Raises:
        SystemExit: without matplotlib.
    """
    columns = min(columns, len(panels))
    width, height = (size * number for size, number in zip(SIZES[columns], (columns, math.ceil(len(panels) / columns))))
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines if line.name))
    in_row = max(1, min(len(names), int(width / (MARK + LETTER * max(map(len, names), default=0)))))
    below = ROW * math.ceil(len(names) / in_row)
    grid = {"figsize": (width, height + below), "squeeze": False}
    figure, places = load_pyplot().subplots(math.ceil(len(panels) / columns), columns, **grid)
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    handles: Dict[str, Any] = {}
    for place, panel in zip(places.flat, panels):
        for number, line in enumerate(panel.lines):
            drawn = _draw_line(place, line, names.index(line.name) if line.name else number, number / len(panel.lines))
            handles.setdefault(line.name or "", drawn)
        _finish_axes(place, panel)
    figure.legend([handles[name] for name in names], names, loc="lower center", ncols=in_row)
    figure.tight_layout(rect=(0, below / (height + below), 1, 1))
    save(figure, output, source)


def _draw_line(place: Any, line: Line, number: int, shift: float) -> Any:
    """Draw a curve with the look of a number; ``shift`` is the share of an interval by which its markers are moved."""
    x, y = [x for x, _ in line.points], [y for _, y in line.points]
    step = 1 if len(x) <= FEW else len(x) // MARKED
    (drawn,) = place.plot(x, y, **{"markevery": (int(step * shift), step), **look(number), **line.style})
    if line.band:
        place.fill_between(*zip(*line.band), color=drawn.get_color(), alpha=0.25, linewidth=0)
    return drawn


def _finish_axes(place: Any, panel: Panel) -> None:
    """Set labels, scales and plain numbers at the ticks; a logarithmic axis of less than three decades has more."""
    place.set(**panel.axes)
    if panel.base is not None:
        place.set_xscale("log", base=panel.base)
    for axis in (place.xaxis, place.yaxis):
        low, high = axis.get_view_interval()
        if high >= 1000 or axis.get_scale() != "linear":
            axis.set_major_formatter("{x:,.12g}")
        if axis.get_scale() == "log":
            if high < 1000 * low and axis.get_transform().base == 10:
                from matplotlib.ticker import LogLocator

                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter("")
    if panel.ticks is not None:
        place.set_xticks(range(len(panel.ticks)), panel.ticks)
    place.grid(True)


def load_pyplot() -> Any:
    """Return matplotlib.pyplot in our style, drawing to files only; SystemExit with the remedy without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("a plot requires matplotlib: pip install 'matplotlib>=3.6'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(STYLE)
    return pyplot


def save(figure: Any, output: Path, source: Optional[str] = None) -> None:
    """Save a figure to an image file, whose folder is created if needed, and close it.

    Args:
        source: digest of the results of a PNG that is kept beside them; it is written into the file, whose colours are
            reduced to few.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output)
    load_pyplot().close(figure)
    if source is not None:
        from PIL import Image, PngImagePlugin  # a requirement of matplotlib, too

        notes = PngImagePlugin.PngInfo()
        notes.add_text("source", source)
        with Image.open(output) as picture:
            small = picture.convert("RGB").quantize(PIXEL_COLOURS)
        small.save(output, optimize=True, pnginfo=notes)
