"""Files for readers that tools read too: the citation, the changelog, links between the documents."""

import re

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


def test_links_lead_to_files() -> None:
    for document in [*DOCUMENTS, REPOSITORY / "CHANGELOG.md"]:
        links = [link for link in LINK.findall(document.read_text(encoding="utf-8")) if not link.startswith("http")]
        assert not [link for link in links if not (document.parent / link).exists()], document
