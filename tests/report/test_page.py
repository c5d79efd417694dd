"""The page with everything: whole and without other files."""

import html
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

import pytest

from fairseq_mega.lab.report import command, documents
from fairseq_mega.lab.report import page as writing
from fairseq_mega.lab.report.recipe_states import find_results
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.lab.runs.text_tables import Table
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
    for number, (task, model, chunk, function) in enumerate(
        [("text", "mega/table2/text/mega", -1, "softmax"), ("pathfinder", "mega/figure5/pathfinder/relu2", -1, "relu2")]
    ):
        settings = {
            "task": task,
            "model": "mega",
            "attention": function,
            "ema_dim": 16,
            "chunk": chunk,
            "recipe": model,
        }
        settings.update(updates=5, published_updates=9, early_epoch=1, parameters=7, trained_on="cpu", data="generated")
        scores = {"test_accuracy": 71.25, "best_valid_accuracy": 77.0, "early_valid_accuracy": 60.0}
        curve = [{"epoch": 1, "updates": 5 * step, "accuracy": 60.0 + step, "loss": 1.0} for step in (1, 2)]
        result = make_result("lra", "run", scores, 10, "command", 1, settings, curve=curve)
        write_result(folder / "results" / f"table2.{number}.json", result)
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


def test_each_paper_has_its_own_results() -> None:
    def result(recipe: str, score: float) -> Dict[str, Any]:
        settings: Dict[str, Any] = {"recipe": recipe, "model": recipe.partition("/")[0], "attention": "softmax"}
        settings.update(task="text", ema_dim=16, chunk=-1, updates=9, published_updates=9, early_epoch=1, parameters=7)
        scores = {"test_accuracy": score, "best_valid_accuracy": score, "early_valid_accuracy": score}
        return make_result("lra", "run", scores, 10, "command", 1, settings)

    both = [result("mega/table2/text/mega", 71.25), result("megalodon/table6/text/megalodon", 72.5)]
    with_one = {part.partition("</h3>")[0] for part in writing.paper_tables(both) if "72.5" in part}
    assert with_one == {"<h3>MEGALODON, Table 6: the Long Range Arena"}


def test_tables_of_images_have_their_own_results() -> None:
    def result(recipe: str, score: float) -> Dict[str, Any]:
        settings: Dict[str, Any] = {"recipe": recipe, "model": recipe.rpartition("/")[2], "checkpoint": "last"}
        settings.update(updates=9, published_updates=9, train_examples=9, parameters=7)
        return make_result("imagenet", "run", {"top1_accuracy": score}, 10, "command", 1, settings)

    names = ("mega/table6/imagenet/mega", "megalodon/table4/imagenet/megalodon")
    tables = writing.paper_tables([result(name, score) for name, score in zip(names, (71.25, 72.5))])
    found = [[part.partition("</h3>")[0] for part in tables if score in part] for score in ("71.25*", "72.50*")]
    assert found == [["<h3>MEGA, Table 6: ImageNet"], ["<h3>MEGALODON, Table 4: ImageNet"]]


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


def test_folders_that_are_missing(tmp_path: Path, capsys: Any) -> None:
    words = ["--html", str(tmp_path / "page.html"), "--root", str(REPOSITORY), "--runs", str(tmp_path / "no")]
    assert command.main(words) == 1
    assert "no does not exist" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_logs_without_a_training_are_named(tmp_path: Path) -> None:
    for name, text in (("run", log_line("train_inner", num_updates=2, loss=3.5)), ("failed & gone", "nothing\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(text)
    shown = "".join(writing.training_curves([tmp_path], tmp_path))
    failed = html.escape(str(tmp_path / "failed & gone" / "train.log"))
    assert "<img" in shown and f"Not shown: {failed} contains no training" in shown
    (whole,) = writing.training_curves([tmp_path / "failed & gone"], tmp_path)
    assert "contains no training" in whole and "<img" not in whole
