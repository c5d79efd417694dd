"""fairseq-mega-prepare for images: CIFAR-10 and Pathfinder."""

import hashlib
import io
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
import torch
from PIL import Image

from fairseq_mega.lab.prepare.classification import images as arena
from tests.support.prepare_runs import image_labels, images, prepare, source_of, write_archive

# --- CIFAR-10


def batches(per_batch: int) -> Dict[str, Dict[bytes, Any]]:
    draw = np.random.default_rng(2)
    found: Dict[str, Dict[bytes, Any]] = {}
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        data = draw.integers(0, 256, (per_batch, 3072), dtype=np.uint8)
        labels = draw.integers(0, 10, per_batch).tolist()
        found[name] = {b"data": data, b"labels": labels, b"batch_label": b"x"}
    return found


def write_cifar(path: Path, contents: Dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(path, {f"cifar-10-batches-py/{name}": pickle.dumps(batch, 2) for name, batch in contents.items()})
    digests = {"md5": hashlib.md5(path.read_bytes()).hexdigest()}
    monkeypatch.setattr(arena, "CIFAR_ARCHIVE", arena.CIFAR_ARCHIVE._replace(digests=digests))


def test_the_archive_becomes_grey_images_in_the_split_of_the_authors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, contents = tmp_path / "cifar-10-python.tar.gz", batches(20)
    write_cifar(path, contents, monkeypatch)
    prepare("cifar10", "--out", tmp_path / "out", "--archive", path).succeeded()
    colour = np.concatenate([contents[f"data_batch_{n}"][b"data"] for n in range(1, 6)]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([contents[f"data_batch_{n}"][b"labels"] for n in range(1, 6)])
    order = torch.randperm(100, generator=torch.Generator().manual_seed(42)).numpy()
    for split, numbers in (("train", order[:90]), ("valid", order[90:])):
        wanted = [np.asarray(Image.fromarray(c.transpose(1, 2, 0), "RGB").convert("L")) for c in colour[numbers]]
        assert np.array_equal(images(tmp_path / "out", split), np.stack(wanted).reshape(-1, 1024))
        assert image_labels(tmp_path / "out", split) == labels[numbers].tolist()
    assert image_labels(tmp_path / "out", "test") == contents["test_batch"][b"labels"]
    source = source_of(tmp_path / "out")
    assert source["splits"]["train"]["examples"] == 90 and source["splits"]["train"]["pixels"] == 1024
    assert sum(source["splits"]["test"]["labels"].values()) == 20


# --- Pathfinder


class Drawing:
    """Stands in for the generator, which other tests are about: image n holds n; breaks off when told."""

    def __init__(self) -> None:
        self.drawn: List[int] = []
        self.breaks_at = -1

    def __call__(self, rules: Any, first: int, end: int, seed: int, workers: int) -> Iterator[Tuple[np.ndarray, int]]:
        for number in range(first, end):
            if number == self.breaks_at:
                raise KeyboardInterrupt
            self.drawn.append(number)
            image = np.full((32, 32), 0, dtype=np.uint8)
            image[0, :3] = divmod(number, 100) + (seed,)
            yield image, number % 2


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Drawing:
    drawing = Drawing()
    monkeypatch.setattr(arena, "generate_pathfinder", drawing)
    return drawing


def test_an_interrupted_run_goes_on_where_it_stopped(drawing: Drawing, tmp_path: Path) -> None:
    options = ("pathfinder32", "--count", 45, "--out")
    drawing.breaks_at = 30
    run = prepare(*options, tmp_path / "a")
    assert run.status == 130 and "start it again to continue" in run.output
    assert not (tmp_path / "a" / "card.json").exists()
    drawn = tmp_path / "a" / "unfinished" / "parts" / "images"
    drawn.write_bytes(drawn.read_bytes()[:-5])  # what a kill amidst an image leaves
    drawing.breaks_at = -1
    drawing.drawn.clear()
    assert "29 images were drawn before" in prepare(*options, tmp_path / "a").succeeded().output
    assert drawing.drawn == list(range(29, 45))
    prepare(*options, tmp_path / "b").succeeded()
    assert source_of(tmp_path / "a")["files"] == source_of(tmp_path / "b")["files"]


def test_released_images_come_in_the_order_of_their_tables(tmp_path: Path) -> None:
    """Tables 0 .. 12 have two lines each; their images hold their numbers."""
    members: Dict[str, bytes] = defaultdict(bytes)
    for number in range(25):
        (table, place), picture, packed = divmod(number, 2), np.full((32, 32), number, np.uint8), io.BytesIO()
        picture[-1, -1] = 255
        Image.fromarray(picture, "L").save(packed, "PNG")
        folder = "lra_release/pathfinder32/curv_contour_length_14"
        members[f"{folder}/imgs/{table}/sample_{place}.png"] = packed.getvalue()
        row = f"imgs/{table} sample_{place}.png {place} {number % 2} 1.0 14 4 2 0.5 1 1\n"
        members[f"{folder}/metadata/{table}.npy"] += row.encode()
    write_archive(tmp_path / "lra_release.gz", members)
    order, out = torch.randperm(25, generator=torch.Generator().manual_seed(42)).tolist(), tmp_path / "out"
    prepare("pathfinder32", "--out", out, "--released", "--archives", tmp_path).succeeded()
    for split, numbers in (("train", order[:20]), ("valid", order[20:22]), ("test", order[22:])):
        assert images(out, split)[:, 0].tolist() == numbers
        assert image_labels(out, split) == [number % 2 for number in numbers]
    assert source_of(out)["inputs"]["metadata"]["images"] == 25
