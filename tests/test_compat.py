"""Each mend of fairseq, torch and numpy on its own, and the counts of sentences that they are for."""

import argparse
import collections
import io
import logging
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Iterator, Optional

import numpy as np
import omegaconf
import pytest
import torch
from fairseq import options
from fairseq.data import FairseqDataset, data_utils
from fairseq.data.iterators import BufferedIterator
from fairseq.data.token_block_dataset import TokenBlockDataset
from fairseq.file_io import PathManager
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_mega import compat
from tests import helpers


def test_apply_twice_changes_nothing() -> None:
    def patched() -> tuple:
        return data_utils.batch_by_size, PathManager.copy, options.parse_args_and_arch, data_utils.np

    before = patched()
    compat.apply()
    assert patched() == before


def test_import_is_silent_and_leaves_the_root_logger_alone() -> None:
    code = "import fairseq_mega, logging; root = logging.getLogger(); assert (root.handlers, root.level) == ([], 30)"
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "default"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "fairseq_mega" not in done.stderr, done.stderr  # no warning of ours; torch and hydra have theirs


def test_unusable_fairseq_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "fairseq").mkdir()
    message = "mutable default <class 'CommonConfig'> for field common is not allowed: use default_factory"
    (tmp_path / "fairseq" / "__init__.py").write_text(f'raise ValueError("{message}")\n')
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="fairseq-fixed"):
        compat.import_fairseq()
    assert logging.getLogger().manager.disable == logging.NOTSET


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


class TestNumpyNames:
    def test_numpy_itself_is_untouched(self) -> None:
        if int(np.__version__.split(".")[0]) < 2:
            pytest.skip("NumPy 1 has these names itself")
        assert not hasattr(np, "compat") and not hasattr(np, "int")

    def test_buckets(self) -> None:
        sizes = np.array([3, 5, 5, 9, 12, 30])
        buckets = data_utils.get_buckets(sizes, 3)
        assert buckets[-1] == 30 and list(buckets) == sorted(buckets)

    def test_sentence_blocks(self) -> None:
        tokens = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
        blocks = TokenBlockDataset(tokens, [3, 2], None, pad=1, eos=2, break_mode="eos")
        assert [block.tolist() for block in (blocks[0], blocks[1])] == [[5, 6, 2], [7, 2]]


class TestLastBatch:
    @settings(deadline=None, max_examples=200)
    @given(
        sizes=st.lists(st.integers(1, 30), max_size=120),
        max_tokens=st.one_of(st.none(), st.integers(30, 400)),
        max_sentences=st.one_of(st.none(), st.integers(1, 40)),
        multiple=st.sampled_from([1, 2, 3, 8, 16]),
        vectorised=st.booleans(),
    )
    def test_every_index_once_within_the_limits(self, sizes, max_tokens, max_sentences, multiple, vectorised) -> None:
        lengths = np.array(sorted(sizes), dtype=np.int64)
        indices = np.arange(len(lengths))[::-1].copy() if len(lengths) % 2 else np.arange(len(lengths))
        vector = lengths[indices] if vectorised else None
        batches = data_utils.batch_by_size(indices, lambda i: lengths[i], vector, max_tokens, max_sentences, multiple)
        assert [i for batch in batches for i in batch] == indices.tolist()
        for batch in batches:
            assert max_tokens is None or len(batch) * max(lengths[i] for i in batch) <= max_tokens
            assert max_sentences is None or len(batch) <= max_sentences

    def test_other_batches_keep_their_shape(self) -> None:
        lengths = np.arange(1, 462)
        arguments = (np.arange(461), lambda i: lengths[i], lengths, 4000, None, 8)
        mended = data_utils.batch_by_size(*arguments)
        original = data_utils.batch_by_size.__wrapped__(*arguments)
        assert [list(batch) for batch in mended[: len(original)]] == [list(batch) for batch in original]
        assert sum(map(len, mended)) == 461

    def test_indices_of_any_kind(self) -> None:
        batches = data_utils.batch_by_size(iter(range(9)), lambda i: 1, [1] * 9, None, 8, 8)
        assert [len(batch) for batch in batches] == [8, 1]

    def test_no_indices_make_no_batches(self) -> None:
        assert data_utils.batch_by_size(np.arange(0), lambda i: 1, None, 100, None, 8) == []

    @pytest.mark.parametrize("limit", [["--max-tokens", "500"], ["--batch-size", "32"]])
    def test_generate_translates_461_of_461(self, tiny_model, device_flags, limit) -> None:
        beam = ["--beam", "2", "--max-len-b", "5", "--gen-subset", "test"]
        output = helpers.run_fairseq(
            "generate", [tiny_model.data, "--path", tiny_model.checkpoint, *device_flags, *limit, *beam]
        )
        assert sorted(helpers.hypotheses(output)) == list(range(461))
        assert "Translated 461 sentences" in output


