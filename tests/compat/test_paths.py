"""A path that exists is a path, whatever colons its name holds; else a colon separates, and that is said."""

import shutil
from pathlib import Path
from typing import List

import pytest
from fairseq import hub_utils, options, utils
from fairseq.tasks import FairseqTask, LegacyFairseqTask

from fairseq_mega.compat.errors import describe
from fairseq_mega.compat.patches import arguments
from fairseq_mega.compat.patches.paths import lost_part
from fairseq_mega.models.checkpoint_files import origin_of
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import helpers, tiny_trainings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds a, b, a:c/d.pt and a:b:c, and is the working directory."""
    for name in ("a", "b", "a:c", "a:b:c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a:c" / "d.pt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ("a", ["a"]),
        ("a:b", ["a", "b"]),
        ("a:c/d.pt", ["a:c/d.pt"]),
        ("a:c/d.pt:a:c/d.pt:b", ["a:c/d.pt", "a:c/d.pt", "b"]),
        ("b:a:c/d.pt", ["b", "a:c/d.pt"]),
        ("a:b:c", ["a:b:c"]),
        ("a:b:c:a", ["a:b:c", "a"]),
        ("a:c/e.pt", ["a:c/e.pt"]),  # with a suffix it may be there
        ("x:y", ["x", "y"]),
        ("", [""]),
        ("s3://bucket/a|s3://bucket/b", ["s3://bucket/a", "s3://bucket/b"]),
    ],
)
def test_split(folder: Path, given: str, paths: List[str]) -> None:
    assert utils.split_paths(given) == paths
    for task in (FairseqTask, LegacyFairseqTask):
        one = task.__new__(task)
        one.cfg = one.args = type("Options", (), {"data": given})
        if task is LegacyFairseqTask:
            del one.cfg
        assert one.has_sharded_data("train") == (len(paths) > 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a", None),
        ("x", None),
        ("a:b", None),
        ("a:x", "x does not exist, and ':' separates paths"),
        ("a::b", "an empty name"),
    ],
)
def test_missing_parts(folder: Path, given: str, said: str) -> None:
    found = lost_part(given)
    assert (found is None) if said is None else said in str(found)


def test_the_colon_is_named(folder: Path, trainings: tiny_trainings.Trainings) -> None:
    said = "--path x:y/z.pt: x does not exist, and ':' separates paths: give the"
    with pytest.raises(FileNotFoundError, match=said) as lost:
        origin_of("x:y/z.pt")
    assert describe(lost.value) == str(lost.value)
    arguments = trainings.arguments("language model", "--cpu")[1:]
    with pytest.raises(SystemExit):
        helpers.run_fairseq("train", ["a:x", *arguments])


@pytest.mark.parametrize("command", ["generate", "eval-lm", "validate", "train", "interactive"])
def test_several_data_folders_are_trained_on_alone(command: str, folder: Path) -> None:
    """A score of the first of them would stand for all."""
    parsers = {
        "generate": options.get_generation_parser,
        "interactive": lambda: options.get_generation_parser(interactive=True),
        "eval-lm": options.get_eval_lm_parser,
        "validate": options.get_validation_parser,
        "train": options.get_training_parser,
    }
    words = ["--arch", "mega_tiny"] if command == "train" else ["--path", "a"]
    for data, split, scored in (("a:b", "test", False), ("a:b", "valid", False), ("b:a", "test", True)):
        for name in ("test.en-de.en.idx", "valid.idx"):
            (folder / "b" / name).touch()
        subset = [] if command == "train" else ["--valid-subset" if command == "validate" else "--gen-subset", split]
        given = vars(parsers[command]().parse_known_args([*words, *subset])[0])
        said = str(arguments.impossible({**given, "data": data}))  # an option of the task
        assert (f"of the split '{split}' only the first" in said) != (scored or command in ("train", "interactive"))


def test_a_training_in_such_folders_is_read_back(
    trainings: tiny_trainings.Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, --save-dir, --restore-file, --finetune-from-model, --path and from_pretrained."""
    given = trainings.arguments("language model", "--cpu", "--num-workers", 0, "--no-epoch-checkpoints")
    data, first, second = (tmp_path / name for name in ("da:ta", "fir:st", "sec:ond"))
    shutil.copytree(str(given[0]), data)
    train = [data, *given[1:]]
    helpers.run_fairseq("train", [*train, "--max-update", 1, "--save-dir", first])
    best = first / "checkpoint_best.pt"
    helpers.run_fairseq("train", [*train, "--max-update", 2, "--save-dir", second, "--restore-file", best])
    tuned: List[object] = ["--save-dir", tmp_path / "thi:rd", "--finetune-from-model", best]
    helpers.run_fairseq("train", [*train, "--max-update", 1, *tuned])
    scored = helpers.run_fairseq("eval-lm", [data, "--path", best, "--task", "mega_language_modeling", "--cpu"])
    assert "Perplexity" in scored
    alone: List[object] = ["--task", "mega_language_modeling", "--cpu", "--batch-size", 4, "--max-len-b", 3]
    alone += ["--valid-block", "lines"]
    both = f"{best}:{second / 'checkpoint_best.pt'}"
    assert len(helpers.hypotheses(helpers.run_fairseq("generate", [data, "--path", both, *alone]))) > 5
    MegaLanguageModel.from_pretrained(first, "checkpoint_best.pt", data)
    loaded = hub_utils.from_pretrained(str(first), f"checkpoint_best.pt:{best}", str(data))
    assert len(loaded["models"]) == 2


@pytest.mark.parametrize(
    ("model", "data", "told"),
    [
        ("save/model.pt", "data", r"save/model\.pt is a file: give its folder, and checkpoint_file='model\.pt'"),
        ("save/model.tar.gz", "data", r"model\.tar\.gz is a file: .*unpack an archive first"),
        ("saved", "data", r"saved does not exist: give a folder"),
        ("save", "data/dict.txt", r"dict\.txt is a file: give the data folder"),
        ("save", "other", r"other does not exist: give a folder"),
        ("save", "./data", r"save/\./data does not exist, as \./data starts from the folder of the model"),
    ],
)
def test_folders_of_the_hub(model: str, data: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("save/model.pt", "save/model.tar.gz", "data/dict.txt"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=f"from_pretrained: .*{told}"):
        MegaLanguageModel.from_pretrained(Path(model), "model.pt", data)
    assert (tmp_path / "save" / "model.tar.gz").is_file()  # fairseq removes an archive
