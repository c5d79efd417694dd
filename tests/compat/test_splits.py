"""Names of splits in options are those of the data, in the layout of every task."""

from pathlib import Path
from typing import Optional

import pytest
from fairseq import options

from fairseq_mega.compat.patches import arguments, splits

PARSERS = {
    "train": lambda: options.get_training_parser("mega_language_modeling"),
    "eval-lm": lambda: options.get_eval_lm_parser("mega_language_modeling"),
    "generate": options.get_generation_parser,
    "validate": lambda: options.get_validation_parser("masked_lm"),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Holds train, valid, test and extra, binarised."""
    for name in ("dict.txt", "train.idx", "valid.idx", "test.idx", "extra.idx"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("command", ["train", "eval-lm", "validate"])
@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("train", None),
        ("train,valid,test,extra", None),
        ("tset", "tset"),
        ("trian,valid", "trian"),
        ("train, valid", " valid"),
        ("train,", ""),
        ("dict*", "dict*"),
    ],
)
def test_a_list_of_splits_to_shorten(command: str, given: str, wrong: Optional[str], data: Path) -> None:
    words = [str(data), *(["--arch", "mega_lm_tiny"] if command == "train" else ["--path", "a"])]
    of_task = {"data": str(data), "shorten_data_split_list": given, "shorten_method": "truncate"}
    said = arguments.impossible({**vars(PARSERS[command]().parse_known_args(words)[0]), **of_task})
    expected = f"--shorten-data-split-list {given}: {wrong!r} is no split of {data}: give names such as"
    assert said is None if wrong is None else str(said).startswith(expected)


@pytest.mark.parametrize(
    ("command", "option", "given", "said"),
    [
        ("validate", "--valid-subset", "valid,test", None),
        ("validate", "--valid-subset", "nosuch", None),  # the task names its file
        (
            "validate",
            "--valid-subset",
            "valid, test",
            "--valid-subset valid, test: ' test' is no split of {data}: give",
        ),
        ("validate", "--valid-subset", "valid,nosuch", "--valid-subset valid,nosuch: 'nosuch' is no split of {data}"),
        ("validate", "--valid-subset", "", "--valid-subset '': '' is no split of {data}: give names such as"),
        ("train", "--valid-subset", "valid,nosuch", "--valid-subset valid,nosuch: 'nosuch' is no split of {data}"),
        ("eval-lm", "--gen-subset", "extra", None),
        ("eval-lm", "--gen-subset", "test,valid", "--gen-subset test,valid: give one split, and run the command for"),
        ("generate", "--gen-subset", "test,valid", "--gen-subset test,valid: give one split, and run the command for"),
        ("generate", "--gen-subset", "", "--gen-subset '': give one split"),
    ],
)
def test_splits_to_score(command: str, option: str, given: str, said: Optional[str], data: Path) -> None:
    words = [str(data), option, given, *(["--arch", "mega_lm_tiny"] if command == "train" else ["--path", "a"])]
    found = arguments.impossible({**vars(PARSERS[command]().parse_known_args(words)[0]), "data": str(data)})
    assert found is None if said is None else str(found).startswith(said.format(data=data))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("valid.en-de.en.idx", "valid"),
        ("test1.bin", "test1"),
        ("new.jsonl", "new"),
        ("new/a.jsonl", "new"),
        ("input0/new.idx", "new"),
        ("input/new.npy", "new"),
        ("val/class/image.png", "valid"),
        ("speech/val_X.pt", "valid"),
    ],
)
def test_layouts(file: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "da[t]a"
    (folder / file).parent.mkdir(parents=True)
    (folder / file).touch()
    assert splits.has_split([str(folder)], name)
    assert not splits.has_split([str(folder)], name[:-1]) and not splits.has_split([str(folder)], "")
