"""Walks over folders: every example once, and what is omitted is counted."""

from pathlib import Path
from typing import Dict, List

import pytest

from fairseq_mega.data.class_folders import files_below, listing

LINKS: Dict[str, Dict[str, str]] = {  # folders by the links to them
    "within a linked folder": {"data/more": "elsewhere", "elsewhere/deep": "third"},
    "a loop": {"data/more": "elsewhere", "elsewhere/round": "data", "elsewhere/self": "elsewhere"},
    "of a folder beside it": {"data/a": "data/sub"},
    "in and to a hidden folder": {"data/.cache/sub": "data/sub", "data/x": "data/.store", "data/more": "elsewhere"},
}
FOUND: Dict[str, List[str]] = {
    "within a linked folder": ["more/2.txt", "more/deep/3.txt", "sub/1.txt"],
    "a loop": ["more/2.txt", "sub/1.txt"],
    "of a folder beside it": ["a/1.txt"],
    "in and to a hidden folder": ["more/2.txt", "sub/1.txt", "x/6.txt"],
}


@pytest.mark.parametrize("name", LINKS)
def test_files_below_linked_folders_are_found_once(name: str, tmp_path: Path) -> None:
    """A file with a path without hidden folders is an example."""
    files = ["data/.cache/4.txt", "data/.5.txt", "data/0.txt", "data/sub/1.txt", "elsewhere/2.txt", "third/3.txt"]
    for file in (*files, *["data/.store/6.txt"] * name.startswith("in and to")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for link, folder in LINKS[name].items():
        (tmp_path / link).symlink_to(tmp_path / folder)
    (tmp_path / "data" / ".lock").symlink_to("nowhere")
    found, hidden = (
        [file.relative_to(tmp_path / "data").as_posix() for file in files] for files in files_below(tmp_path / "data")
    )
    assert found == ["0.txt", *FOUND[name]]
    assert hidden == [".5.txt", ".cache/4.txt", ".lock"]
    listed = listing(tmp_path / "data", (".txt",))
    assert sorted(listed.files) == found and listed.omitted == {"hidden .txt": 2}


def test_what_is_omitted_is_counted_by_ending_and_place(tmp_path: Path) -> None:
    """Files with the wrong ending, in the wrong place, and hidden ones that would be examples; sorted by folder."""
    names = ("a/1.WAV", "a b/2.wav", "a/x/3.wav", "4.wav", "a/5.txt", "a/6", "a/.7.wav", "a/.8.txt", ".c/x/9.wav")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = listing(tmp_path, (".wav",), depth=1)
    assert found.files == ["a/1.WAV", "a b/2.wav"]
    others = {".wav in deeper folders": 1, ".wav beside the folders": 1, ".txt": 1, "without an ending": 1}
    assert found.omitted == {**others, "hidden .wav": 2}
    assert len(listing(tmp_path, (".wav",)).files) == 4
