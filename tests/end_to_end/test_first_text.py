"""A text of one's own, by every unit, from the file to a continuation: text goes in and text comes out."""

import shutil
from itertools import islice
from pathlib import Path
from typing import Any, List, NamedTuple

import pytest

from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import grids, helpers
from tests.support.prepare_runs import prepare

LINES = ("ROMEO: Grüße aus Köln für 5 €", "JULIA: Wer ist da „unten“?", "ROMEO: Ich – Romeo!", "")
MODEL: List[object] = ["--arch", "mega_lm_tiny", "--decoder-layers", 2, "--decoder-embed-dim", 48]
MODEL += ["--decoder-hidden-dim", 96, "--decoder-chunk-size", 32, "--dropout", 0.0]
TRAINING: List[object] = ["--optimizer", "adam", "--lr", 0.01, "--clip-norm", 1.0, "--max-tokens", 800]
TRAINING += ["--lr-scheduler", "linear_decay", "--warmup-updates", 10, "--total-num-update", 120, "--max-update", 120]
TRAINING += ["--num-workers", 0, "--no-epoch-checkpoints", "--disable-validation"]

pytestmark = pytest.mark.slow


class Trained(NamedTuple):
    """A model that has learned LINES by heart, and the arguments of a command that uses it."""

    unit: str
    data: Path
    folder: Path
    model: Any
    arguments: List[object]


@pytest.fixture(scope="module", params=grids.mostly_exhaustive(["subwords", "bytes", "words"], kept=2))
def trained(request: pytest.FixtureRequest, device_flags, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    text = folder / "my text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES * 150), encoding="utf-8")
    (folder / "test.txt").write_text("".join(f"{line}\n" for line in LINES * 8), encoding="utf-8")
    options = ["--unit", request.param, "--train", text, "--out", folder / "text"]
    options += ["--test", folder / "test.txt"]
    options += ["--vocab-size", 60] if request.param == "subwords" else []
    prepare("text-lm", *options).succeeded()
    data = folder / "text" / "data-bin"
    arguments = [data, "--task", "mega_language_modeling", *device_flags]
    helpers.run_fairseq("train", [*arguments, *MODEL, *TRAINING, "--save-dir", folder])
    model = MegaLanguageModel.from_pretrained(str(folder), "checkpoint_last.pt", str(data))
    return Trained(request.param, data, folder, model, [*arguments, "--path", folder / "checkpoint_last.pt"])


def test_complete(trained: Trained) -> None:
    line = LINES[0]
    for prompt in (line[: len("ROMEO: Grüße")], line[: len("ROMEO: Grüße ")]):
        assert prompt + trained.model.complete(prompt, 60, temperature=0.0, stop_at_line_end=True) == line
    whole = trained.model.complete("JULIA: Wer", 40, temperature=0.0)
    parts = list(islice(trained.model.stream("JULIA: Wer", temperature=0.0), 40))
    assert "".join(parts) == whole and whole.startswith(" ist da „unten“?\nROMEO:")
    assert ("" in parts) == (trained.unit == "bytes")  # the first bytes of „


def test_interactive(trained: Trained) -> None:
    """A prompt has the same tokens as in Python, with its blanks where the unit has them."""
    prompts = ("ROMEO: Grüße", "  ROMEO:", "ROMEO: ", "\u3000ROMEO:\t")
    options = [*trained.arguments, "--beam", 1, "--max-len-b", 50]
    output = helpers.run_fairseq("interactive", options, "".join(f"{prompt}\n" for prompt in prompts))
    assert helpers.hypotheses(output, "D")[0] == LINES[0]
    want = [trained.model.task.dictionary.string(trained.model.encode(prompt)) for prompt in prompts]
    assert list(helpers.hypotheses(output, "S").values()) == want


def test_the_unit_travels_with_the_checkpoint(trained: Trained, tmp_path: Path) -> None:
    """Beside the dictionary alone; subwords also need their model."""
    shutil.copy(trained.data / "dict.txt", tmp_path)
    where = str(trained.folder), "checkpoint_last.pt", str(tmp_path)
    if trained.unit == "subwords":
        with pytest.raises(ValueError, match=r"subwords.model"):
            MegaLanguageModel.from_pretrained(*where)
        return
    texts = [
        model.complete("ROMEO: Grüße", 8, temperature=0.0)
        for model in (trained.model, MegaLanguageModel.from_pretrained(*where))
    ]
    assert texts[0] == texts[1]
