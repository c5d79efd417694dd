"""Folders of from_pretrained."""

from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.models.mega import MegaModel


@pytest.mark.parametrize(("model", "data"), [("save/model.pt", "data"), ("model.tar.gz", "data"), ("save", "dict.txt")])
def test_a_file_in_place_of_a_folder_is_kept(
    model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("save/model.pt", "model.tar.gz", "dict.txt", "data/dict.txt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotADirectoryError, match=model if Path(model).is_file() else data):
        MegaModel.from_pretrained(model, "model.pt", data)
    assert (tmp_path / "model.tar.gz").is_file()  # fairseq removes an archive


@pytest.mark.parametrize("kind", [str, Path])
def test_folders_are_texts_or_paths(kind: type, tiny_model: Any) -> None:
    MegaModel.from_pretrained(kind(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, kind(tiny_model.data))
