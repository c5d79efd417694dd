"""--released: the archive of the Long Range Arena, of which each task takes its part; generated data stay apart."""

import io
import json
import tarfile
from pathlib import Path
from typing import Dict, List

import pytest

from fairseq_mega.lab.prepare import lra_archive
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import origin_of
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import refusal

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


def write_archive(folder: Path, members: Dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lra_release.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(f"lra_release/lra_release/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def files_of(folder: Path) -> List[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def part_of(dataset: str) -> lra_archive.Part:
    part = DATASETS[dataset].released
    assert part is not None
    return part


def test_each_task_takes_its_part(tmp_path: Path) -> None:
    archive = write_archive(tmp_path, {**TABLES, **OTHERS})
    for dataset, count in (("listops", 3), ("aan", 3), ("pathfinder32", 2)):
        out = tmp_path / "out" / dataset
        part = part_of(dataset)
        assert lra_archive.unpack(archive, part, out) == count == len(files_of(out))
        assert {name.split("/")[0] for name in files_of(out)} == {part.folder}
        assert not any("baseline" in name for name in files_of(out))
    with pytest.raises(DownloadError, match="holds no whole data of pathfinder128"):
        lra_archive.unpack(archive, part_of("pathx"), tmp_path / "out")
    tables = {name: text for name, text in TABLES.items() if not name.endswith("basic_val.tsv")}
    with pytest.raises(DownloadError, match="holds no whole data of listops"):
        lra_archive.unpack(write_archive(tmp_path / "part", tables), part_of("listops"), tmp_path / "part")
    archive.write_bytes(archive.read_bytes()[:-30])
    message = refusal("aan", "--released", "--archives", tmp_path, "--out", tmp_path / "cut")
    assert "lra_release.gz cannot be unpacked" in message
    assert not (tmp_path / "cut").exists()  # read to its end before anything is taken out of it


@pytest.mark.usefixtures("in_process")
def test_from_the_archive_to_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Retrieval and ListOps are made of it, ListOps beside the generated data; a result says where they come from."""
    write_archive(tmp_path / "archives", TABLES)
    words = ["table2/retrieval/mega", "table2/listops/mega", "--released", "--archives", str(tmp_path / "archives")]
    words += ["--gpus", "0", "--launcher", "print", "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path)]
    assert main([*words, "--no-download"]) == 0, capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if "." not in path.name) == [
        "listops-released",
        "retrieval",
    ]
    for name in ("listops-released", "retrieval"):
        run = plan(catalogue()["mega/table2/listops/mega"], 1, tmp_path / "data" / name, "", Choices(tmp_path))
        assert origin_of(run) == "released"
    source = json.loads((tmp_path / "data" / "retrieval" / "card.json").read_text())
    assert "new_aan_pairs.train.tsv" in json.dumps(source)


def test_what_cannot_be_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["table2/listops/mega", "--gpus", "0", "--released", "--out", str(tmp_path)]
    assert main([*words, "--data-dir", str(tmp_path), "--no-download"]) == 1
    said = capsys.readouterr().err
    assert "archives/lra_release.gz does not exist" in said
    generated = tmp_path / "generated"
    for name in ("src-bin", "label-bin"):
        (generated / name).mkdir(parents=True)
        for file in ("dict.txt", *(f"{split}.{end}" for split in ("train", "valid", "test") for end in ("bin", "idx"))):
            (generated / name / file).touch()
    (generated / "SOURCE.json").write_text('{"origin": "generated by the rules"}')
    assert main([*words, "--data", str(generated)]) == 1
    assert "--released" in capsys.readouterr().err
    assert main(["table2/retrieval/mega", "--gpus", "0", "--out", str(tmp_path), "--data-dir", str(tmp_path)]) == 1
    assert "--released" in capsys.readouterr().err
