"""Fashion-MNIST, from the Debian package dataset-fashion-mnist: real images if CIFAR-10 cannot be obtained."""

import argparse
from pathlib import Path

import numpy as np

from fairseq_mega.lab.prepare.archives import read_packed
from fairseq_mega.lab.prepare.checksums import Records, records_of
from fairseq_mega.lab.prepare.classification.image_output import ImageSplit, write_image_task
from fairseq_mega.lab.prepare.classification.subsets import limited, note_on_limit
from fairseq_mega.lab.prepare.dataset import PICTURES, Dataset, Report
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.layouts import IMAGES
from fairseq_mega.lab.prepare.shared_options import add_limit, exactly_one, need_files
from fairseq_mega.lab.prepare.work_folder import WorkFolder

PACKAGE = "dataset-fashion-mnist"
FOLDER = Path("usr/share/datasets/fashion-mnist")
FILES = {
    "train images": "train-images-idx3-ubyte.gz",
    "train labels": "train-labels-idx1-ubyte.gz",
    "test images": "t10k-images-idx3-ubyte.gz",
    "test labels": "t10k-labels-idx1-ubyte.gz",
}
VALID = 5000
SIDE, BORDER, CLASSES = 28, 2, 10
_UNSIGNED_BYTES = 8  # the type code in the head of an idx file

DETAILS = """\
55000, 5000 and 10000 images of clothes in grey, 28 x 28 pixels in a black border of 2, which makes 32 x 32 = 1024 of
them. The published training set has 60000; its last 5000 are valid here. The package (31 MB, MIT licence) is fetched
with apt-get download and not installed; result 190 MB, under a minute on one core. Labels 0 to 9: T-shirt, trouser,
pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Fashion-MNIST."""
    parser.add_argument("--deb", type=Path, nargs="+", metavar="FILE", help=f"your copy of the package {PACKAGE}")
    parser.add_argument("--dir", type=Path, metavar="DIR", help=f"folder with {', '.join(FILES.values())}")
    add_limit(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    exactly_one(args, "--deb", "--dir")
    if args.dir is not None:
        need_files("--dir", *(args.dir / name for name in FILES.values()))


def read_idx(path: Path) -> np.ndarray:
    """Return the array of a packed or plain idx file of unsigned bytes; raise ValueError for other files.

    The head is two zero bytes, the type, the number of dimensions, and each of them as four bytes, highest first.
    """
    content = read_packed(path)
    head = 4 + 4 * content[3] if len(content) > 3 else 4
    if len(content) < head or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise ValueError(
            f"{path} is not an idx file of unsigned bytes: it begins with {content[:4].hex() or 'nothing'}"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=content[3], offset=4))
    expected = head + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise ValueError(f"{path}: expected {expected} bytes for {shape}, found {len(content)}; get a new copy")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def _read_part(folder: Path, part: str) -> ImageSplit:
    paths = [folder / FILES[f"{part} {kind}"] for kind in ("images", "labels")]
    images, labels = (read_idx(path) for path in paths)
    if images.shape[1:] != (SIDE, SIDE) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{paths[0]}: images (n, {SIDE}, {SIDE}) and n labels are needed, found {images.shape} and {labels.shape}"
        )
    if len(labels) and labels.max() >= CLASSES:
        raise ValueError(f"{paths[1]}: labels from 0 to {CLASSES - 1} are needed, found {labels.max()}")
    border = ((0, 0), (BORDER, BORDER), (BORDER, BORDER))
    return ImageSplit(np.pad(images, border), labels.astype(np.int64))


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the images, widen them to 32 x 32 and write them."""
    inputs: Records
    if args.dir is not None:
        folder = args.dir
        inputs = records_of(folder / name for name in FILES.values())
        origin = "files of Fashion-MNIST (--dir)"
    else:
        inputs = obtain_packages([PACKAGE], args.deb, work.raw, work.scratch)
        folder = work.scratch / FOLDER
        need_files(f"the package {PACKAGE} is of another version", *(folder / name for name in FILES.values()))
        origin = f"the Debian package {PACKAGE}"
    train, test = (_read_part(folder, part) for part in ("train", "test"))
    if len(train.labels) <= VALID:
        raise ValueError(f"{folder}: more than {VALID} images to train on are needed, found {len(train.labels)}")
    cut = len(train.labels) - VALID
    order = {"train": np.arange(cut), "valid": np.arange(cut, cut + VALID), "test": np.arange(len(test.labels))}
    splits = {}
    for split, which in limited(order, args.limit).items():
        part = test if split == "test" else train
        splits[split] = ImageSplit(np.asarray(part.images)[which], part.labels[which])
    notes = [f"28 x 28 pixels in a black border of {BORDER}", f"valid: the last {VALID} images of the training set"]
    return Report(origin, write_image_task(work.output, splits), inputs, notes + note_on_limit(args.limit))


DATASET = Dataset(
    "fashion-mnist",
    PICTURES,
    "clothes in grey, from a Debian package",
    DETAILS,
    add_options,
    check,
    make,
    members={"dir": tuple(FILES.values())},
    layout=IMAGES,
)
