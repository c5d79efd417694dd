"""Names of classes: which are nearly the same, and which folders nobody made for a class."""

from pathlib import Path

import pytest

from fairseq_mega.data.class_folders import alike, class_names


@pytest.mark.parametrize(
    "names",
    [
        ["Cat", "cat"],
        ["e\u0301t\u00e9", "\u00e9te\u0301"],
        ["go\u200bod", "good"],
        ["1", "1.0"],
        ["01", "1"],
        ["+1", "1"],
        ["2,0", "2"],
        ["-3", "-3.00"],
        ["\uff11", "1."],
        ["\u2764", "\u2764\ufe0f"],
        ["I\u011eDIR", "\u0131\u011fd\u0131r"],
        ["\u0130zmir", "izmir"],
        ["Stra\u00dfe", "STRASSE"],
    ],
)
def test_alike(names: list) -> None:
    assert alike([*names, "other"]) == [names]


@pytest.mark.parametrize(
    "names",
    [["1", "10"], ["1", "-1"], ["1.5", "1"], ["1.10", "1.1"], ["v1", "v1.0"], ["\u2764", "\U0001f49b"], ["0", "o"]],
)
def test_different(names: list) -> None:
    assert alike(names) == []


@pytest.mark.parametrize("name", ["lost+found", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "__MACOSX"])
def test_folders_of_systems_are_no_classes(name: str, tmp_path: Path) -> None:
    for folder in (name, "cat", "dog"):
        (tmp_path / folder).mkdir()
    assert class_names(tmp_path) == ["cat", "dog"]
