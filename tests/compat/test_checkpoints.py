"""Copies of checkpoints that are complete or absent."""

import shutil
from pathlib import Path

import pytest
from fairseq.file_io import PathManager


class TestAtomicCopy:
    def test_copies(self, tmp_path: Path) -> None:
        (tmp_path / "a.pt").write_bytes(b"new")
        (tmp_path / "last.pt").write_bytes(b"old")
        assert PathManager.copy(str(tmp_path / "a.pt"), str(tmp_path / "last.pt"), overwrite=True)
        assert (tmp_path / "last.pt").read_bytes() == b"new"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "last.pt"]

    def test_death_during_the_copy_keeps_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.pt").write_bytes(b"new contents")
        (tmp_path / "last.pt").write_bytes(b"old contents")

        def dies(source: str, destination: str) -> None:
            Path(destination).write_bytes(b"new")
            raise KeyboardInterrupt

        monkeypatch.setattr(shutil, "copyfile", dies)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(tmp_path / "a.pt"), str(tmp_path / "last.pt"), overwrite=True)
        assert (tmp_path / "last.pt").read_bytes() == b"old contents"
