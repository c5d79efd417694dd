"""The released archive of the Long Range Arena: each task takes its part."""

from contextlib import nullcontext
from pathlib import Path
from typing import Dict

import pytest

from fairseq_mega.lab.prepare.archives import unpack_part
from fairseq_mega.lab.prepare.classification.images import PARTS
from fairseq_mega.lab.prepare.classification.texts import PAIRS, TREES
from fairseq_mega.lab.prepare.download import DownloadError
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import binarised, byte_texts, labels, prepare, refusal, write_archive

ROWS = "( ( ( [MAX 2 ) 9 ) ] )\t9\n( ( ( ( [SM 5 ) 6 ) 3 ) ] )\t4\n7\t7\n"
SPLITS = {"train": "train", "eval": "valid", "test": "test"}
TABLES = {
    **{
        f"tsv_data/new_aan_pairs.{split}.tsv": "".join(
            f"{n % 2}.0\tid{n}\tidx\tb'{split} {n}, eval or test'\tb'two \\xc3'\n" for n in range(6)
        )
        for split in SPLITS
    },
    **{f"listops-1000/basic_{split}.tsv": f"Source\tTarget\n{ROWS}" for split in ("train", "val", "test")},
}
READ = [["[MAX", "2", "9", "X"], ["[SM", "5", "6", "3", "X"], ["7"]]
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
    for part, count in ((TREES, 3), (PAIRS, 3), (PARTS[32], 2), (PARTS[128], 0)):
        out = tmp_path / "out" / part.folder
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
def test_from_the_archive_to_the_data(tmp_path: Path) -> None:
    """Retrieval and ListOps are made of it, which is not fetched."""
    absent = refusal("listops", "--released", "--archives", tmp_path, "--no-download", "--out", tmp_path / "listops")
    assert "lra_release.gz does not exist" in absent
    write_released(tmp_path / "archives", TABLES)
    for dataset, table in (("aan", "new_aan_pairs.train.tsv"), ("listops", "basic_train.tsv")):
        words = [dataset, "--released", "--archives", tmp_path / "archives", "--no-download"]
        prepare(*words, "--out", tmp_path / dataset).succeeded()
        assert table in (tmp_path / dataset / "card.json").read_text()
    for split, ours in SPLITS.items():
        assert binarised(tmp_path / "listops" / "src-bin", ours) == READ
        assert labels(tmp_path / "listops", ours) == ["9", "4", "7"]
        assert byte_texts(tmp_path / "aan" / "src-bin", ours)[3] == f"b'{split} 3, eval or test'".encode()
        assert byte_texts(tmp_path / "aan" / "src1-bin", ours)[3] == b"b'two \\xc3'"
        assert labels(tmp_path / "aan", ours) == ["0", "1"] * 3
    dictionaries = [(tmp_path / "aan" / side / "dict.txt").read_bytes() for side in ("src-bin", "src1-bin")]
    assert dictionaries[0] == dictionaries[1]
    words = ["aan", "--released", "--archives", tmp_path / "archives", "--length", 4]
    prepare(*words, "--out", tmp_path / "few").succeeded()
    firsts = [byte_texts(tmp_path / "few" / side, "train") for side in ("src-bin", "src1-bin")]
    assert firsts == [[b"b'tr"] * 6, [b"b'tw"] * 6]
