"""Every command that takes a checkpoint, with one that would run a program: nothing runs, and one line says why."""

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

import fairseq_mega
from fairseq_mega.cli import average_checkpoints, console
from fairseq_mega.convert import command as convert_checkpoint
from fairseq_mega.lab.evaluate import classify, lra_results, question_answering
from fairseq_mega.lab.evaluate import language_model as evaluate_lm
from fairseq_mega.lab.inspect import command as inspect_checkpoint
from fairseq_mega.lab.reproduce import command as reproduce
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import helpers, pickles

MADE = "made-by-a-checkpoint"
CODE = f"__import__('pathlib').Path('{MADE}').touch() or [5]"
ONCE = ["--max-tokens", 200, "--lr", 0.1, "--max-update", 1, "--disable-validation", "--no-epoch-checkpoints"]
ONCE += ["--num-workers", 0, "--optimizer", "nag"]
TRANSLATOR = ["--arch", "transformer_tiny", "--encoder-layers", 1, "--decoder-layers", 1]
LANGUAGE_MODEL = ["--task", "language_modeling", "--arch", "transformer_lm", "--tokens-per-sample", 30]
LANGUAGE_MODEL += ["--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 32, "--decoder-attention-heads", 2]
LANGUAGE_MODEL += ["--decoder-layers", 1, "--decoder-input-dim", 16, "--decoder-output-dim", 16]


class Files(NamedTuple):
    """Paths of the data and of the checkpoints."""

    pairs: Path  # data of translation
    text: Path  # data of language models
    good: Dict[str, Path]  # checkpoints of fairseq's models, and of ours
    hostile: Dict[str, Path]


def with_code(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """`checkpoint`, made of data only, with code for the value of an option of its model."""
    assert not checkpoint["args"]
    model = checkpoint["cfg"]["model"]  # a namespace, or a dictionary
    (model if isinstance(model, dict) else vars(model))["adaptive_softmax_cutoff"] = CODE
    return checkpoint


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_model, device_flags) -> Files:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in helpers.random_sentences(60, 3)))
    prefixes = [f"--{split}pref" for split in ("train", "valid", "test")]
    preprocess = [part for prefix in prefixes for part in (prefix, folder / "train.txt")]
    helpers.run_fairseq("preprocess", ["--only-source", *preprocess, "--destdir", folder / "text"])
    good = {"mega": tiny_model.checkpoint, "lm": folder / "lm" / "checkpoint_last.pt"}
    options = [*LANGUAGE_MODEL, *ONCE, *device_flags, "--save-dir", folder / "lm"]
    helpers.run_fairseq("train", [folder / "text", *options])
    good["translator"] = folder / "translator" / "checkpoint_last.pt"
    options = [*TRANSLATOR, *ONCE, *device_flags, "--save-dir", folder / "translator"]
    helpers.run_fairseq("train", [tiny_model.data, *options])
    hostile = {}
    for name, source in (("translator of data", "translator"), ("language model of data", "lm")):
        hostile[name] = folder / f"data-{source}" / "model.pt"
        hostile[name].parent.mkdir()
        torch.save(with_code(torch.load(good[source], weights_only=True)), hostile[name])
    for name, source in (("pickled translator", "mega"), ("pickled language model", "lm")):
        hostile[name] = folder / f"pickled-{source}" / "model.pt"
        hostile[name].parent.mkdir()
        checkpoint = torch.load(good[source], weights_only=True)
        checkpoint["extra_state"]["best"] = pickles.Call(os.system, (f"touch {MADE}",))
        pickles.write(checkpoint, hostile[name])
    pairs = folder / "pairs"
    shutil.copytree(tiny_model.data, pairs)
    shutil.copy(pairs / "dict.de.txt", pairs / "dict.txt")  # that of a language model, for --lm-path
    return Files(pairs, folder / "text", good, hostile)


@pytest.fixture(autouse=True)
def scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder in which a checkpoint's program would leave its file."""
    monkeypatch.chdir(tmp_path)


def questions() -> str:
    Path("questions.jsonl").write_text(json.dumps({"id": "1", "input": "w1?\n\nw2", "output": "w3"}) + "\n")
    return "questions.jsonl"


