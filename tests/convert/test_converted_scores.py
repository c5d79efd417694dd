"""Every kind of model, converted there and back: the commands that score and use models print the same numbers."""

import importlib.util
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from fairseq_mega.convert import command
from tests.support import helpers
from tests.support.tiny_trainings import Trainings

ONCE: List[object] = ["--cpu", "--max-update", 2, "--num-workers", 0, "--no-epoch-checkpoints", "--disable-validation"]
SMOOTHED: List[object] = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.3]
ADAPTIVE: List[object] = ["--arch", "mega_lm", "--adaptive-input", "--adaptive-input-cutoff", "9,15"]
ADAPTIVE += ["--adaptive-softmax-cutoff", "9,15"]
ADAPTIVE += ["--tie-adaptive-weights", "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
LM = ("validate", "eval-lm", "generate")
SCORES = LM[:2]  # generation does not depend on a criterion
KINDS: Dict[str, Tuple[str, List[object], Tuple[str, ...]]] = {  # kind of training, its options, commands
    "language model": ("language model", [], LM),
    "smoothed language model": ("language model", SMOOTHED, SCORES),
    "mean of sentences": ("language model", ["--sentence-avg", "--valid-block", "lines"], SCORES),
    "adaptive": ("language model", ADAPTIVE, LM),
    "megalodon": ("megalodon", [], LM),
    "smoothed megalodon": ("megalodon", [*SMOOTHED, "--sentence-avg", "--valid-block", "lines"], SCORES),
    "translator": ("translation", [], ("validate", "generate")),
    "plain translator": ("translation", ["--criterion", "cross_entropy", "--sentence-avg"], ("validate",)),
    "text": ("text", [], ("validate",)),
    "image": ("image", [], ("validate",)),
    "speech": ("speech", [], ("validate",)),
    "colour image": ("colour image", [], ("validate",)),
    "masked": ("masked", [], ("validate",)),
}
OF_COMMANDS: Dict[str, List[object]] = {
    "validate": ["--max-tokens", 200, "--skip-invalid-size-inputs-valid-test"],
    "eval-lm": ["--max-tokens", 200],
    "generate": ["--gen-subset", "valid", "--batch-size", 40, "--max-len-b", 3, "--beam", 1, "--valid-block", "lines"],
}
OUTPUTS = {"validate": r"valid on .*", "eval-lm": r"Loss \(base 2\).*", "generate": r"^[HDP]-.*"}


def printed(data: Path, checkpoint: Path, name: str, task: Any) -> List[str]:
    """Return the numbers that a command prints."""
    given = [data, "--path", checkpoint, "--task", task, "--cpu", "--no-progress-bar", *OF_COMMANDS[name]]
    if name == "generate" and task == "translation":
        given = given[:-2]
    found = re.findall(OUTPUTS[name], helpers.run_fairseq(name, given), re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("name", KINDS)
def test_there_and_back(name: str, trainings: Trainings, tmp_path: Path) -> None:
    kind, options, commands = KINDS[name]
    given: List[Any] = trainings.arguments(kind, *options, *ONCE, "--save-dir", tmp_path)
    if name == "adaptive":
        given.remove("--share-decoder-input-output-embed")
    helpers.run_fairseq("train", given)
    task = given[given.index("--task") + 1] if "--task" in given else "translation"
    trained, there = tmp_path / "checkpoint_last.pt", tmp_path / "there"
    copies = [tmp_path / "back.pt"]
    if importlib.util.find_spec("safetensors") is not None:
        copies += [tmp_path / "back.safetensors", tmp_path / "copy.safetensors"]
    command.main(["--input", str(trained), "--output", str(there), "--to", "official"])
    for copy in copies:
        command.main(["--input", str(trained if copy.stem == "copy" else there), "--output", str(copy)])
    for what in commands:
        wanted = printed(given[0], trained, what, task)
        for copy in copies if what == "validate" else copies[:1]:
            assert printed(given[0], copy, what, task) == wanted, (what, copy)
