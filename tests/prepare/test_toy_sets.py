"""Every data set out of its invented data: the card and the files are those of ``toy_sets.json``."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.prepare import command
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal, source_of

GOLDEN = Path(__file__).with_name("toy_sets.json")
# Options beside --smoke, for a data set in several forms.
RUNS: Dict[str, List[str]] = {
    **{name: [] for name, dataset in command.DATASETS.items() if dataset.toy is not None},
    "imdb --held-out": ["--held-out", "5", "--end", "--length", "20"],
    "cifar10 --side": ["--side", "8", "--limit", "20"],
    "text-lm --unit": ["--unit", "subwords", "--vocab-size", "90"],
    "speech-commands --scaling": ["--scaling", "once"],
}
# Files whose bytes depend on the versions of libraries: tensors, models of subwords and what they cut, JPEG.
OF_LIBRARIES = (".pt", ".model", ".JPEG", ".log")
BY_LIBRARIES = ("help-pairs", "wmt16")


def card_of(out: Path, name: str) -> Dict[str, Any]:
    """Return what must not change in the card, and a digest of names and of files that no library decides."""
    card = source_of(out)
    files = hashlib.sha256()
    for file, record in sorted(card["files"].items()):
        of_library = file.endswith(OF_LIBRARIES) or name in BY_LIBRARIES
        files.update(f"{file} {'' if of_library else record['sha256']}\n".encode())
    kept = {key: card[key] for key in ("kind", "dataset", "splits", "settings", "notes")}
    return {**kept, "files": len(card["files"]), "digest": files.hexdigest()}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", RUNS)
def test_cards_and_files_are_the_same(name: str, tmp_path: Path) -> None:
    """To accept other ones, run it with WRITE_TOY_SETS=1, and look at what has changed."""
    prepare(name.split()[0], "--smoke", *RUNS[name], "--out", tmp_path / "out").succeeded()
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    found = json.loads(json.dumps(card_of(tmp_path / "out", name)))
    if os.environ.get("WRITE_TOY_SETS"):
        lines = [f"{json.dumps(key)}: {json.dumps(card)}" for key, card in sorted({**golden, name: found}.items())]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    else:
        assert found == golden[name]


def test_toy_data_are_the_same_each_time(tmp_path: Path) -> None:
    """A finished folder is not made again, and not taken for one of other data."""
    for said in ("done", "nothing to do"):
        assert said in prepare("aan", "--smoke", "--out", tmp_path / "out").succeeded().output
    assert "smoke was true and is null now" in refusal("aan", "--released", "--out", tmp_path / "out")


def test_help_has_the_details_and_every_option_of_the_description(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    page = capsys.readouterr().out
    for name, dataset in command.DATASETS.items():
        assert f"    {name} " in page
        with pytest.raises(SystemExit) as ended:
            command.main([name, "--help"])
        text = capsys.readouterr().out
        assert ended.value.code == 0 and dataset.details in text, name
        assert all(f"--{option.replace('_', '-')}" in text for option in ("out", *dataset.members)), name