def log_of_a_classifier() -> str:
    valid = {"epoch": 1, "valid_loss": 1, "valid_accuracy": 50, "valid_num_updates": 1}
    lines = ["num. shared model params: 9", "x | train: 9 examples", f"x | valid | {json.dumps(valid)}"]
    Path("train.log").write_text("".join(f"{line}\n" for line in lines))
    return "train.log"


def linked(path: Path) -> str:
    Path("save").mkdir()
    os.symlink(path, "save/checkpoint_last.pt")
    return "save"


Words = Callable[[Files, Path], List[object]]
TRAIN: Words = lambda files, path: [files.pairs, *helpers.TINY_TRAINING, "--save-dir", "save", "--max-update", 99]
DATA: Words = lambda files, path: [files.text if "lm" in path.parent.name else files.pairs]
ON_PAIRS: Dict[str, Words] = {
    "train --restore-file": lambda files, path: [*TRAIN(files, path), "--restore-file", path],
    "train --finetune-from-model": lambda files, path: [*TRAIN(files, path), "--finetune-from-model", path],
    "train --ema-seed-model": lambda files, path: [*TRAIN(files, path), "--store-ema", "--ema-seed-model", path],
    "train in its folder": lambda files, path: [*TRAIN(files, path), "--save-dir", linked(path)],
    "generate": lambda files, path: [files.pairs, "--path", path],
    "generate of several": lambda files, path: [files.pairs, "--path", f"{files.good['mega']}{os.pathsep}{path}"],
    "generate --lm-path": lambda files, path: [files.pairs, "--path", files.good["mega"], "--lm-path", path],
    "interactive": lambda files, path: [files.pairs, "--path", path],
    "validate": lambda files, path: [files.pairs, "--path", path, "--task", "translation", "--max-tokens", 500],
}
ON_TEXT: Dict[str, Words] = {
    "eval-lm": lambda files, path: [files.text, "--path", path],
    "validate": lambda files, path: [files.text, "--path", path, "--task", "language_modeling", "--max-tokens", 500],
    "generate": lambda files, path: [files.text, "--path", path, "--task", "language_modeling"],
}
# Each command of the package that reads a checkpoint, and its words; what it would write is named made.*.
OURS: Dict[ModuleType, Words] = {
    evaluate_lm: lambda files, path: [*DATA(files, path), "--path", path, "--label", "x", "--output", "made.d"],
    classify: lambda files, path: [*DATA(files, path), "--path", path, "--cpu"],
    question_answering: lambda files, path: [
        *("narrative_qa", "--questions", questions(), "--path", path, "--output", "made.json"),
        *("--data", *DATA(files, path), "--cpu"),
    ],
    convert_checkpoint: lambda files, path: ["--input", path, "--output", "made.pt"],
    average_checkpoints: lambda files, path: ["--inputs", files.good["mega"], path, "--output", "made.pt"],
    inspect_checkpoint: lambda files, path: [path, "--attention", "w1"],
    lra_results: lambda files, path: [
        *("test", files.pairs, "--task", "lra-text", "--path", path, "--log", log_of_a_classifier(), "--label", "x"),
        *("--train-command", "train.log", "--json", "made.json", "--command", "x", "--seed", 1, "--batch", 1),
        *("--test-batch", 1, "--early-epoch", 1, "--cpu"),
    ],
    reproduce: lambda files, path: ["figure6", "--checkpoint", path, "--smoke", "--gpus", 0],
}
Case = Tuple[str, Callable[[List[str]], Any], Words, str]


def cases() -> Iterator[Case]:
    """Yield a command's name, its function, its words and the name of a hostile file."""
    for commands, kind in ((ON_PAIRS, "translator"), (ON_TEXT, "language model")):
        for name, words in commands.items():
            for file in (f"pickled {kind}", f"{kind} of data"):
                yield name, partial(console.run, name.split()[0]), words, file
    for module, words in OURS.items():
        name = module.__name__.replace("fairseq_mega.", "")
        yield name, module.main, words, "pickled language model"
        if module not in (average_checkpoints, lra_results, reproduce):
            yield name, module.main, words, "language model of data"


def assert_refused(message: str, path: Path) -> None:
    """Nothing of a hostile file ran, nor is there advice to let it."""
    assert "weights_only" not in message and "truncated" not in message, message
    if "pickled" in path.parent.name:
        assert f"is refused: it contains {os.system.__module__}.system" in message, message
    assert not list(Path().rglob(MADE))


