"""fairseq-mega-prepare for images: grey pixels; Pathfinder, an interrupted run, and the released images."""

import io
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
import torch
from PIL import Image

from fairseq_mega.lab.prepare.classification import images as arena
from tests.support.prepare_runs import image_labels, images, prepare, source_of, write_archive


def test_grey_is_pils() -> None:
    colour = np.random.default_rng(2).integers(0, 256, (9, 3, 8, 8), dtype=np.uint8)
    wanted = [np.asarray(Image.fromarray(image.transpose(1, 2, 0), "RGB").convert("L")) for image in colour]
    assert np.array_equal(arena.grey(colour), np.stack(wanted))


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
