"""--processed URL: archives are fetched, unpacked once, and checked as a folder is."""

import zipfile
from pathlib import Path

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce import authors_archives
from fairseq_mega.lab.reproduce.authors_archives import addresses
from fairseq_mega.lab.reproduce.command import main
from tests.reproduce.test_authors_data import write


def pack(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as container:
        for file in sorted(folder.rglob("*")):
            container.write(file, file.relative_to(folder))


def test_published_addresses() -> None:
    """facebookresearch/mega, examples/mega: README.lra.md, README.sc.md and README.lm.md."""
    names = ["table2/listops/mega", "table2/pathx/mega", "table4/speech/base", "table5"]
    recipes = [recipe for name in names for recipe in find(name)]
    assert addresses(recipes, "published") == [
        f"https://dl.fbaipublicfiles.com/mega/data/{name}"
        for name in ("lra.zip", "speech_commands.zip", "wt103_data_bin.zip", "enwik8_data_bin.zip")
    ]
    assert addresses(recipes, "https://host/own.zip") == ["https://host/own.zip"]
    with pytest.raises(RecipeError, match="mega/table7"):
        addresses([catalogue()["mega/table7/en-de/mega_softmax"]], "published")


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
    assert "lacks src-bin/dict.txt" in capsys.readouterr().err


def test_archives_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged one, one that does not fit on the disk, and one that must not be fetched leave nothing unpacked."""
    archives = tmp_path / "archives"
    words = ["table2/listops/mega", "--archives", str(archives), "--gpus", "0", "--out", str(tmp_path / "out")]
    assert main([*words, "--processed", "published", "--no-download"]) == 1
    assert "--no-download" in capsys.readouterr().err
    archives.mkdir()
    (archives / "lra.zip").write_bytes(b"no archive")
    assert main([*words, "--processed", "published"]) == 1
    assert "lra.zip cannot be unpacked: " in capsys.readouterr().err
    write(tmp_path / "made" / "listops", "listops")
    pack(tmp_path / "made", archives / "lra.zip")
    used = authors_archives.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(authors_archives.shutil, "disk_usage", lambda folder: used._replace(free=10))
    assert main([*words, "--processed", "published"]) == 1
    assert "and 0.0 GB are free in " in capsys.readouterr().err
    assert not (archives / "processed" / "lra").exists()
