"""The page with everything: whole and without other files."""

import re
from pathlib import Path
from unittest import mock

from fairseq_mega.lab.report import command, documents
from fairseq_mega.lab.report import page as writing
from fairseq_mega.lab.report.recipe_states import find_results
from fairseq_mega.lab.runs.text_tables import Table
from tests.report.synthetic import classifier
from tests.support.helpers import REPOSITORY


def test_the_page_is_whole_and_needs_no_other_file(tmp_path: Path) -> None:
    """It shows the documents' tables and pictures, and the results of some runs."""
    runs, output, filled = tmp_path / "runs", tmp_path / "made" / "page.html", []
    classifier(runs / "results", "mega/table2/text/mega", 71.25, updates=5, data="generated")

    def fill(file: Path) -> documents.Document:
        filled.append(documents.fill(file))  # to fill them again would take half a minute
        return filled[-1]

    with mock.patch.object(writing, "fill", fill):
        assert command.main(["--html", str(output), "--root", str(REPOSITORY), "--runs", str(runs)]) == 0
    text = output.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    assert not re.search("<script|<link|url\\(|@import", text)
    images = re.findall('<img alt="[^"]+" src="data:image/([a-z]+)', text)
    assert len(images) == text.count("<img") == sum(len(document.pictures) for document in filled)
    assert re.findall('<section id="([a-z]+)"', text) == re.findall('<a href="#([a-z]+)"', text) == [*writing.SECTIONS]
    places = [place for document in filled for place in document.places]
    assert places and all(place.call == "benchmarks ." or writing.table(place.table) in text for place in places)
    assert text.count("71.25*") == 3  # the benchmark, and Tables 2 and 3, which share the training


def test_each_paper_has_its_own_results(tmp_path: Path) -> None:
    classifier(tmp_path, "mega/table2/text/mega", 71.25)
    classifier(tmp_path, "megalodon/table6/text/megalodon", 72.5, model="megalodon")
    parts = writing.paper_tables(find_results([tmp_path]))
    assert [part.partition("</h3>")[0] for part in parts if "72.5" in part] == [
        "<h3>MEGALODON, Table 6: the Long Range Arena"
    ]


def test_cells_are_text() -> None:
    table = Table(["<a>", "`b`"], [["  **x** & [name](file.json)", "1"]])
    assert '<th scope="row" class="below">  <b>x</b> &amp; name</th><td>1</td>' in writing.table(table)
    assert '<th scope="col" class="text">&lt;a&gt;</th><th scope="col"><code>b</code></th>' in writing.table(table)
    recipes = writing.table(Table(["name", "recipes"], [["a", "`mega/a`: 2"], ["b", "`mega/b`"]]))
    assert '<td class="text code"><code>mega/a</code>: 2</td>' in recipes  # omitted on a narrow screen
