"""What torch.load may build from a checkpoint, and copies that are complete or absent."""

import argparse
import collections
import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import omegaconf
import pytest
import torch
from fairseq.file_io import PathManager


class TestSafeGlobals:
    def load(self, value: object) -> object:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=True)

    @pytest.mark.parametrize(
        "value",
        [
            argparse.Namespace(arch="mega", lr=[0.1]),
            omegaconf.OmegaConf.create({"model": {"embed_dim": 4, "dropout": 0.1}, "lr": [0.5, None]}),
            collections.defaultdict(dict),
            {"counts": np.arange(4), "total": np.int64(7), "loss": np.float32(0.5), "flag": np.bool_(True)},
        ],
        ids=["namespace", "omegaconf", "defaultdict", "numpy"],
    )
    def test_contents_of_checkpoints_load(self, value: object) -> None:
        assert repr(self.load(value)) == repr(value)

    def test_other_classes_are_still_refused(self) -> None:
        with pytest.raises(Exception, match="weights_only"):
            self.load({"path": subprocess.CompletedProcess([], 0)})


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
