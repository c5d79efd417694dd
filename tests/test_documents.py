"""Files for readers that tools read too: the citation, the changelog, links between the documents."""

import re
from pathlib import Path
from typing import Set

import yaml

import fairseq_mega
from tests.support.documented_commands import DOCUMENTS
from tests.support.helpers import REPOSITORY

LINK = re.compile(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)")


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


def anchors(document: Path) -> Set[str]:
    """Return the anchors of a document's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings() -> None:
    for document in [*DOCUMENTS, REPOSITORY / "CHANGELOG.md"]:
        for file, anchor in LINK.findall(document.read_text(encoding="utf-8")):
            target = document.parent / file if file else document
            assert target.exists(), (document, file)
            assert not anchor or anchor in anchors(target), (document, file, anchor)