def test_batches_are_drawn_again_in_each_epoch() -> None:
    assert FairseqDataset().can_reuse_epoch_itr_across_epochs is False


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


class TestBfloat16:
    @pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
    def test_trains_and_resumes(self, flag, tiny_corpus, device_flags, tmp_path) -> None:
        arguments = [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, flag, "--save-dir", tmp_path]
        helpers.run_fairseq("train", [*arguments, "--max-update", 2])
        output = helpers.run_fairseq("train", [*arguments, "--max-update", 4])
        assert "@ 2 updates" in output and "num_updates: 4 >= max_update: 4" in output

    def test_tpu_stays_a_choice(self) -> None:
        arguments = ["data", "--arch", "mega_tiny", "--bf16"]
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=arguments).tpu is False
        parser = options.get_training_parser()
        assert options.parse_args_and_arch(parser, input_args=[*arguments, "--tpu"]).tpu is True


class TestLeakedLogging:
    def leave_like_wav2vec(self, monkeypatch: pytest.MonkeyPatch, command: Optional[str]) -> logging.Logger:
        """Put the root logger in the state in which fairseq's wav2vec2_classification leaves it."""
        logger = logging.getLogger()
        leaked = logging.StreamHandler()
        leaked.setFormatter(logging.Formatter(logging.BASIC_FORMAT, None))
        monkeypatch.setattr(logger, "handlers", [leaked])
        monkeypatch.setattr(logger, "level", logging.DEBUG)
        for other in ("interactive", "eval_lm", "generate"):
            monkeypatch.delitem(sys.modules, f"fairseq_cli.{other}", raising=False)
        if command is not None:
            monkeypatch.setitem(sys.modules, f"fairseq_cli.{command}", types.ModuleType(command))
        return logger

    def test_late_commands_log_to_stdout(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
        root = self.leave_like_wav2vec(monkeypatch, "eval_lm")
        compat.undo_leaked_logging()
        root.info("Loss (base 2): 1.0")
        captured = capsys.readouterr()
        assert captured.out.endswith("| INFO | root | Loss (base 2): 1.0\n") and captured.err == ""

    def test_generate_configures_logging_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        root = self.leave_like_wav2vec(monkeypatch, "generate")
        compat.undo_leaked_logging()
        assert root.handlers == [] and root.level == logging.WARNING

    def test_other_programs_keep_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        root = self.leave_like_wav2vec(monkeypatch, None)
        before = list(root.handlers)
        compat.undo_leaked_logging()
        assert root.handlers == before and root.level == logging.DEBUG


@pytest.mark.parametrize("queued", [1, 100])
def test_background_loading_ends_before_the_interpreter_does(queued: int) -> None:
    loaded = []

    def batches() -> Iterator[int]:
        for number in range(100_000):
            loaded.append(number)
            time.sleep(0.001)
            yield number

    class Source:
        def __iter__(self) -> Iterator[int]:
            return batches()

        def __len__(self) -> int:
            return 100_000

    iterator = BufferedIterator(queued, Source())
    assert next(iterator) == 0
    thread = iterator._consumer
    assert thread.is_alive()
    compat.end_background_loading([thread])
    assert not thread.is_alive() and len(loaded) < 1000


def test_running_threads_are_known_at_exit() -> None:
    program = """
import threading, time
from fairseq_mega import compat
from fairseq.data.iterators import BufferedIterator
class Slow(list):
    def __iter__(self):
        for item in range(1000):
            time.sleep(0.002)
            yield item
iterator = BufferedIterator(2, Slow(range(1000)))
next(iterator)
import atexit
atexit._run_exitfuncs()
print("alive" if iterator._consumer.is_alive() else "ended")
"""
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "ended", done.stdout + done.stderr
