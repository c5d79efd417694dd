"""Images in a folder per class: which are read, in which order, and as which pixels."""

import io
import pickle
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest
from PIL import Image

from fairseq_mega.data.image_folder import ImageFolder, check_same_classes, read_image, split_folder

SHADES = np.round(np.arange(64).reshape(8, 8) * 255 / 63).astype(np.uint8)
WIDE = (np.arange(64).reshape(8, 8) * 65535 // 63).astype(np.uint16)


def saved(image: Any, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(stream, form, **options)
    return stream.getvalue()


def of_mode(mode: str, form: str = "PNG") -> bytes:
    return saved(Image.fromarray(SHADES).convert(mode), form)


READ: Dict[str, Callable[[], bytes]] = {
    "grey with transparency": lambda: of_mode("LA"),
    "colours with transparency": lambda: of_mode("RGBA"),
    "palette": lambda: of_mode("P"),
    "palette with transparency": lambda: saved(
        Image.fromarray(SHADES).convert("RGB").quantize(64), "PNG", transparency=bytes([255] * 64)
    ),
    "the first of two frames": lambda: saved(
        SHADES, "GIF", save_all=True, append_images=[Image.fromarray(SHADES // 2)]
    ),
    "CMYK": lambda: saved(Image.fromarray(SHADES).convert("CMYK"), "JPEG", quality=100, subsampling=0),
    "colours of 16 bits": lambda: b"P6 8 8 65535\n" + WIDE.repeat(3).astype(">u2").tobytes(),
}


@pytest.mark.parametrize("name", READ)
def test_pixels_become_rgb_of_8_bits(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(READ[name]())
    image = read_image(tmp_path / "picture")
    assert image.mode == "RGB"
    assert abs(np.asarray(image).astype(int) - SHADES[..., None]).max() <= (2 if name == "CMYK" else 1)


REFUSED: Dict[str, Callable[[], bytes]] = {
    "grey PNG of 16 bits": lambda: saved(WIDE, "PNG"),
    "grey pixmap of 16 bits": lambda: b"P5 8 8 65535\n" + WIDE.astype(">u2").tobytes(),
    "nothing but transparent": lambda: saved(np.stack([SHADES] * 3 + [np.zeros((8, 8), np.uint8)], axis=-1), "PNG"),
    "a first frame of one colour": lambda: saved(
        0 * SHADES, "GIF", save_all=True, append_images=[Image.fromarray(SHADES)]
    ),
    "cut off": lambda: of_mode("RGB", "JPEG")[:-200],
    "a page": lambda: b"%PDF-1.7\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(REFUSED[name]())
    with pytest.raises(ValueError, match=r"/picture\.png"):
        read_image(tmp_path / "picture.png")


def test_what_is_transparent_lies_over_white(tmp_path: Path) -> None:
    rows = np.zeros((8, 8, 4), dtype=np.uint8)
    rows[2:4, :, 3] = 255
    (tmp_path / "x.png").write_bytes(saved(rows, "PNG"))
    found = np.asarray(read_image(tmp_path / "x.png"))[..., 0]
    assert found[2:4].max() == 0 and found[:2].min() == found[4:].min() == 255


def test_pictures_are_upright(tmp_path: Path) -> None:
    stored = Image.fromarray(SHADES[:4]).transpose(Image.Transpose.ROTATE_90)  # on its side, as a camera is held
    exif = Image.Exif()
    exif[0x0112] = 6
    stored.save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(np.asarray(read_image(tmp_path / "x.png"))[..., 0], SHADES[:4])


def test_classes_and_images_are_sorted(tmp_path, caplog):
    """Files are read by their endings, also in capitals; others are counted aloud."""
    for name in ("b/2.png", "b/10.PNG", "a/é x.JPEG", "c/z.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (3, 2), (len(name), 0, 0)).save(tmp_path / name)
    (tmp_path / "a" / "notes.txt").touch()
    folder = pickle.loads(pickle.dumps(ImageFolder(tmp_path)))
    assert folder.classes == ["a", "b", "c"] and folder.labels.tolist() == [0, 1, 1, 2] and len(folder) == 4
    found = [folder.path(index).relative_to(tmp_path).as_posix() for index in range(4)]
    assert found == ["a/é x.JPEG", "b/10.PNG", "b/2.png", "c/z.jpg"]
    assert folder[1].size == (3, 2) and np.array(folder[1])[0, 0].tolist() == [len("b/10.PNG"), 0, 0]
    (message,) = caplog.messages
    assert "1 .txt" in message


@pytest.mark.parametrize("files", [[], ["a/1.png", "b/.2.png"]])
def test_a_folder_without_classes_or_a_class_without_images_is_refused(files, tmp_path):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=str(tmp_path)):
        ImageFolder(tmp_path)


def test_other_classes_are_refused(tmp_path):
    for name in ("train/a", "train/b", "val/a", "val/c", "same/b", "same/a"):
        (tmp_path / name).mkdir(parents=True)
    check_same_classes(tmp_path / "train", tmp_path / "same")
    assert split_folder(tmp_path, "valid") == tmp_path / "val"
    with pytest.raises(ValueError, match="b, c"):
        check_same_classes(tmp_path / "train", tmp_path / "val")
