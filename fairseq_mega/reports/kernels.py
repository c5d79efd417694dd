"""Plot measurements of the operators: time per token over the sequence length, one panel per operator.

python -m fairseq_mega.reports.kernels --json RESULT.json --output PLOT.png
"""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from fairseq_mega.reports.plotting import load_pyplot, save
from fairseq_mega.reports.results import read_result


def plot_rows(rows: List[Dict[str, Any]], output: Path) -> None:
    """Draw the measured rows ("title", "path", "shape", "seconds") to an image file; both axes are logarithmic.

    Raises:
        SystemExit: without matplotlib.
        ValueError: where no row holds a measurement.
    """
    pyplot = load_pyplot()
    measured = [row for row in rows if "seconds" in row]
    if not measured:
        raise ValueError("there is no measurement to plot")
    titles = list(dict.fromkeys(row["title"] for row in measured))
    columns = min(len(titles), 3)
    lines = -(-len(titles) // columns)
    figure, panels = pyplot.subplots(lines, columns, figsize=(5 * columns, 4 * lines), squeeze=False)
    for panel, title in zip(panels.flat, titles):
        here = [row for row in measured if row["title"] == title]
        for path in dict.fromkeys(row["path"] for row in here):
            points = sorted(
                (row["shape"]["length"], 1e9 * row["seconds"] / (row["shape"]["batch"] * row["shape"]["length"]))
                for row in here
                if row["path"] == path
            )
            panel.plot([x for x, _ in points], [y for _, y in points], marker="o", label=path)
        panel.set(title=title, xlabel="L", ylabel="ns per token, forward + backward", yscale="log")
        panel.set_xscale("log", base=2)
        panel.grid(True, which="both", alpha=0.3)
        panel.legend()
    for panel in panels.flat[len(titles) :]:
        panel.set_visible(False)
    save(figure, output)


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, required=True, help="result file of that command")
    parser.add_argument("--output", type=Path, required=True, help="image to write, for instance kernels.png")
    parsed = parser.parse_args(arguments)
    plot_rows(read_result(parsed.json)["rows"], parsed.output)


if __name__ == "__main__":
    main()
