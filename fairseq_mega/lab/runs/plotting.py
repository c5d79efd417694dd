"""Matplotlib without a screen, with one style for all pictures: panels of curves, and figures saved to files.

Curves differ in colour, dashes and markers, and so can be distinguished in grey and by colour-blind readers. A legend
stands below its axes, where it covers no curve.
"""

import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

INK, FAINT = "#22272e", "#d5d9df"
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
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "savefig.dpi": 120,
    "savefig.facecolor": "white",
}
SIZES = {1: (5.0, 3.3), 2: (4.4, 3.1), 3: (3.6, 2.7)}  # width and height of a panel in inches, by panels of a row
ROW = 0.18  # inches of a row of a legend
BELOW = 33  # points from the axes to a legend below them, past ticks and label
PAD = 0.06  # inches around a legend
FEW = 20  # points with a marker each; of more points only some have a marker
MARKED = 8  # markers of a curve of many points
PIXEL_COLOURS = 256  # colours of a small picture: the most of a PNG with a palette


class Line(NamedTuple):
    """A curve: its points, its name in the legend, options of ``Axes.plot``, and x, lower and upper end of a band.

    Options that are not passed come from :func:`look`, by the curve's place in the panel.
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


def height_limits(heights: Sequence[float]) -> Dict[str, Tuple[float, float]]:
    """Return limits of the vertical axis a twentieth beyond all heights, as an option of ``Axes.set``."""
    margin = 0.05 * (max(heights) - min(heights))
    return {"ylim": (min(heights) - margin, max(heights) + margin)}


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
    width, height = SIZES[columns]
    names = [list(dict.fromkeys(line.name for line in panel.lines if line.name)) for panel in panels]
    most = max(names, key=len)
    shared = len(panels) > 1 and all(set(own) <= set(most) for own in names)
    width = max(width, *(0.0 if shared else _name_width(own) for own in names))
    in_panels = [0.0 if shared else _legend_height(own, width) for own in names]
    of_rows = [max(in_panels[first : first + columns]) for first in range(0, len(panels), columns)]
    below = _legend_height(most, width * columns) if shared else 0.0
    size = (width * columns, height * len(of_rows) + sum(of_rows) + below)
    figure, places = load_pyplot().subplots(len(of_rows), columns, figsize=size, squeeze=False)
    for place, panel, own in zip(places.flat, panels, names):
        _draw_panel(place, panel)
        if own and not shared:
            _add_legend(place, own, width)
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    if below:
        handles, labels = _handles(places.flat[names.index(most)])
        figure.legend(handles, labels, loc="lower center", ncols=_columns(most, width * columns))
    figure.tight_layout(rect=(0, below / size[1], 1, 1))
    save(figure, output, source)


def _draw_panel(place: Any, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        x, y = [x for x, _ in line.points], [y for _, y in line.points]
        step = 1 if len(x) <= FEW else len(x) // MARKED
        marked = (number * step // len(panel.lines), step)
        (drawn,) = place.plot(x, y, label=line.name, **{"markevery": marked, **look(number), **line.style})
        if line.band:
            place.fill_between(*zip(*line.band), color=drawn.get_color(), alpha=0.25, linewidth=0)
    place.set(**panel.axes)
    if panel.base is not None:
        place.set_xscale("log", base=panel.base)
    for axis in (place.xaxis, place.yaxis):
        _number_ticks(axis)
    if panel.ticks is not None:
        place.set_xticks(range(len(panel.ticks)), panel.ticks)
    place.grid(True)


def _number_ticks(axis: Any) -> None:
    """Write plain numbers at the ticks, and at a logarithmic axis of less than three decades more of them."""
    low, high = axis.get_view_interval()
    if high >= 1000 or axis.get_scale() != "linear":
        axis.set_major_formatter("{x:,.12g}")
    if axis.get_scale() == "log":
        if high < 1000 * low and axis.get_transform().base == 10:
            from matplotlib.ticker import LogLocator

            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter("")


def _handles(place: Any) -> Tuple[List[Any], List[str]]:
    """Return a curve for each name of a panel, and the names."""
    found: Dict[str, Any] = {}
    for handle, name in zip(*place.get_legend_handles_labels()):
        found.setdefault(name, handle)
    return list(found.values()), list(found)


def _add_legend(place: Any, names: Sequence[str], width: float) -> None:
    from matplotlib.transforms import ScaledTranslation

    lower = place.transAxes + ScaledTranslation(0, -BELOW / 72, place.figure.dpi_scale_trans)
    where = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": lower, "borderaxespad": 0}
    place.legend(*_handles(place), ncols=_columns(names, width), **where)


def _columns(names: Sequence[str], width: float) -> int:
    """Return the columns of a legend in a width in inches."""
    return max(1, min(len(names), int(width / _name_width(names))))


def _name_width(names: Sequence[str]) -> float:
    """Return the inches of a column of a legend, whose letters are this wide at most in the mean."""
    return 0.75 + 0.062 * max(map(len, names), default=0)


def _legend_height(names: Sequence[str], width: float) -> float:
    return ROW * math.ceil(len(names) / _columns(names, width)) + PAD if names else 0.0


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
        source: digest of the results of a PNG that is kept beside them; it is written into the file, which is made
            small.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output)
    load_pyplot().close(figure)
    if source is not None:
        make_small(output, source)


def make_small(image: Path, source: str) -> None:
    """Reduce a PNG to few colours, and write the digest of its source into it."""
    from PIL import Image, PngImagePlugin  # a requirement of matplotlib, too

    notes = PngImagePlugin.PngInfo()
    notes.add_text("source", source)
    with Image.open(image) as picture:
        small = picture.convert("RGB").quantize(PIXEL_COLOURS)
    small.save(image, optimize=True, pnginfo=notes)
