"""Checkpoints as files: written whole, and read for their origin."""

from pathlib import Path

import pytest
import torch

from fairseq_mega.models.checkpoint_files import save


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made" / "model.pt"
    save({"model": {"weight": torch.ones(3)}}, path)
    before = path.read_bytes()
    with pytest.raises(AttributeError):  # a function within a function cannot be pickled
        save({"model": {"weight": torch.zeros(3), "broken": lambda: None}}, path)
    assert path.read_bytes() == before and [file.name for file in path.parent.iterdir()] == ["model.pt"]
    assert path.stat().st_mode & 0o777 == 0o644
