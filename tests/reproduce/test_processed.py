"""Archives of the authors and of the benchmark: each task takes its part; a folder of other contents is refused."""

import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare.archives import unpack_part
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.generators.listops import TOKENS
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.authors_data import find_processed
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import data_of
from fairseq_mega.lab.reproduce.listing import listing
from fairseq_mega.lab.reproduce.runner import jobs_of
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import refusal, write_archive

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


BYTES = [str(byte) for byte in range(96)]
MADE: Dict[str, Dict[str, Any]] = {  # data by the name of a recipe's data set: how the folders of each are filled
    "listops": {},
    "cifar10": {},
    "pathfinder32": {},
    "pathx": {"pixels": 16384},
    **{name: {"tokens": BYTES, "labels": 2} for name in ("imdb", "aan")},
}
FOUND = [  # a task, the folders there with their data, and the one that is found
    ("text", {"text/aan": "aan", "text/imdb": "imdb"}, "text/imdb"),
    ("retrieval", {"text/aan": "aan", "text/imdb": "imdb"}, "text/aan"),
    ("image", {"images/cifar10": "cifar10", "images/pathfinder32": "pathfinder32"}, "images/cifar10"),
    ("pathx", {"pathfinder": "pathfinder32", "pathfinder128": "pathx"}, "pathfinder128"),
    ("pathfinder", {"pathfinder/pathfinder128": "pathx"}, None),
    ("listops", {"listops_a": "listops", "listops_b": "listops"}, None),
]


@pytest.mark.parametrize(("task", "there", "expected"), FOUND)
def test_no_folder_is_taken_for_another(
    task: str, there: Dict[str, str], expected: Optional[str], tmp_path: Path
) -> None:
    for folder, data in there.items():
        write(tmp_path / folder, data, **MADE[data])
    with nullcontext() if expected else pytest.raises(RecipeError, match="--processed"):
        assert find_processed(catalogue()[f"mega/table2/{task}/mega"], tmp_path) == tmp_path / str(expected)


def test_other_contents_are_refused(tmp_path: Path) -> None:
    """Other labels, other images, and data of our own command."""
    write(tmp_path / "a" / "listops", "listops", tokens=TOKENS[:-1], labels=9)
    write(tmp_path / "b" / "pathfinder32", "pathfinder32", pixels=1023)
    (write(tmp_path / "c" / "listops", "listops") / "SOURCE.json").write_text("{}")
    for name, recipe, said in (("a", LISTOPS, "9 labels"), ("b", PATHFINDER, "1024 pixels"), ("c", LISTOPS, "--data")):
        with pytest.raises(RecipeError, match=said):
            find_processed(recipe, tmp_path / name)


def test_the_list_knows_what_was_done_with_them(tmp_path: Path) -> None:
    """A file beside those that are read belongs to the data that the runner compares."""
    (write(tmp_path / "lra" / "listops", "listops") / "README").touch()
    choices = Choices(tmp_path / "out", processed=tmp_path / "lra")
    (run,) = jobs_of([LISTOPS], [1], choices, data_of([LISTOPS], choices))
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


TABLES = {
    **{
        f"tsv_data/new_aan_pairs.{split}.tsv": "".join(f"{n % 2}.0\t{n}\t{n}\tb'one {n}'\tb'two'\n" for n in range(6))
        for split in ("train", "eval", "test")
    },
    **{
        f"listops-1000/basic_{split}.tsv": "Source\tTarget\n" + "( ( ( [MAX 2 ) 9 ) ] )\t9\n" * 3
        for split in ("train", "val", "test")
    },
}
OTHERS = {
    "pathfinder32/curv_contour_length_14/metadata/0.npy": "imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1\n",
    "pathfinder32/curv_contour_length_14/imgs/0/sample_0.png": "pixels",
    "pathfinder32/curv_baseline/imgs/0/sample_172.png": "",
    "listops-1000/../../../outside.tsv": "no",
    "tsv_data/notes.txt": "no",
}


def write_released(folder: Path, members: Dict[str, str]) -> Path:
    contents = {f"lra_release/lra_release/{name}": text.encode() for name, text in members.items()}
    return write_archive(folder / "lra_release.gz", contents)


def test_each_task_takes_its_part(tmp_path: Path) -> None:
    archive = write_released(tmp_path, {**TABLES, **OTHERS})
    for dataset, count in (("listops", 3), ("aan", 3), ("pathfinder32", 2), ("pathx", 0)):
        out, part = tmp_path / "out" / dataset, DATASETS[dataset].released
        assert part is not None
        with nullcontext() if count else pytest.raises(DownloadError, match="no whole data of pathfinder128"):
            assert unpack_part(archive, part, out) == count
        files = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
        assert len(files) == count and all(file.parts[0] == part.folder for file in files)
        assert not any("baseline" in str(file) for file in files)
    archive.write_bytes(archive.read_bytes()[:-30])
    message = refusal("aan", "--released", "--archives", tmp_path, "--out", tmp_path / "cut")
    assert "lra_release.gz" in message
    assert not (tmp_path / "cut").exists()  # read to its end before anything is taken out of it


@pytest.mark.usefixtures("in_process")
def test_from_the_archive_to_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Retrieval and ListOps are made of it, ListOps beside the generated data."""
    write_released(tmp_path / "archives", TABLES)
    words = ["table2/retrieval/mega", "table2/listops/mega", "--released", "--archives", str(tmp_path / "archives")]
    words += ["--gpus", "0", "--launcher", "print", "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path)]
    assert main([*words, "--no-download"]) == 0, capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if "." not in path.name) == [
        "listops-released",
        "retrieval",
    ]
    assert "new_aan_pairs.train.tsv" in (tmp_path / "data" / "retrieval" / "card.json").read_text()


def test_a_missing_archive_and_generated_data_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["table2/listops/mega", "--gpus", "0", "--released", "--out", str(tmp_path)]
    assert main([*words, "--data-dir", str(tmp_path), "--no-download"]) == 1
    assert "archives/lra_release.gz does not exist" in capsys.readouterr().err
    generated = write(tmp_path / "generated", "listops")
    (generated / "SOURCE.json").write_text('{"origin": "generated by the rules"}')
    assert main([*words, "--data", str(generated)]) == 1
    assert "--released" in capsys.readouterr().err