@pytest.mark.parametrize(("name", "run", "words", "hostile"), [pytest.param(*c, id=f"{c[0]}-{c[3]}") for c in cases()])
def test_a_hostile_file_is_refused(name, run, words, hostile, files, device_flags) -> None:
    """In one line that names it, and nothing is written."""
    path, fairseqs = files.hostile[hostile], "." not in name
    given = [str(word) for word in [*words(files, path), *(device_flags if fairseqs else [])]]
    helpers.forget_earlier_runs()
    with helpers.captured_output("w1 w2\n") as output:
        try:
            status = run(given)
        except SystemExit as exit_request:
            status = exit_request.code
    helpers.forget_earlier_runs()
    printed = output.getvalue()
    assert status in (1, 2) and "Traceback" not in printed, printed
    assert_refused(printed, path)
    lines = [line for line in printed.splitlines() if ": error: " in line]
    # What a training restores are tensors: it does not read the configuration beside them, and names other tensors.
    if not (name.startswith("train") and "of data" in hostile):
        assert any(str(path) in line or "save/checkpoint_last.pt" in line for line in lines), printed
        assert not fairseqs or "is refused: " in printed
    assert len(lines) == 1 or name.endswith(("lra_results", "reproduce.command"))  # which start other commands
    assert not [made for made in Path().rglob("*") if made.is_file() and "made" in str(made)]


def test_no_command_is_omitted() -> None:
    """A new one belongs here, or takes no checkpoint."""
    rooms = ("cli", "convert", "lab/evaluate", "lab/inspect", "lab/reproduce")
    package = Path(fairseq_mega.__file__).parent
    files = [path for room in rooms for path in (package / room).rglob("*.py") if "__name__ ==" in path.read_text()]
    names = (".".join(path.relative_to(package.parent).with_suffix("").parts) for path in files)
    found = {name.replace("__main__", "command") for name in names}  # which calls the command of its room
    # This one reads by MegaLanguageModel.from_pretrained, which is tried below.
    assert found == {"fairseq_mega.lab.evaluate.lm_eval_command", *(module.__name__ for module in OURS)}
    assert {name.split()[0] for name in (*ON_PAIRS, *ON_TEXT)} == set(console.COMMANDS)


@pytest.mark.parametrize(
    ("model", "hostile"),
    [
        (MegaModel, "pickled translator"),
        (MegaModel, "translator of data"),
        (MegaLanguageModel, "pickled language model"),
        (MegaLanguageModel, "language model of data"),
        (TransformerLanguageModel, "language model of data"),
    ],
)
def test_from_pretrained_refuses_hostile_files(model, hostile, files) -> None:
    path = files.hostile[hostile]
    data = files.text if "language" in hostile else files.pairs
    with pytest.raises(ValueError, match="is refused: ") as refusal:
        model.from_pretrained(str(path.parent), "model.pt", str(data))
    assert str(path) in str(refusal.value)
    assert_refused(str(refusal.value), path)


def test_configurations_are_copied_and_printed_unread(files, capsys) -> None:
    path = files.hostile["translator of data"]
    assert average_checkpoints.main(["--inputs", str(path), "--output", "mean.pt"]) == 0
    assert inspect_checkpoint.main([str(path)]) == 0
    assert "transformer_tiny" in capsys.readouterr().out
    assert not Path(MADE).exists() and Path("mean.pt").exists()


def test_no_checkpoint_names_code_to_import(files, device_flags, tmp_path) -> None:
    """A checkpoint's own --user-dir is not imported."""
    plugin = tmp_path / "plugin_of_a_checkpoint"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"open({MADE!r}, 'w')\n")
    checkpoint = torch.load(files.good["lm"], weights_only=True)
    checkpoint["cfg"]["common"]["user_dir"] = str(plugin)
    torch.save(checkpoint, "lm.pt")
    words = [files.text, "--path", "lm.pt", *device_flags]
    assert "Perplexity" in helpers.run_fairseq("eval-lm", [*words, "--tokens-per-sample", 30])
    given = [files.text, "--path", "lm.pt", "--label", "x", "--output", "results", "--device", "cpu"]
    assert evaluate_lm.main([str(part) for part in given]) == 0
    assert not Path(MADE).exists() and plugin.name not in sys.modules
