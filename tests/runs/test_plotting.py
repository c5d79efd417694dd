"""The style of all pictures: curves that differ in grey, and legends that cover none."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.runs import plotting
from fairseq_mega.lab.runs.plotting import COLOURS, Line, Panel, draw_panels, look


def grey(colour: str) -> float:
    """Return the brightness of a colour in black and white, of 255."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_curves_differ_in_grey() -> None:
    first = sorted(grey(colour) for colour in COLOURS[:3])
    assert min(after - before for before, after in zip(first, first[1:])) > 30 and first[-1] < 180
    assert all(abs(grey(one) - grey(other)) > 20 for one, other in zip(COLOURS, COLOURS[1:]))
    looks = [tuple(map(str, look(number).values())) for number in range(42)]
    assert len(set(looks)) == 42 and len({marks for *_, marks in looks[:7]}) == 7


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """The figures that are drawn, open."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'matplotlib>=3.6'")
    pyplot, found = plotting.load_pyplot(), []  # type: Any, List[Any]
    monkeypatch.setattr(pyplot, "close", found.append)
    return found


@pytest.mark.parametrize("last", ["c", "another curve, of a long name, longer than its panel is wide, in all"])
def test_a_legend_covers_no_curve_and_is_whole(last: str, tmp_path: Path, figures: List[Any]) -> None:
    """It has each name once, and a name has one look in all panels."""
    curve = [(0.0, 1.0), (1.0, 3.0)]
    names = [["a", "b", last], ["b"], ["a"], ["b", "b"]]
    panels = [Panel([Line(curve, name) for name in own], {"xlabel": "x", "ylabel": "y"}) for own in names]
    draw_panels(panels, tmp_path / "x.png")
    (figure,) = figures
    places = [place for place in figure.axes if place.get_visible()]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", last] and len(places) == 4
    looks = {(line.get_color(), line.get_marker()) for place in (places[1], places[3]) for line in place.lines}
    assert looks == {(look(1)["color"], look(1)["marker"])}
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
    assert not any(box.overlaps(place.get_tightbbox()) for place in places)


def test_ticks_are_plain_numbers(tmp_path: Path, figures: List[Any]) -> None:
    line = Line([(256.0, 0.7), (2.0**20, 40.0)])
    draw_panels([Panel([line], {"yscale": "log"}, base=2), Panel([line], {})], tmp_path / "x.png", columns=1)
    (log, plain) = figures[0].axes
    horizontal, vertical = ([text.get_text() for text in axis.get_ticklabels()] for axis in (log.xaxis, log.yaxis))
    assert {"256", "1,048,576"} <= set(horizontal) and {"1", "2", "5", "10"} <= set(vertical)
    assert "1,000,000" in [text.get_text() for text in plain.xaxis.get_ticklabels()]
