"""The page with everything: whole and without other files."""

import re
from pathlib import Path
from unittest import mock

import pytest

from fairseq_mega.lab.report import command, documents
from fairseq_mega.lab.report import page as writing
from fairseq_mega.lab.report.recipe_states import find_results
from fairseq_mega.lab.runs.text_tables import Table
from tests.report.synthetic import classifier
from tests.support.helpers import REPOSITORY


def test_the_page_is_whole_and_needs_no_other_file(tmp_path: Path) -> None:
    """It shows the documents' tables, accuracies of Table 2 and Figure 4, a curve of Figure 5, and a log."""
    pytest.importorskip("matplotlib", reason="the page's figures need matplotlib: pip install 'matplotlib>=3.6'")
    runs, output, filled = tmp_path / "runs", tmp_path / "made" / "page.html", []
    classifier(runs / "results", "mega/table2/text/mega", 71.25, updates=5, data="generated")
    classifier(runs / "results", "mega/figure5/pathfinder/relu2", 71.25, updates=5, attention="relu2")
    (runs / "train.log").write_text('| train_inner | {"num_updates": "2", "loss": "3.5"}\n')

    def fill(file: Path) -> documents.Document:
        filled.append(documents.fill(file))  # to fill them again would take half a minute
        return filled[-1]

    with mock.patch.object(writing, "fill", fill):
        assert command.main(["--html", str(output), "--root", str(REPOSITORY), "--runs", str(runs)]) == 0
    text = output.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    assert not re.search("<script|<link|url\\(|@import", text)
    images = re.findall('<img alt="[^"]+" src="data:image/([a-z]+)', text)
    assert len(images) == text.count("<img") and images.count("svg") == 3  # Figures 4 and 5, the training curves
    assert re.findall('<section id="([a-z]+)"', text) == re.findall('<a href="#([a-z]+)"', text) == [*writing.SECTIONS]
    places = [place for document in filled for place in document.places]
    assert places and all(place.call == "benchmarks ." or writing.table(place.table) in text for place in places)
    assert text.count("71.25*") >= 4  # the benchmark, its recipe, Table 2, and the other recipe
    assert "Not run yet: no result of Figure 6." in text and "Not run yet: no result of MEGA" not in text


def test_each_paper_has_its_own_results(tmp_path: Path) -> None:
    classifier(tmp_path, "mega/table2/text/mega", 71.25)
    classifier(tmp_path, "megalodon/table6/text/megalodon", 72.5, model="megalodon")
    parts = writing.paper_tables(find_results([tmp_path]))
    assert [part.partition("</h3>")[0] for part in parts if "72.5" in part] == [
        "<h3>MEGALODON, Table 6: the Long Range Arena"
    ]


def test_tables_have_titles() -> None:
    text = "# A page\n\nWords.\n<!-- table: a -->\n<!-- /table -->\n**The `speed` of it**: words, **bold**.\n"
    text += (
        "<!-- table: b c.json -->\n| **no title** |\n<!-- /table -->\n## Sizes:\n<!-- table: c -->\n<!-- /table -->\n"
    )
    assert writing.titles(text) == ["A page", "The speed of it", "Sizes"]


def test_cells_are_text() -> None:
    table = Table(["<a>", "`b`"], [["  **x** & [name](file.json)", "1"]])
    assert '<th scope="row" class="below">  <b>x</b> &amp; name</th><td>1</td>' in writing.table(table)
    assert '<th scope="col" class="text">&lt;a&gt;</th><th scope="col"><code>b</code></th>' in writing.table(table)
    recipes = writing.table(Table(["name", "recipes"], [["a", "`mega/a`: 2"], ["b", "`mega/b`"]]))
    assert '<td class="text code"><code>mega/a</code>: 2</td>' in recipes  # omitted on a narrow screen
