"""Labelled examples of your own: tables of texts, and folders of images and recordings with a folder for each label.

Each split is read or held out of train, a share of every label; its examples are read by a library, and written in
the layout of their task.
"""

import argparse
import csv
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.compat.files.card import RATE as RATE_ENTRY
from fairseq_mega.data.card import kept_bytes, settings_of_data
from fairseq_mega.data.class_folders import FileKind, class_files, listed
from fairseq_mega.data.clip_scale import FILE_NAME, ClipScale
from fairseq_mega.data.image_folder import PICTURES, read_image
from fairseq_mega.data.text_units import own_tokens
from fairseq_mega.lab.prepare.archives import decoded_lines
from fairseq_mega.lab.prepare.classification.sounds import FOLDER, RATE, SOUNDS, fitted, read_sound, save_clips
from fairseq_mega.lab.prepare.classification.texts import (
    BYTE_TOKENS,
    byte_note,
    byte_split,
    dictionaries_of,
    write_text_task,
)
from fairseq_mega.lab.prepare.dataset import Dataset, Report, counted
from fairseq_mega.lab.prepare.download import records_of, sha256_of
from fairseq_mega.lab.prepare.layouts import CLIPS, TEXTS, TRAIN_AND_VALID
from fairseq_mega.lab.prepare.options import LENGTH, SEED, folder_option, number_option, sources
from fairseq_mega.lab.prepare.progress import SPLITS, follow, print_line, print_overlap
from fairseq_mega.lab.prepare.sentencepieces import RESERVED
from fairseq_mega.lab.prepare.work_folder import WorkFolder

STEP = 1000  # lengths of clips are multiples of the chunk of the paper's models
COLUMNS = ("label", "text")
LIKE = "earlier output of this command, the data of a classifier: use its"

TEXT_DETAILS = """\
Tables in UTF-8 whose first line names the columns, a label and a text among them (label,text): CSV, or columns that
TABs separate in files .tsv, where a line is a row and quotes are characters; also with .gz. Without --valid, a tenth of
every label of --train is held out for it; likewise for --test. 1 MB of text becomes 2 MB of data. --like makes further
tables that a trained classifier is scored or trained on with them. Classify new texts with fairseq-mega-classify."""
IMAGE_DETAILS = """\
--train holds a folder per label, DIR/LABEL/FILE. Writes train/LABEL/FILE, valid/LABEL/FILE and test/LABEL/FILE for
--task image-classification, as hard links or, between file systems, copies: without --valid a tenth of the images of
every label, at least one, is held out for it, and as many for test without --test. Other files are counted and omitted;
a label without images, an image that cannot be decoded, and a grey one of more than 8 bits are errors. A folder that
has train/ and valid/ already needs no preparation."""
SOUND_DETAILS = f"""\
--train holds a folder per label, DIR/LABEL/NAME.wav: one channel at {RATE} Hz, in WAV, FLAC, Ogg, MP3, AIFF or what
else the library soundfile reads (extra speech); without it 16-bit WAV alone. Other files are counted and ignored; a
label without recordings is an error. Clips are filled with silence to the length of the longest, rounded up to {STEP}
samples, or to that of --like; longer clips are cut. Without --valid and --test 15 % of the clips of every label, at
least one, are held out for each. The samples are standardised with one mean and deviation, those of train or of --like.
1000 clips of one second become 64 MB of data. Classify new recordings with fairseq-mega-classify."""


class Example(NamedTuple):
    """A text as bytes, or the file of an image or recording, and its label."""

    content: Any
    label: str


Parts = Dict[str, List[Example]]  # by split


def read_splits(
    train: Path,
    args: argparse.Namespace,
    read: Callable[[Path], List[Example]],
    share: float,
    key: Callable[[Any], Any],
    labels: Optional[Sequence[str]] = None,
) -> Tuple[Parts, List[str], List[str]]:
    """Read the examples of each split, or hold a share of every label of train out for it.

    Args:
        key: returns what distinguishes two examples, by their content.
        labels: of a trained classifier, in its order; by default the sorted labels of train.

    Returns:
        The examples of each split, the labels, and the splits that are held out.

    Raises:
        ValueError: for a label that train or the classifier lacks.
    """
    paths = {split: path for split, path in zip(SPLITS, (train, args.valid, args.test)) if path is not None}
    parts = {split: read(path) for split, path in paths.items()}
    labels = labels or sorted({example.label for example in parts["train"]})
    for split, examples in parts.items():
        unknown = sorted({example.label for example in examples}.difference(labels))
        if unknown:
            raise ValueError(f"{paths[split]} has labels that train or --like lacks: {listed(unknown)}")
    missing = [split for split in SPLITS if split not in parts]
    if missing:
        numbers = np.array([labels.index(example.label) for example in parts["train"]])
        rows = stratified_split(numbers, dict.fromkeys(missing, share), labels)
        parts.update({split: [parts["train"][row] for row in which] for split, which in rows.items()})
    print_overlap({split: [key(example.content) for example in parts[split]] for split in SPLITS}, "examples")
    return {split: parts[split] for split in SPLITS}, list(labels), missing


