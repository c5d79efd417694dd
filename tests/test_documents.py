"""Files for readers that tools read too: the citation, the changelog, links between the documents."""

import re

import pytest
import yaml

import fairseq_mega
from tests.support.documented_commands import DOCUMENTS
from tests.support.helpers import REPOSITORY

LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_the_citation() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(citation)
    assert citation["version"] == fairseq_mega.__version__ and citation["license"] == "MIT"
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year", "url"} <= set(paper)
        assert all({"family-names", "given-names"} == set(author) for author in paper["authors"])
    assert [paper["year"] for paper in citation["references"]] == [2023, 2024]


def test_the_changelog_begins_with_this_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == fairseq_mega.__version__


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_to_files(document) -> None:
    missing = [link for link in LINK.findall(document.read_text(encoding="utf-8")) if not link.startswith("http")]
    assert not [link for link in missing if not (document.parent / link).exists()]


def test_the_differences_name_three_sides() -> None:
    """Each row says what the paper, the published code and this package do."""
    text = (REPOSITORY / "examples" / "paper_deviations.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) > 40 and all(line.count(" | ") in (2, 3) for line in rows)
