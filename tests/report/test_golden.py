"""Every report prints the text in the folder golden from synthetic results, and each picture is drawn.

``python -m tests.report.test_golden`` writes the folder again: read its difference before you commit it.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import pytest

from fairseq_mega.lab.report.command import REPORTS, main
from tests.report.synthetic import write_all
from tests.support.helpers import REPOSITORY

GOLDEN = Path(__file__).with_name("golden")
MEASURED = REPOSITORY / "examples"
# The words of each report: a folder of synthetic results, or one of MEASURED, then the command. Of several forms of a
# table each has one more word in its name.
WORDS = {
    "table2": "classifiers table2 --format markdown",
    "table3": "classifiers table3 --format markdown",
    "table4": "classifiers table4 --format markdown",
    "table2 terminal": "classifiers table2",
    "table2 empty": "empty table2",
    "table5": "language_models table5",
    "table5 empty": "empty table5",
    "table6": "images table6",
    "table7": "translations table7",
    "megalodon-table4": "images megalodon-table4 --format markdown",
    "megalodon-table5": "language_models megalodon-table5",
    "megalodon-table6": "classifiers megalodon-table6 --format markdown",
    "megalodon-table7": "classifiers megalodon-table7",
    "megalodon-table8": "language_models megalodon-table8",
    "figure4": "classifiers figure4 --output PICTURE",
    "figure5": "classifiers figure5 --output PICTURE",
    "figure6": "contexts figure6 --output PICTURE",
    "megalodon-figure1": "figure1 megalodon-figure1 --output PICTURE --format markdown",
    "megalodon-figure4": "figure4 megalodon-figure4 --output PICTURE",
    "megalodon-figure5": "language_models megalodon-figure5 --output PICTURE",
    "quickstart": "quickstart quickstart",
    "text-budget": "long_range_arena/results/miniature_bf16 text-budget",
    "quickstart of one file": "quickstart/000.json quickstart",
    "miniature": "long_range_arena/results/miniature miniature --format terminal",
    "classifiers": "long_range_arena/results/text/lr0.002 classifiers",
    "language-models": "megalodon/results/wikitext2/lr0.002 language-models",
}
OTHERS = {"kernels", "pathfinder-page", "recall", "translations"}  # have tests of their own


def printed(name: str, results: Path, picture: Path) -> str:
    """Return what a report prints, with a word for each path that differs."""
    folder, report, *options = WORDS[name].split()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        source = MEASURED / folder if (MEASURED / folder).exists() else results / folder
        assert main([report, str(source), *(option.replace("PICTURE", str(picture)) for option in options)]) == 0
    return output.getvalue().replace(str(picture), "PICTURE")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("results"))


@pytest.mark.parametrize("name", WORDS)
def test_what_a_report_prints(name: str, results: Path, tmp_path: Path) -> None:
    if "PICTURE" in WORDS[name]:
        pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'matplotlib>=3.6'")
    picture = tmp_path / "made" / "picture.png"
    assert printed(name, results, picture) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert picture.exists() == ("PICTURE" in WORDS[name])
    assert not picture.exists() or picture.stat().st_size > 5000


def test_every_report_has_a_golden_text() -> None:
    assert {name.partition(" ")[0] for name in WORDS} == REPORTS.keys() - OTHERS
    assert {path.stem for path in GOLDEN.iterdir()} == WORDS.keys()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        synthetic = write_all(Path(made))
        for each in sys.argv[1:] or WORDS:
            (GOLDEN / f"{each}.txt").write_text(printed(each, synthetic, Path(made, "x.png")), encoding="utf-8")