def stratified_split(labels: np.ndarray, held_out: Dict[str, float], names: Sequence[str]) -> Dict[str, np.ndarray]:
    """Hold out a share of the examples of every label, at least one, for each named split; the rest is train.

    Args:
        labels: (n,) integers from 0, with these names; each has examples.

    Returns:
        For each split the indices of its examples in random order, (m,) int64.

    Raises:
        ValueError: if a label has too few examples for one in each split.
    """
    draw = np.random.default_rng(SEED)
    parts: Dict[str, List[np.ndarray]] = {split: [] for split in ("train", *held_out)}
    counts = np.bincount(labels)
    few = [f"{name!r} has {count}" for name, count in zip(names, counts) if 0 < count <= len(held_out)]
    if few:
        raise ValueError(
            f"labels with too few examples: {listed(few)}; {len(held_out) + 1} of each are needed to hold one out for "
            f"{' and '.join(held_out)}"
        )
    for label in np.flatnonzero(counts):
        rows = draw.permutation(np.flatnonzero(labels == label))
        for split, share in held_out.items():
            part, rows = np.split(rows, [max(1, int(share * counts[label]))])
            parts[split].append(part)
        parts["train"].append(rows)
    return {split: draw.permutation(np.concatenate(rows)) for split, rows in parts.items()}


def note_held_out(missing: List[str], how: str) -> List[str]:
    """Return the note in card.json on the splits that are held out."""
    return [f"{' and '.join(missing)}: {how}"] if missing else []


# --- Texts


def length_of(args: argparse.Namespace) -> Dict[str, int]:
    """Return --length by its name; where it is not passed, that of --like, whose texts must have been cut alike."""
    like = None if args.like is None else kept_bytes(settings_of_data(args.like))
    if like is not None and like != (args.length or like[0], False):
        which = "last" if like[1] else "first"
        raise ValueError(f"--length is {args.length}, and --like {args.like} has the {which} {like[0]} bytes of a text")
    return {"length": args.length or (LENGTH if like is None else like[0])}


def read_texts(path: Path) -> List[Example]:
    """Return the texts of a table in UTF-8, plain or gzip; of a file .tsv a row is a line, with quotes as characters.

    Raises ValueError that names the line that is not UTF-8, has another number of columns, no label or no text, or is
    not CSV.
    """
    tabs = path.name.lower().split(".gz")[0].endswith(".tsv")
    form: Dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
    rows: Any = csv.DictReader(decoded_lines(path), strict=True, **form)
    found: List[Example] = []
    try:
        columns = list(rows.fieldnames or ())
        if any(columns.count(column) != 1 for column in COLUMNS):
            raise ValueError(f"{path}: line 1 must name one column label and one text: {columns}")
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(f"{path}: line {rows.line_num} has not {len(columns)} columns")
            label = " ".join(row["label"].split())
            if label in ("", "<unk>", *RESERVED) or not row["text"].strip():
                raise ValueError(f"{path}: line {rows.line_num} has the label {label!r} and the text {row['text']!r}")
            found.append(Example(row["text"].encode(), label))
    except csv.Error as error:
        raise ValueError(f"{path}: line {rows.line_num} is not a row of the table ({error})") from error
    return found


