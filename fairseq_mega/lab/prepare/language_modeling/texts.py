"""Texts for language models as binarised data: enwik8, WikiText, a dictionary of English, and the user's text."""

import argparse
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from fairseq_mega.data.card import UNIT, write_settings
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import binarise, binarised_counts, split_options
from fairseq_mega.lab.prepare.dataset import Dataset, Processed, Report, Scored
from fairseq_mega.lab.prepare.download import Records, records_of
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA, Corpus, obtain_corpus, obtain_gcide
from fairseq_mega.lab.prepare.language_modeling.splitting import COUNTS, Cut, split_text
from fairseq_mega.lab.prepare.layouts import TEXT
from fairseq_mega.lab.prepare.options import HELD_OUT_SHARE, SUBWORDS, TEXTS, WORKERS, option
from fairseq_mega.lab.prepare.progress import SPLITS, print_line
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import write_json

# The script that starts the command has parsed them.
ENVIRONMENT = (
    option("--venv", help=argparse.SUPPRESS),
    option("--skip-setup", action="store_true", help=argparse.SUPPRESS),
)
ENWIK8_SIZES, TOY_SIZES = (90_000_000, 5_000_000, 5_000_000), (18_000, 1_000, 1_000)


def write_data(
    args: argparse.Namespace,
    work: WorkFolder,
    cut: Cut,
    origin: str,
    inputs: Records,
    threshold: int = 0,
    published: Optional[Corpus] = None,
) -> Report:
    """Write ``text``, ``data-bin`` and ``counts.json`` of a text.

    Args:
        threshold: rarer words become ``<unk>``.
        published: counts that the data must have.
    """
    text = work.part("text", lambda folder: split_text(cut, folder))
    # fairseq binarises one part itself, but only after its other processes have ended: so one more process.
    words = ["--only-source", *split_options(), "--workers", str(args.workers + (args.workers > 1))]
    if (text / DICTIONARY).exists():  # of subwords
        words += ["--srcdict", DICTIONARY]
    words += ["--thresholdsrc", str(threshold)] if threshold else []
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(text, words, folder, log))
    counts = count(data, text, threshold, published)
    write_json(work.output / "counts.json", counts)
    return Report(origin, counts["splits"], inputs, parts=("text", "data-bin"))


def count(data: Path, text: Path, threshold: int = 0, published: Optional[Corpus] = None) -> Dict[str, Any]:
    """Compare binarised data with their text and with published counts, and write their unit beside them.

    Args:
        data: output of fairseq-preprocess.
        text: output of :func:`.splitting.split_text`.
        threshold: rarer words have become ``<unk>``.

    Returns:
        Unit, size of the dictionary, and the counts of each split.

    Raises:
        OSError, ValueError: for a difference.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(data / "dict.txt"))
    written = json.loads((text / COUNTS).read_text(encoding="utf-8"))
    unit, splits = written["unit"], {}
    for split, wanted in written["splits"].items():
        splits[split] = {**binarised_counts(data, split, dictionary), "bytes": wanted["bytes"]}
        print_line(f"{split}: {', '.join(f'{found:,} {name}' for name, found in splits[split].items())}")
    print_line(f"dictionary: {len(dictionary)} tokens, the special ones and fairseq's padding included")
    # fairseq pads to a multiple of 8
    size = None if threshold else -(-(4 + written["splits"]["train"]["symbols"]) // 8) * 8
    expected = [("the text", written["splits"], size)]
    if published is not None:
        expected.append((f"{published.name} as published", published.counts(), published.dictionary))
    for source, counts, size in expected:
        for split, name in product(counts, ("lines", "tokens")):
            if splits[split][name] != counts[split][name]:
                want, got = counts[split][name], splits[split][name]
                raise ValueError(f"{data}: {split}: expected {want} {name} ({source}), found {got}")
        if size not in (None, len(dictionary)):
            raise ValueError(f"{data}: expected a dictionary of {size} ({source}), found {len(dictionary)}")
    write_unit(data, unit, text / MODEL_FILE if unit == "subwords" else None)
    return {"unit": unit, "dictionary": len(dictionary), "splits": splits}


def write_unit(folder: Path, unit: str, model: Optional[Path] = None) -> None:
    """Write the unit of a text, and its subwords, beside its binarised data, for fairseq_mega.data.text_units."""
    if model is not None:
        shutil.copyfile(model, folder / MODEL_FILE)
    write_settings(folder, {UNIT: unit})


def make_enwik8(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut enwik8 into bytes."""
    corpus = CORPORA["enwik8"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, checked=not args.smoke)
    cut = Cut("bytes", work.raw / "enwik8", sizes=TOY_SIZES if args.smoke else ENWIK8_SIZES)
    return write_data(args, work, cut, corpus.archive.url, inputs)


def make_wikitext(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut WikiText into words."""
    corpus = CORPORA[f"wikitext-{args.version}"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, args.text, checked=not args.smoke)
    train, valid, test = (work.raw / name for name in corpus.files)
    cut = Cut("words", train, valid, test)
    return write_data(args, work, cut, corpus.archive.url, inputs, published=None if args.smoke else corpus)


def make_gcide(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the dictionary into bytes or words."""
    inputs = obtain_gcide(work.raw, args.deb, args.dictionary)
    amounts = {"blocks": args.blocks, "held_out": args.held_out or HELD_OUT_SHARE, "limit": args.limit}
    cut = Cut(args.unit, work.raw / "gcide.txt", **amounts, replace_invalid=True)
    return write_data(args, work, cut, "the Debian package dict-gcide", inputs, threshold_of(args, 5))


def make_text_lm(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the user's text into words, subwords or bytes."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    amounts = {"blocks": args.blocks, "held_out": args.held_out, "limit": args.limit}
    cut = Cut(args.unit, **given, **amounts, vocab_size=args.vocab_size or SUBWORDS)
    return write_data(args, work, cut, "the user's text", records_of(given.values()), threshold_of(args, 2))


def threshold_of(args: argparse.Namespace, usual: int) -> int:
    """Return --threshold; for bytes and subwords the value that keeps all."""
    if args.threshold is None:
        return usual if args.unit == "words" else 0
    return int(args.threshold)


def _dataset(
    name: str,
    make: Callable[[argparse.Namespace, WorkFolder], Report],
    **others: Any,
) -> Dataset:
    text = TEXTS[name]
    return Dataset(
        name,
        text.details,
        (*text.options, WORKERS, *ENVIRONMENT),
        make,
        check=text.check,
        usual_out=text.usual_out,
        layout=TEXT,
        **others,
    )


DATASETS = (
    _dataset(
        "enwik8",
        make_enwik8,
        vocab_size=lambda args: CORPORA["enwik8"].dictionary,
        scored=Scored(ENWIK8_SIZES[-1]),
        processed=Processed("enwik8_data_bin.zip", ("enwik8",)),
    ),
    _dataset(
        "wikitext",
        make_wikitext,
        members={"text": tuple(f"wiki.{split}.tokens*" for split in SPLITS)},
        vocab_size=lambda args: CORPORA[f"wikitext-{args.version}"].dictionary,
        scored=Scored(CORPORA["wikitext-103"].tokens[-1]),
        processed=Processed("wt103_data_bin.zip", ("wt103", "wikitext", "wiki103")),
    ),
    _dataset("gcide", make_gcide),
    _dataset("text-lm", make_text_lm, own=True),
)
