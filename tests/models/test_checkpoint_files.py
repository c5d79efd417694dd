"""Checkpoints as files: written whole, and read for their origin."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from fairseq_mega.models.checkpoint_files import Origin, origin_of, save


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made" / "model.pt"
    save({"model": {"weight": torch.ones(3)}}, path)
    before = path.read_bytes()
    with pytest.raises(AttributeError):  # a function within a function cannot be pickled
        save({"model": {"weight": torch.zeros(3), "broken": lambda: None}}, path)
    assert path.read_bytes() == before and [file.name for file in path.parent.iterdir()] == ["model.pt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_origins_of_both_forms_of_options(tmp_path: Path) -> None:
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    torch.save({"args": Namespace(arch="mega", task="translation"), "model": {}}, old)
    cfg = {"model": {"_name": "mega_lm"}, "task": {"_name": "mega_language_modeling"}}
    torch.save({"args": None, "cfg": cfg, "model": {}}, new)
    assert origin_of(str(old)) == Origin("mega", "translation")
    assert origin_of(f"{new}:{old}") == Origin("mega_lm", "mega_language_modeling")
