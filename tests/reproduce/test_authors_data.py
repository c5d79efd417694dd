"""--processed: the folder of a task is found by its files, and refused where its vocabulary or labels are others."""

from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare.generators.listops.language import SYMBOLS
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.authors_data import find_processed
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.listing import listing
from fairseq_mega.lab.reproduce.runner import prepare_all, runs_of

LISTOPS, PATHFINDER, PATHX = (catalogue()[f"mega/table2/{task}/mega"] for task in ("listops", "pathfinder", "pathx"))


def write(folder: Path, data: str, symbols: Sequence[str] = SYMBOLS, labels: int = 10, pixels: int = 1024) -> Path:
    for name in DATASETS[data].layout.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "1\n"
        if name.startswith("input"):
            text = " ".join(["7"] * pixels) + "\n"
        elif name.endswith(".label"):
            text = "".join(f"{label}\n" for label in range(2 if "path" in data else labels))
        elif name.endswith("dict.txt"):
            words = list(map(str, range(labels))) if "label" in name else [*symbols, "madeupword0000"]
            text = "".join(f"{word} 1\n" for word in words)
        path.write_text(text)
    return folder


def test_folders_are_known_by_name_and_files(tmp_path: Path) -> None:
    listops = write(tmp_path / "lra" / "listops", "listops")
    large = write(tmp_path / "lra" / "pathfinder128", "pathx", pixels=16384)
    small = write(tmp_path / "lra" / "pathfinder", "pathfinder32")
    assert find_processed(LISTOPS, tmp_path) == listops == find_processed(LISTOPS, listops)
    assert find_processed(PATHFINDER, tmp_path) == small and find_processed(PATHX, tmp_path) == large
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "data").symlink_to(tmp_path / "lra")
    assert find_processed(LISTOPS, tmp_path / "links") == tmp_path / "links" / "data" / "listops"


BYTES = [str(byte) for byte in range(96)]
MADE: Dict[str, Dict[str, Any]] = {  # data by the name of a recipe's data set: how the folders of each are filled
    "listops": {},
    "imdb": {"symbols": BYTES, "labels": 2},
    "aan": {"symbols": BYTES, "labels": 2},
    "cifar10": {},
    "pathfinder32": {},
    "pathx": {"pixels": 16384},
}


@pytest.mark.parametrize(
    ("task", "there", "expected"),
    [
        ("text", {"text/aan": "aan", "text/imdb": "imdb"}, "text/imdb"),
        ("text", {"lra_text/AAN": "aan"}, None),
        ("text", {"aan_text": "aan", "imdb_text": "imdb"}, None),
        ("text", {"text/data": "aan"}, None),
        ("text", {"wikitext": "imdb"}, None),
        ("text", {"retrieval/text": "imdb"}, "retrieval/text"),
        ("retrieval", {"text/aan": "aan", "text/imdb": "imdb"}, "text/aan"),
        ("image", {"images/pathfinder32": "pathfinder32"}, None),
        ("image", {"images/data": "pathfinder32"}, None),
        ("image", {"images/cifar10": "cifar10", "images/pathfinder32": "pathfinder32"}, "images/cifar10"),
        ("pathfinder", {"image/cifar": "cifar10", "image/pf32": "pathfinder32"}, "image/pf32"),
        ("pathfinder", {"pathfinder/pathfinder128": "pathx"}, None),
        ("pathx", {"pathfinder/128/pf128": "pathx", "pathfinder/32": "pathfinder32"}, "pathfinder/128/pf128"),
        ("listops", {"scratch/listops/fields": "listops"}, "scratch/listops/fields"),
        ("listops", {"listops/scans": "listops"}, "listops/scans"),
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
    write(tmp_path / "a" / "listops", "listops", symbols=SYMBOLS[:-1], labels=9)
    with pytest.raises(RecipeError, match="9 labels.* 10; src-bin/dict.txt.* 14 .*15"):
        find_processed(LISTOPS, tmp_path / "a")
    write(tmp_path / "b" / "pathfinder32", "pathfinder32", pixels=1023)
    with pytest.raises(RecipeError, match="input/train.src .*1024 pixels"):
        find_processed(PATHFINDER, tmp_path / "b")


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "listops", "listops")
    for path in (folder / "src-bin").iterdir():
        path.unlink()
    with pytest.raises(RecipeError, match=r"lacks src-bin/dict.txt, .*facebookresearch/mega#1"):
        find_processed(LISTOPS, tmp_path)
    with pytest.raises(RecipeError, match="pathx.*input/train.src"):
        find_processed(PATHX, tmp_path)
    options = ["--gpus", "0", "--out", str(tmp_path / "out")]
    assert main(["table2/listops/mega", "--processed", str(tmp_path / "absent"), *options]) == 1
    assert "absent is not a folder" in capsys.readouterr().err
    assert main(["mega/table7/en-de/mega_softmax", "--processed", str(tmp_path), *options]) == 1
    assert "mega/table7" in capsys.readouterr().err


def test_the_list_knows_what_was_done_with_them(tmp_path: Path) -> None:
    """A file beside those that are read belongs to the data that the runner compares."""
    (write(tmp_path / "lra" / "listops", "listops") / "README").touch()
    choices = Choices(tmp_path / "out", processed=tmp_path / "lra")
    (run,) = runs_of([LISTOPS], [1], choices, prepare_all([LISTOPS], choices))
    run.folder.mkdir(parents=True)
    (run.folder / "train.log").touch()
    assert "0 of 1 seeds" in listing([LISTOPS], [1], choices)[1]
