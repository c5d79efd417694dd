"""The page with everything: whole and without other files."""

import html
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Tuple
from unittest import mock

import pytest

from fairseq_mega.lab.report import command, documents
from fairseq_mega.lab.report import page as writing
from fairseq_mega.lab.report.recipe_states import find_results
from fairseq_mega.lab.runs.text_tables import Table
from tests.report.synthetic import classifier
from tests.support.helpers import REPOSITORY

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """The elements of a page; every one is closed where it has to be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.found: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def all(self, tag: str) -> List[Dict[str, Optional[str]]]:
        return [attributes for name, attributes in self.found if name == tag]


def log_line(tag: str, **values: object) -> str:
    return f"2026-01-02 03:04:05 | INFO | {tag} | {json.dumps({key: str(value) for key, value in values.items()})}\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: two accuracies of Figure 4 and Table 2, a curve of Figure 5, and a log."""
    folder = tmp_path_factory.mktemp("runs")
    classifier(folder / "results", "mega/table2/text/mega", 71.25, updates=5, data="generated")
    classifier(folder / "results", "mega/figure5/pathfinder/relu2", 71.25, updates=5, attention="relu2")
    log = log_line("train_inner", num_updates=2, loss=3.5) + log_line("valid", valid_num_updates=2, valid_loss=3.0)
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "one" / "train.log").write_text(log)
    return folder


@pytest.fixture(scope="module")
def filled() -> List[documents.Document]:
    """The documents, once the page is made of them: to fill them again would take half a minute."""
    return []


@pytest.fixture(scope="module")
def page(runs: Path, filled: List[documents.Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib", reason="the page's figures need matplotlib: pip install 'matplotlib>=3.6'")

    def fill(file: Path) -> documents.Document:
        filled.append(documents.fill(file))
        return filled[-1]

    output = tmp_path_factory.mktemp("page") / "page.html"
    with mock.patch.object(writing, "fill", fill):
        assert command.main(["--html", str(output), "--root", str(REPOSITORY), "--runs", str(runs)]) == 0
    return output


def test_the_page_is_whole_and_needs_no_other_file(page: Path, filled: List[documents.Document], runs: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = Page(text)
    assert text.startswith("<!DOCTYPE html>") and found.all("html")[0] == {"lang": "en"}
    assert not found.all("script") and not found.all("link") and "url(" not in text and "@import" not in text
    assert all((image["src"] or "").startswith("data:image/") and image["alt"] for image in found.all("img"))
    assert [link["href"] for link in found.all("a")] == [f"#{section['id']}" for section in found.all("section")]
    assert [section["id"] for section in found.all("section")] == list(writing.SECTIONS)
    places = [place for document in filled for place in document.places]
    assert places and all(place.call == "benchmarks ." or writing.table(place.table) in text for place in places)
    assert text.count("71.25*") >= 4  # the benchmark, its recipe, Table 2, and the other recipe
    assert "Not run yet: no result of Figure 6." in text and "Not run yet: no result of MEGA" not in text
    kinds = [(image["src"] or "").partition(";")[0] for image in found.all("img")]
    assert kinds.count("data:image/svg+xml") == 3  # Figures 4 and 5, the training curves
    assert len(find_results([runs])) == 2


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


def test_logs_without_a_training_are_named(tmp_path: Path) -> None:
    for name, text in (("run", log_line("train_inner", num_updates=2, loss=3.5)), ("failed & gone", "nothing\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(text)
    shown = "".join(writing.training_curves([tmp_path], tmp_path))
    failed = html.escape(str(tmp_path / "failed & gone" / "train.log"))
    assert "<img" in shown and f"Not shown: {failed} contains no training" in shown
    (whole,) = writing.training_curves([tmp_path / "failed & gone"], tmp_path)
    assert "contains no training" in whole and "<img" not in whole
