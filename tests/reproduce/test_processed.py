"""--processed: the folder of a task is found by its files, and refused where its vocabulary or labels are others."""

import zipfile
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare.generators.listops import TOKENS
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.authors_data import find_processed
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.listing import listing
from fairseq_mega.lab.reproduce.runner import jobs_of, prepare_all
from fairseq_mega.lab.reproduce.settings import Choices

LISTOPS, PATHFINDER, PATHX = (catalogue()[f"mega/table2/{task}/mega"] for task in ("listops", "pathfinder", "pathx"))


def write(folder: Path, data: str, tokens: Sequence[str] = TOKENS, labels: int = 10, pixels: int = 1024) -> Path:
    for name in DATASETS[data].layout.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "1\n"
        if name.startswith("input"):
            text = " ".join(["7"] * pixels) + "\n"
        elif name.endswith(".label"):
            text = "".join(f"{label}\n" for label in range(2 if "path" in data else labels))
        elif name.endswith("dict.txt"):
            words = list(map(str, range(labels))) if "label" in name else [*tokens, "madeupword0000"]
            text = "".join(f"{word} 1\n" for word in words)
        path.write_text(text)
    return folder


def test_folders_are_known_by_name_and_files(tmp_path: Path) -> None:
    listops = write(tmp_path / "lra" / "listops", "listops")
    large = write(tmp_path / "lra" / "pathfinder128", "pathx", pixels=16384)
    small = write(tmp_path / "lra" / "pathfinder", "pathfinder32")
    assert find_processed(LISTOPS, tmp_path) == listops == find_processed(LISTOPS, listops)
    assert find_processed(PATHFINDER, tmp_path) == small and find_processed(PATHX, tmp_path) == large


BYTES = [str(byte) for byte in range(96)]
MADE: Dict[str, Dict[str, Any]] = {  # data by the name of a recipe's data set: how the folders of each are filled
    "listops": {},
    "imdb": {"tokens": BYTES, "labels": 2},
    "aan": {"tokens": BYTES, "labels": 2},
    "cifar10": {},
    "pathfinder32": {},
    "pathx": {"pixels": 16384},
}


@pytest.mark.parametrize(
    ("task", "there", "expected"),
    [
        ("text", {"text/aan": "aan", "text/imdb": "imdb"}, "text/imdb"),
        ("retrieval", {"text/aan": "aan", "text/imdb": "imdb"}, "text/aan"),
        ("image", {"images/cifar10": "cifar10", "images/pathfinder32": "pathfinder32"}, "images/cifar10"),
        ("pathfinder", {"pathfinder/pathfinder128": "pathx"}, None),
        ("listops", {"listops_a": "listops", "listops_b": "listops"}, None),
    ],
)
def test_no_folder_is_taken_for_another(
    task: str, there: Dict[str, str], expected: Optional[str], tmp_path: Path
) -> None:
    recipe = catalogue()[f"mega/table2/{task}/mega"]
    for folder, data in there.items():
        write(tmp_path / folder, data, **MADE[data])
    if expected is None:
        with pytest.raises(RecipeError, match="--processed: "):
            find_processed(recipe, tmp_path)
    else:
        assert find_processed(recipe, tmp_path) == tmp_path / expected


def test_what_our_command_made_is_refused(tmp_path: Path) -> None:
    (write(tmp_path / "listops", "listops") / "SOURCE.json").write_text("{}")
    with pytest.raises(RecipeError, match="card.json .*--data"):
        find_processed(LISTOPS, tmp_path)


def test_other_vocabularies_labels_and_lengths_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a" / "listops", "listops", tokens=TOKENS[:-1], labels=9)
    with pytest.raises(RecipeError, match="9 labels.* 10"):
        find_processed(LISTOPS, tmp_path / "a")
    write(tmp_path / "b" / "pathfinder32", "pathfinder32", pixels=1023)
    with pytest.raises(RecipeError, match="input/train.src .*1024 pixels"):
        find_processed(PATHFINDER, tmp_path / "b")


def test_the_list_knows_what_was_done_with_them(tmp_path: Path) -> None:
    """A file beside those that are read belongs to the data that the runner compares."""
    (write(tmp_path / "lra" / "listops", "listops") / "README").touch()
    choices = Choices(tmp_path / "out", processed=tmp_path / "lra")
    (run,) = jobs_of([LISTOPS], [1], choices, prepare_all([LISTOPS], choices))
    run.folder.mkdir(parents=True)
    (run.folder / "train.log").touch()
    assert "0 of 1 seeds" in "\n".join(listing([LISTOPS], [1], choices, everything=True))


def pack(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as container:
        for file in sorted(folder.rglob("*")):
            container.write(file, file.relative_to(folder))


def test_an_archive_is_fetched_unpacked_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "made" / "listops", "listops")
    pack(tmp_path / "made", tmp_path / "lra.zip")
    archives = tmp_path / "archives"
    words = ["table2/listops/mega", "--processed", (tmp_path / "lra.zip").as_uri(), "--archives", str(archives)]
    words += ["--gpus", "0", "--launcher", "print", "--out", str(tmp_path / "out")]
    assert main(words) == 0, capsys.readouterr().err
    assert (archives / "processed" / "lra" / "listops" / "src-bin" / "dict.txt").exists()
    (tmp_path / "lra.zip").unlink()
    (archives / "lra.zip").unlink()
    assert main(words) == 0  # neither is needed any more
    for path in (archives / "processed" / "lra" / "listops" / "src-bin").iterdir():
        path.unlink()
    assert main(words) == 1
    assert "src-bin/dict.txt" in capsys.readouterr().err
