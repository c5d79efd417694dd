"""The user's recordings: a folder of sound files for each label."""

import argparse
import hashlib
from collections import Counter
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.compat.files.card import RATE as RATE_ENTRY
from fairseq_mega.data.class_folders import check_labels, class_files, class_names, listed
from fairseq_mega.data.clip_scale import FILE_NAME, ClipScale
from fairseq_mega.lab.prepare.classification.clips import FOLDER, SILENT, fitted, is_silent, save_clips
from fairseq_mega.lab.prepare.classification.sound_files import RATE, SOUNDS, read_sound
from fairseq_mega.lab.prepare.classification.subsets import (
    kept,
    labelled_files,
    note_on_limit,
    say_copies,
    say_empty,
    say_lost,
    stratified_split,
)
from fairseq_mega.lab.prepare.dataset import LABELLED, Dataset, Report
from fairseq_mega.lab.prepare.layouts import CLIPS
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.shared_options import add_limit
from fairseq_mega.lab.prepare.work_folder import WorkFolder

STEP = 1000  # lengths are multiples of the chunk of the paper's models
PADDED = 10  # times that a clip may be longer than most, and all clips than their sound
HELD_OUT = {"valid": 0.15, "test": 0.15}

DETAILS = f"""\
--dir holds a folder per label, DIR/LABEL/NAME.wav: one channel at {RATE} Hz, in WAV, FLAC, Ogg, MP3, AIFF or what else
the library soundfile reads (extra speech); without it 16-bit WAV alone. Other files in the folders are counted and
ignored; a label without recordings is an error. Clips are filled with silence to the length of the longest, rounded up
to {STEP} samples, or to --samples; longer clips are cut. 15 % of the clips of every label, at least one, are held out
for valid, and as many for test. The samples are standardised with one mean and deviation, those of train or of --like:
a classifier requires recordings of the scale, length and labels that it was trained on. 1000 clips of one second become
64 MB of data. Classify new recordings with fairseq-mega-classify."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own recordings."""
    parser.add_argument(
        "--dir", type=Path, required=True, metavar="DIR", help="folder with the recordings as LABEL/NAME.wav"
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help=f"samples of every clip, a multiple of {STEP} (default: the length of the longest clip)",
    )
    like = "earlier output of this command, the data of a classifier: use its labels, length and scale"
    parser.add_argument("--like", type=_clips_of, metavar="DATA", help=like)
    add_limit(parser)


def _clips_of(data: str) -> Path:
    return Path(data) / FOLDER / FILE_NAME


def check(args: argparse.Namespace) -> None:
    """Refuse a folder without recordings, and lengths that the models do not support."""
    if args.samples is not None and (args.samples < STEP or args.samples % STEP):
        raise ValueError(f"--samples is {args.samples}: a multiple of {STEP} is needed, for instance 16000")
    labels = class_names(args.dir, SOUNDS.things)
    check_labels(args.dir, labels, SOUNDS.things)
    class_files(args.dir, SOUNDS)
    scale = _scale_of(args)
    if scale is not None and args.samples not in (None, scale.length):
        raise ValueError(f"--samples is {args.samples}, and {args.like} has clips of {scale.length}: leave one out")
    if scale is not None and sorted(scale.labels) != labels:
        raise ValueError(
            f"--dir {args.dir} has the labels {listed(labels)}, and {args.like} has {listed(scale.labels)}: give data "
            f"of the same"
        )


def _scale_of(args: argparse.Namespace) -> Optional[ClipScale]:
    return None if args.like is None else ClipScale.load(args.like.parent)


def list_folder(folder: Path) -> Tuple[List[str], List[str], np.ndarray]:
    """Return labels, and in sorted order the recordings' paths and numbers (n,) of labels.

    Prints which files are left out. Raises ValueError for a label without
    recordings.
    """
    files = labelled_files(folder, SOUNDS)
    labels = [*files]
    paths = [str(folder / label / name) for label in labels for name in files[label]]
    return labels, paths, np.repeat(np.arange(len(labels)), [len(files[label]) for label in labels])


def length_of_all(paths: Sequence[str], lengths: Sequence[int]) -> int:
    """Return the length of the longest clip, rounded up to STEP samples.

    Raises:
        ValueError: names the longest clip if it is over PADDED times as long as half of the clips, and all clips of
            its length would take over PADDED times the room of their sound.
    """
    longest, median = max(lengths), int(np.median(lengths))
    if longest > PADDED * median and longest * len(lengths) > PADDED * sum(lengths):
        raise ValueError(
            f"{paths[lengths.index(longest)]} has {longest:,} samples and half of the {len(lengths):,} clips at most "
            f"{median:,}, and all would be filled with silence to the length of the longest: give --samples, such as "
            f"--samples {max(STEP, _rounded_up(median))}, to cut the longer ones, or move them out of the folder"
        )
    return _rounded_up(longest)


def _rounded_up(samples: int) -> int:
    return -(-samples // STEP) * STEP


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the recordings, make them of one length, split, standardise and write them."""
    labels, paths, numbers = list_folder(args.dir)
    scale = _scale_of(args)
    if scale is not None:
        numbers, labels = np.array([scale.labels.index(label) for label in labels])[numbers], scale.labels
    drawn = stratified_split(numbers, HELD_OUT, labels)
    clips = [read_sound(Path(path)) for path in paths]
    length = scale.length if scale is not None else args.samples or length_of_all(paths, [*map(len, clips)])
    cut, filled = sum(len(clip) > length for clip in clips), sum(2 * len(clip) < length for clip in clips)
    samples = np.stack([fitted(path, clip, length) for path, clip in zip(paths, clips)])
    changed = f"{cut} of them cut" + (f", {filled} filled to more than twice their length" if filled else "")
    say(f"{len(clips)} clips of {len(labels)} labels, made {length} samples long ({changed})")
    is_quiet = np.array([is_silent(clip) for clip in clips])
    if is_quiet.all():
        raise ValueError(f"--dir {args.dir}: all {SILENT}")
    silent = say_empty(paths, numbers, is_quiet, labels, SILENT)
    rows = {split: which[kept(split, len(which), args.limit)] for split, which in drawn.items()}
    contents = [hashlib.sha256(clip.tobytes()).digest() for clip in samples]
    say_copies(
        {split: [(contents[row], labels[numbers[row]]) for row in which] for split, which in rows.items()}, "clips"
    )
    if scale is None:
        train = samples[rows["train"]].astype(np.float64)
        scale = ClipScale(labels, np.full(length, train.mean()), np.full(length, max(float(train.std()), 1.0)))
    counted: Dict[str, Dict] = {}
    for split, which in rows.items():
        values = torch.from_numpy(np.stack([scale.apply(samples[row]) for row in which]))
        save_clips(work.output, split, values, numbers[which])
        counts = Counter(labels[number] for number in numbers[which])
        counted[split] = {"examples": len(which), "labels": {label: counts[label] for label in labels}}
        say(f"{split}: {len(which)} clips")
    say_lost(counted["train"]["labels"], labels)
    scale.save(work.output / FOLDER)
    notes = [f"{silent} clips are silent"] if silent else []
    notes += [f"clips of {length} samples, {cut} cut, shorter ones filled up with silence", "split drawn with seed 42"]
    notes += note_on_limit(args.limit)
    return Report(f"own recordings, {args.dir.resolve()}", counted, {}, notes, card={RATE_ENTRY: str(RATE)})


DATASET = Dataset(
    "recordings", LABELLED, "recordings of your own", DETAILS, add_options, check, make, layout=CLIPS, own=True
)
