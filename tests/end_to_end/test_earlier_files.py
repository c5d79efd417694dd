"""Data folders and checkpoints of an earlier version, made by tests/goldens/make_earlier.py, go on being used."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support import helpers, tiny_trainings

ARCHIVE = helpers.REPOSITORY / "tests" / "goldens" / "earlier.tar.xz"
KINDS = ("language model", "megalodon", "text", "image", "translation")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    """Return the folder of the unpacked archive."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python releases before 2023 have none
        packed.extractall(folder)
    return folder


def record_of(earlier: Path, kind: str) -> Dict[str, Any]:
    """Return arguments and numbers of a kind of training."""
    record: Dict[str, Any] = json.loads((earlier / "earlier.json").read_text())[kind]
    return record


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_as_it_did(earlier, kind, tmp_path):
    """The next two updates and the validation after them have the recorded losses and gradient norms."""
    record = record_of(earlier, kind)
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        shutil.copy(earlier / record["checkpoint"], tmp_path / name)
    output = helpers.run_fairseq(
        "train", [earlier / record["data"], *record["options"], "--save-dir", tmp_path, "--max-update", 4]
    )
    found = tiny_trainings.numbers(output)
    assert len(found) == len(record["numbers"]) == 3
    for got, want in zip(found, record["numbers"]):
        assert got.keys() == want.keys()
        for name, value in want.items():
            assert float(got[name]) == pytest.approx(float(value), rel=2e-3), name


def test_translates(earlier, tmp_path):
    """The translator answers every sentence of the earlier test set."""
    record = record_of(earlier, "translation")
    output = helpers.run_fairseq(
        "generate", [earlier / record["data"], "--path", earlier / record["checkpoint"], "--beam", 2]
    )
    lines = (earlier / record["data"]).with_name("test.en").read_text().splitlines()
    assert output.count("\nH-") == len(lines)
