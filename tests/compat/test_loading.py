"""Files of torch.save: opened as data, whatever torch's default, and refused in words."""

import argparse
import importlib
import io
import os
import posix
import random
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_mega.compat.files.loading import RefusedContents, UnreadableFile, load, load_checkpoint
from tests.support import pickles
from tests.support.pickles import Call


def checkpoint(**entries: Any) -> Dict[str, Any]:
    return {"model": {"weight": torch.arange(12.0).view(3, 4)}, "args": argparse.Namespace(arch="mega"), **entries}


class TestContents:
    def test_of_a_checkpoint(self, tmp_path: Path) -> None:
        torch.save(checkpoint(best=np.float64(3.5)), tmp_path / "a.pt")
        for file in (tmp_path / "a.pt", str(tmp_path / "a.pt"), (tmp_path / "a.pt").open("rb")):
            loaded = load_checkpoint(file)
            assert loaded["args"].arch == "mega" and loaded["best"] == 3.5
            assert loaded["model"]["weight"].equal(torch.arange(12.0).view(3, 4))

    @pytest.mark.parametrize("mmap", [False, True])
    @pytest.mark.parametrize("zipped", [False, True])
    def test_of_both_formats(self, mmap: bool, zipped: bool, tmp_path: Path) -> None:
        torch.save(torch.arange(5), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
        assert load(tmp_path / "a.pt", "cpu", mmap=mmap).tolist() == [0, 1, 2, 3, 4]

    def test_other_files_are_no_checkpoints(self, tmp_path: Path) -> None:
        for contents in ([1, 2], {"weight": torch.ones(2)}, {"model": torch.ones(2)}):
            torch.save(contents, tmp_path / "a.pt")
            with pytest.raises(UnreadableFile, match=r"a\.pt is not a checkpoint of fairseq \(it has no 'model'\)"):
                load_checkpoint(tmp_path / "a.pt")


class TestDamage:
    def test_is_printed_with_the_name(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        torch.save(checkpoint(), buffer)
        whole, path, draw = buffer.getvalue(), tmp_path / "a.pt", random.Random(1)
        for contents in (
            b"",
            b"not a model\n",
            whole[:64],
            whole[:-30],
            whole[: len(whole) // 2],
            draw.randbytes(2000),
        ):
            path.write_bytes(contents)
            for function in (load, load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
                with pytest.raises(UnreadableFile, match=r"a\.pt cannot be read: it is truncated or not a checkpoint"):
                    function(str(path))


HOSTILE = {
    "a command": (Call(os.system, ("touch made",)), f"contains {posix.__name__}.system"),
    "an import": (Call(importlib.import_module, ("made",)), "contains importlib.import_module"),
    "eval": (Call(eval, ("open('made', 'w')",)), "contains eval"),
    "a method": (Call(getattr, (str, "format")), "contains getattr"),
    "an array of objects": (Call(np.dtype, ("O8", False, True)), "contains an array of 'O8'"),
    "a call of a value": (Call(list, ((1,),)), "contains a call of <class 'list'>"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("default", ["1", "0"])
def test_hostile_files_are_refused_in_words(
    name: str, default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where torch would run anything, as before 2.6 or with this variable."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", default)
    monkeypatch.chdir(tmp_path)
    contents, reason = HOSTILE[name]
    pickles.write(checkpoint(best=contents), tmp_path / "a.pt")
    functions = (load, load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu, checkpoint_utils.torch.load)
    for function in (*functions, distributed_utils.torch.load):
        with pytest.raises(RefusedContents, match=r"a\.pt is refused: it contains ") as refusal:
            function(str(tmp_path / "a.pt"))
        message = str(refusal.value)
        assert reason in message and "a source that you trust" in message and "\n" not in message
        assert "weights_only" not in message and "safe_globals" not in message and "truncated" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
