"""fairseq-mega-prepare called in process, and readers of its results."""

import json
import os
import signal
import tarfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple
from unittest import mock

import numpy as np

from fairseq_mega.lab.prepare import command, toy_data
from tests.support import helpers


class Run(NamedTuple):
    """Status and output of a run that has ended."""

    status: int
    output: str

    def succeeded(self) -> "Run":
        """Assert that the run succeeded and return it."""
        assert self.status == 0, self.output
        return self


def prepare(*arguments: object) -> Run:
    """Run the command in this process."""
    handler = signal.getsignal(signal.SIGTERM)
    with mock.patch.dict(os.environ), helpers.captured_output() as buffer:
        try:
            status = command.main([str(argument) for argument in arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)
    return Run(status, buffer.getvalue())


def write_archive(path: Path, members: Dict[str, bytes]) -> Path:
    """Write a tar packed with gzip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            toy_data.add_file(archive, name, content)
    return path


def refusal(*arguments: object) -> str:
    """Run the command, which must refuse, and return its message."""
    run = prepare(*arguments)
    assert run.status == 1, run.output
    (line,) = [line for line in run.output.splitlines() if line.startswith("fairseq-mega-prepare: error: ")]
    return line


def source_of(out: Path) -> Dict[str, Any]:
    """card.json of a finished data set."""
    return json.loads((out / "card.json").read_text())


def binarised(folder: Path, split: str) -> List[List[str]]:
    """The tokens of every line of a binarised split, which must all end in </s>; it is omitted."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary.load(str(folder / "dict.txt"))
    lines = indexed_dataset.make_dataset(str(folder / split), "mmap")
    found = [[dictionary[token] for token in line] for line in lines]
    assert all(line[-1] == "</s>" for line in found)
    return [line[:-1] for line in found]


def byte_texts(folder: Path, split: str) -> List[bytes]:
    """The texts of a split whose tokens are bytes."""
    return [bytes(map(int, line)) for line in binarised(folder, split)]


def labels(folder: Path, split: str) -> List[str]:
    """The labels of a binarised split."""
    return [label for (label,) in binarised(folder / "label-bin", split)]


def images(folder: Path, split: str) -> np.ndarray:
    """The images of a split, (n, pixels)."""
    return np.loadtxt(folder / "input" / f"{split}.src", dtype=np.int64, ndmin=2)


def image_labels(folder: Path, split: str) -> List[int]:
    """The labels of a split of images."""
    return [int(line) for line in (folder / "label" / f"{split}.label").read_text().splitlines()]
