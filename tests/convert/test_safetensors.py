"""Checkpoints as safetensors, with their configuration beside them; test_converted_scores.py scores them."""

import importlib.util
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from fairseq_mega.cli import average_checkpoints
from fairseq_mega.compat.files import safetensors_files
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.models.checkpoint_files import Origin, origin_of, save
from tests.support import tiny_lm, tiny_mega
from tests.support.plain.comparing import assert_same

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="needs the package safetensors: pip install safetensors"
)


def test_both_ways(tmp_path: Path) -> None:
    model = tiny_lm.build(**tiny_lm.ADAPTIVE).state_dict()
    model["half.of.a.table"] = torch.arange(10.0).reshape(5, 2).T[:, 1:4]
    options = Namespace(arch="mega_lm", task="mega_language_modeling", cutoff=[1, 2], dropout=0.1, path=None)
    path = tmp_path / "made" / "model.safetensors"
    save({"model": model, "args": options, "last_optimizer_state": {"lr": torch.ones(1)}}, path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.json", "model.safetensors"]
    assert path.stat().st_mode & 0o777 == 0o644
    read = load_checkpoint(path)
    assert_same(read["model"], model)
    assert read["args"] == options and "last_optimizer_state" not in read
    assert origin_of(str(path)) == Origin("mega_lm", "mega_language_modeling")
    mean = path.with_name("mean.safetensors")
    assert average_checkpoints.main(["--inputs", str(path), "--output", str(mean)]) == 0
    assert_same(load_checkpoint(mean)["model"], model)


def test_shared_tables_are_written_once(tmp_path: Path) -> None:
    model = tiny_mega.build(share_all_embeddings=True).state_dict()
    save({"model": model, "args": None}, tmp_path / "model.safetensors")
    read = load_checkpoint(tmp_path / "model.safetensors")["model"]
    assert_same(read, model)
    table = read["encoder.embedding.tokens.weight"]
    assert table.data_ptr() == read["decoder.embedding.tokens.weight"].data_ptr()


def test_files_of_two_checkpoints(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in ("old", "new", "same")]
    for path, dropout in zip(paths, (0.1, 0.2, 0.1)):
        save({"model": {"weight": torch.full((2,), dropout)}, "args": Namespace(arch="mega", dropout=dropout)}, path)
    shutil.copy(paths[2], paths[0])
    assert load_checkpoint(paths[0])["args"].dropout == 0.1  # of one training
    shutil.copy(paths[1], paths[0])
    with pytest.raises(
        ValueError, match=r"old\.safetensors and .*old\.json belong to different checkpoints: copy both"
    ):
        load_checkpoint(paths[0])
    shutil.copy(paths[1].with_suffix(".json"), paths[0].with_suffix(".json"))
    assert load_checkpoint(paths[0])["args"].dropout == 0.2
    safetensors_files.write_tensors({"weight": torch.ones(2)}, paths[0], {"format": "pt"})  # of an earlier version
    assert load_checkpoint(paths[0])["model"]["weight"].sum() == 2
