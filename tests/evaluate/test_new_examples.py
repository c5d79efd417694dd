"""Names of files for a trained classifier that are none of a file: refused before anything is read."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.evaluate.new_examples import ClipReader, PictureReader, TextReader


@pytest.mark.parametrize("kind", [TextReader, ClipReader, PictureReader])
@pytest.mark.parametrize("name", [".", "folder", "folder.png", "link"])
def test_folders_are_no_examples(kind: Any, name: str, tmp_path: Path) -> None:
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to("folder")
    with pytest.raises(ValueError, match=f"{tmp_path / name} is a folder: give the files in it"):
        kind.__new__(kind).read_file(tmp_path / name)


@pytest.mark.parametrize("kind", [ClipReader, PictureReader])
@pytest.mark.parametrize("blank", ["\n", " \n", "\r\n", "\t"])
def test_blank_lines_name_no_file(kind: Any, blank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: List[Path] = []
    monkeypatch.setattr(kind, "read_file", lambda self, path: read.append(path))
    with pytest.raises(ValueError, match="line 2 of the input is blank: give the name of a file"):
        list(kind.__new__(kind).read_lines(iter(["a b.png \r\n", blank, "c\n"])))
    assert read == [Path("a b.png ")]


@pytest.mark.parametrize("kind", [ClipReader, PictureReader])
def test_recordings_are_no_names(kind: Any) -> None:
    with pytest.raises(ValueError, match="line 1 of the input is no name of a file, as in a recording"):
        list(kind.__new__(kind).read_lines(iter(["RIFF\0\0WAVE\n"])))


@pytest.mark.parametrize("kind", [TextReader, ClipReader, PictureReader])
def test_standard_input_has_no_name(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="- is no file: leave it out"):
        kind.__new__(kind).read_file(Path("-"))