def make_texts(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the tables, hold out the missing splits, and write the texts."""
    length, like = length_of(args)["length"], None if args.like is None else dictionaries_of(args.like)
    labels = None if like is None else own_tokens(like[1])
    parts, labels, missing = read_splits(args.train, args, read_texts, 0.1, lambda text: text[:length], labels)
    cut = sum(len(text) > length for examples in parts.values() for text, _ in examples)
    print_line(f"{cut} texts are longer than --length {length} bytes, and are cut to their beginning")
    splits = {split: byte_split(examples, length) for split, examples in parts.items()}
    statistics = write_text_task(work.output, splits, BYTE_TOKENS, labels, like)
    notes = byte_note(length) + note_held_out(missing, "a tenth of every label of train each, drawn with seed 42")
    inputs = records_of(path for path in (args.train, args.valid, args.test) if path is not None)
    return Report("own texts", statistics, inputs, notes)


# --- Images and recordings


def read_folder(kind: FileKind, folder: Path) -> List[Example]:
    """Return the files of each label of a folder in sorted order, and print which files are omitted.

    Raises ValueError for a label without files, a single label, and the parts of a data set in place of labels.
    """
    files, whole = class_files(folder, kind)
    if len(files) < 2 or {"train", "valid", "val", "test"}.issuperset(label.lower() for label in files):
        raise ValueError(f"{folder} must hold a folder per label, two at least, and holds {listed([*files])}")
    if whole.omitted:
        print_line(f"{folder}: omitted: {whole.described()}")
    return [Example(Path(folder, label, name), label) for label, names in files.items() for name in names]


def make_images(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Divide the images of each label, and link or copy them."""
    parts, labels, missing = read_splits(args.dir, args, partial(read_folder, PICTURES), 0.1, sha256_of)
    for split, examples in parts.items():
        for path, label in follow(examples, split, "images", len(examples)):
            read_image(path)
            target = work.output / split / label / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path.resolve(), target)
            except OSError:  # a file system without hard links
                shutil.copyfile(path, target)
    counts = {split: counted((label for _, label in rows), labels) for split, rows in parts.items()}
    notes = note_held_out(missing, "a tenth of every label each, drawn with seed 42")
    return Report(f"own images, {args.dir.resolve()}", counts, {}, notes)


def make_recordings(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the recordings, make them of one length, split, standardise by one mean and deviation, and write them."""
    scale = None if args.like is None else ClipScale.load(args.like.parent)
    known = None if scale is None else scale.labels
    parts, labels, missing = read_splits(args.dir, args, partial(read_folder, SOUNDS), 0.15, sha256_of, known)
    clips = {split: [read_sound(path) for path, _ in examples] for split, examples in parts.items()}
    sizes = [len(clip) for rows in clips.values() for clip in rows]
    length = -(-max(sizes) // STEP) * STEP if scale is None else scale.length
    cut, filled = sum(size > length for size in sizes), sum(2 * size < length for size in sizes)
    print_line(f"{len(sizes)} clips, made {length} samples long ({cut} cut, {filled} filled to more than twice)")
    samples = {split: np.stack([fitted(clip, length) for clip in rows]) for split, rows in clips.items()}
    if scale is None:
        train = samples["train"].astype(np.float64)
        scale = ClipScale(labels, np.full(length, train.mean()), np.full(length, max(float(train.std()), 1.0)))
    for split, rows in parts.items():
        values = torch.from_numpy(np.stack([scale.apply(clip) for clip in samples[split]]))
        save_clips(work.output, split, values, np.array([labels.index(label) for _, label in rows]))
    scale.save(work.output / FOLDER)
    counts = {split: counted((label for _, label in rows), labels) for split, rows in parts.items()}
    notes = [f"clips of {length} samples, {cut} cut, shorter ones filled up with silence"]
    notes += ["split drawn with seed 42"] if missing else []
    return Report(f"own recordings, {args.dir.resolve()}", counts, {}, notes, card={RATE_ENTRY: str(RATE)})


DATASETS = (
    Dataset(
        "own-images",
        IMAGE_DETAILS,
        sources("folder with images as LABEL/FILE", "--dir", metavar="DIR"),
        make_images,
        layout=TRAIN_AND_VALID,
        own=True,
    ),
    Dataset(
        "own-texts",
        TEXT_DETAILS,
        (
            *sources("table"),
            number_option(
                "--length", None, f"bytes to keep of the beginning of a text (default: of --like, or {LENGTH})"
            ),
            folder_option("--like", text=f"{LIKE} tokens and labels"),
        ),
        make_texts,
        reads=lambda args: {**length_of(args), "first_line": "names"},
        members={"like": ("*-bin/dict.txt",)},
        layout=TEXTS,
        own=True,
    ),
    Dataset(
        "recordings",
        SOUND_DETAILS,
        (
            *sources("folder with recordings as LABEL/NAME.wav", "--dir", metavar="DIR"),
            folder_option(
                "--like", type=lambda data: Path(data) / FOLDER / FILE_NAME, text=f"{LIKE} labels, length and scale"
            ),
        ),
        make_recordings,
        layout=CLIPS,
        own=True,
    ),
)
