"""A text of one's own, by every unit, from the file to a continuation: text goes in and text comes out."""

import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any, List, NamedTuple

import pytest
import torch

from fairseq_mega.lab.prepare import binarised, command
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import grids, helpers, in_process
from tests.support.evaluation import exact_bits

LINES = ("ROMEO: Grüße aus Köln für 5 €", "JULIA: Wer ist da „unten“?", "ROMEO: Ich – Romeo!", "")
MODEL: List[object] = ["--task", "mega_language_modeling", "--arch", "mega_lm_tiny", "--decoder-layers", 2]
MODEL += ["--decoder-embed-dim", 48, "--decoder-hidden-dim", 96, "--decoder-chunk-size", 32, "--dropout", 0.0]
TRAINING: List[object] = ["--optimizer", "adam", "--lr", 0.01, "--clip-norm", 1.0, "--max-tokens", 800]
TRAINING += ["--num-workers", 0]
TRAINING += ["--lr-scheduler", "linear_decay", "--warmup-updates", 10, "--no-epoch-checkpoints", "--disable-validation"]

pytestmark = pytest.mark.slow


class Trained(NamedTuple):
    """A model that knows LINES by heart."""

    unit: str
    data: Path
    folder: Path
    model: Any


@pytest.fixture(scope="module", params=grids.mostly_exhaustive(["subwords", "bytes", "words"], kept=2))
def trained(request: pytest.FixtureRequest, device_flags, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    text = folder / "my text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES * 150), encoding="utf-8")
    options = ["--unit", request.param, "--train", text, "--out", folder / "text", "--blocks", 1]
    options += ["--vocab-size", 60] if request.param == "subwords" else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarised, "run_command", in_process.run_command)
        done = in_process.call(command.main, "text-lm", *options)
    assert done.returncode == 0, done.stderr
    data, updates = folder / "text" / "data-bin", 120
    stop = ["--total-num-update", updates, "--max-update", updates, "--save-dir", folder]
    helpers.run_fairseq("train", [data, *MODEL, *TRAINING, *stop, *device_flags])
    model = MegaLanguageModel.from_pretrained(str(folder), "checkpoint_last.pt", str(data))
    return Trained(request.param, data, folder, model)


def test_complete(trained: Trained) -> None:
    line = LINES[0]
    for cut in (len("ROMEO: Grüße"), len("ROMEO: Grüße ")):
        prompt = line[:cut]
        text = trained.model.complete(prompt, 60, temperature=0.0, stop_at_line_end=True)
        assert prompt + text == line
    more = trained.model.complete("ROMEO: Grüße", 90, temperature=0.0)
    assert f"ROMEO: Grüße{more}".startswith("\n".join(LINES[:3]))


def test_stream_of_text(trained: Trained) -> None:
    """Pieces of whole characters, which joined are what complete returns."""
    whole = trained.model.complete("JULIA: Wer", 40, temperature=0.0)
    pieces = list(islice(trained.model.stream("JULIA: Wer", temperature=0.0), 40))
    assert "".join(pieces) == whole and whole.startswith(" ist da „unten“?\nROMEO:")
    assert ("" in pieces) == (trained.unit == "bytes")  # the first bytes of „


def test_interactive(trained: Trained, device_flags) -> None:
    options = ["--task", "mega_language_modeling", "--path", trained.folder / "checkpoint_last.pt", *device_flags]
    options += ["--beam", 1, "--max-len-b", 50]
    output = helpers.run_fairseq("interactive", [trained.data, *options], "ROMEO: Grüße\n")
    assert helpers.hypotheses(output, "D") == {0: LINES[0]}
    assert "<unk>" not in output


def test_blanks_at_the_ends_of_a_prompt(trained: Trained, device_flags) -> None:
    """A prompt has the same tokens as in Python: blanks, too, where the unit has them."""
    options = ["--task", "mega_language_modeling", "--path", trained.folder / "checkpoint_last.pt", *device_flags]
    prompts = ("  ROMEO:", "ROMEO: ", "\u3000ROMEO:\t")
    output = helpers.run_fairseq(
        "interactive", [trained.data, *options, "--beam", 1], "".join(f"{p}\n" for p in prompts)
    )
    dictionary = trained.model.task.dictionary
    want = [dictionary.string(trained.model.encode(prompt)) for prompt in prompts]
    assert list(helpers.hypotheses(output, "S").values()) == want
    assert (len(set(want)) > 1) == (trained.unit == "bytes")


def test_generate(trained: Trained, device_flags) -> None:
    options = ["--task", "mega_language_modeling", "--path", trained.folder / "checkpoint_last.pt", *device_flags]
    options += ["--valid-block", "lines", "--gen-subset", "test", "--beam", 1, "--max-len-b", 50]
    output = helpers.run_fairseq("generate", [trained.data, *options])
    assert set(helpers.hypotheses(output, "S").values()) == set(LINES)
    assert set(helpers.hypotheses(output, "D").values()) >= set(LINES[:3])


def test_a_new_text_is_scored(trained: Trained, device_flags) -> None:
    """It is scored as if it were the test text, in which the words are the same."""
    lines = json.loads((trained.data.parent / "counts.json").read_text())["splits"]["test"]["lines"]
    text = "".join(f"{line}\n" for line in (LINES * 150)[-lines:])
    given = [trained.data, "--task", "mega_language_modeling", "--path", trained.folder / "checkpoint_last.pt"]
    bits = exact_bits([*given, "--gen-subset", "test", "--valid-block", "splits:1", *device_flags])
    assert abs(trained.model.likelihood(text).bits_per_token - bits) < 1e-5


def test_the_unit_travels_with_the_checkpoint(trained: Trained, tmp_path: Path) -> None:
    """Beside the dictionary alone."""
    shutil.copy(trained.data / "dict.txt", tmp_path)
    saved = torch.load(trained.folder / "checkpoint_last.pt")
    assert saved["task_state"] == {"unit": trained.unit}
    if trained.unit == "subwords":
        with pytest.raises(ValueError, match=r"subwords.model does not exist"):
            MegaLanguageModel.from_pretrained(str(trained.folder), "checkpoint_last.pt", str(tmp_path))
        return
    model = MegaLanguageModel.from_pretrained(str(trained.folder), "checkpoint_last.pt", str(tmp_path))
    assert model.complete("ROMEO: Grüße", 8, temperature=0.0) == trained.model.complete(
        "ROMEO: Grüße", 8, temperature=0.0
    )
