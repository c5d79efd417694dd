"""Parallel text, of your own or of LibreOffice's help: cleaned, split, cut into subwords and binarised."""

import argparse
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple

import sentencepiece

from fairseq_mega.data.text_cleaning import clean, mark_model, steps_of_folder, steps_of_model, write_steps
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import binarise, split_options
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.debian import PACKAGE_OPTIONS, unpacked
from fairseq_mega.lab.prepare.download import records_of
from fairseq_mega.lab.prepare.layouts import DATA_BIN, TRANSLATION, Layout, parallel
from fairseq_mega.lab.prepare.libreoffice_help import UNPACKED, read_help
from fairseq_mega.lab.prepare.options import (
    SUBWORDS,
    WORKERS,
    Option,
    choice,
    file_option,
    number_option,
    option,
    sources,
)
from fairseq_mega.lab.prepare.progress import SPLITS, print_line, print_overlap
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, train_model, write_dictionary
from fairseq_mega.lab.prepare.translation.parallel_text import (
    add_names,
    clean_pages,
    leak_key,
    own_corpus,
    read_pairs,
    write_corpus,
)
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import count_lines, read_lines

Languages = Tuple[str, str]  # source and target
MODEL = "joint.model"
# Most subwords of a training pair, and of a line of the other splits.
LONGEST = {"max_train_pieces": 250, "max_pieces": 1000}
FOLDERS = {"en": "en-US", "de": "de"}  # of the languages of the help

LAYOUT = """\
Writes text (cleaned, without repeats; card.json names the steps), pieces (of joint.model, learnt from both
languages) and data-bin, with the model as subwords.model."""
OWN = f"""\
{LAYOUT}
Line n of PREFIX.SOURCE is translated by line n of PREFIX.TARGET. Pairs with an empty side and repeated ones are
dropped, except in a --valid or --test of your own, without which a twentieth of --train is held out. DIR needs four
times the size of the text: 4 MB for 1 MB."""
PAGES = f"""\
{LAYOUT}
The text is the paragraphs that English and German pages of the help have in common, split into sentences. The
Debian packages libreoffice-help-en-us and -de (5 MB, MPL-2.0) are fetched with apt-get download and not installed."""


def write_own_pairs(
    prefixes: Dict[str, Optional[str]], output: Path, languages: Languages, limit: Optional[int] = None
) -> None:
    """Make train, valid and test text from parallel text of one's own.

    Args:
        prefixes: of the files of each split; valid and test are held out of train where they have none.
        output: folder for ``SPLIT.LANGUAGE``.
        limit: training pairs to keep, and a twentieth of it in each split without files.
    """
    given = {split: read_pairs(prefix, *languages) for split, prefix in prefixes.items() if prefix is not None}
    print_line(f"pairs read: {len(given['train'])}")
    corpus = own_corpus(given["train"], given.get("valid"), given.get("test"))
    write_corpus(corpus, output, languages, limit, [name for name in SPLITS[1:] if name in given])
    print_overlap({name: [leak_key(pair.source) for pair in pairs] for name, pairs in corpus.splits.items()}, "sources")


def write_data(args: argparse.Namespace, work: WorkFolder, write_text: Callable[[Path], None], origin: str) -> Report:
    """Make text, pieces and data-bin."""
    languages = (args.source_lang, args.target_lang)
    text = work.part("text", write_text)
    pieces = work.part("pieces", lambda folder: cut_pairs(text, folder, languages, args.vocab_size, args.model))
    words = ["--source-lang", languages[0], "--target-lang", languages[1], "--joined-dictionary"]
    words += [*split_options(), "--srcdict", DICTIONARY, "--workers", str(args.workers)]
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(pieces, words, folder, log))
    shutil.copyfile(pieces / MODEL if (pieces / MODEL).exists() else args.model, data / MODEL_FILE)
    splits = {split: {"pairs": count_lines(pieces / f"{split}.{languages[0]}")} for split in SPLITS}
    return Report(origin, splits, parts=("text", "pieces", "data-bin"))


def model_of(given: Path, text: Path, output: Path) -> Path:
    """Return a given model, or a copy that names the cleaning of the text if the model does not."""
    steps = steps_of_folder(text)
    if not steps or steps_of_model(given) == steps:
        return given
    model = output / MODEL
    model.write_bytes(given.read_bytes())
    mark_model(model, steps)
    print_line(f"{MODEL}: a copy of {given} that names the cleaning of the text; use the copy, here or in data-bin")
    return model


def cut_pairs(
    text: Path,
    output: Path,
    languages: Sequence[str],
    vocabulary_size: int = SUBWORDS,
    given: Optional[Path] = None,
) -> None:
    """Split parallel text into subwords of a joint sentencepiece model; a new model is written to ``joint.model``.

    Longer training pairs than LONGEST are omitted, a longer line of valid or test is an error.

    Args:
        text: folder with ``SPLIT.LANGUAGE`` of every split.
        output: folder for the same files as subwords, and ``dict.txt`` of all subwords.
        given: a model to use in place of a new one.
    """
    output.mkdir(parents=True, exist_ok=True)
    if given is None:
        model = output / MODEL
        lines = [line for language in languages for line in read_lines(text / f"train.{language}")]
        train_model(lines, output / model.stem, vocabulary_size, cleaning=steps_of_folder(text))
    else:
        model = model_of(given, text, output)
    processor, steps = sentencepiece.SentencePieceProcessor(model_file=str(model)), steps_of_model(model)
    for split in SPLITS:
        files = [f"{split}.{language}" for language in languages]
        cleaned = ([clean(line, steps) for line in read_lines(text / file)] for file in files)
        pairs = list(zip(*(processor.encode(side, out_type=str) for side in cleaned)))
        limit = LONGEST["max_train_pieces" if split == "train" else "max_pieces"]
        kept = [pair for pair in pairs if max(map(len, pair)) <= limit]
        print_line(f"{split}: {len(kept)} pairs, {len(pairs) - len(kept)} longer than {limit} subwords")
        if split == "train":
            counts = Counter(subword for pair in kept for subwords in pair for subword in subwords)
            write_dictionary(processor, counts, output / DICTIONARY)
        elif len(kept) < len(pairs):
            number = next(number for number, pair in enumerate(pairs, 1) if max(map(len, pair)) > limit)
            raise ValueError(
                f"{text / split}.*, line {number}: more than {limit} subwords; cut the line into sentences"
            )
        for side, file in enumerate(files):
            content = "".join(" ".join(pair[side]) + "\n" for pair in kept)
            (output / file).write_bytes(content.encode("utf-8"))
    write_steps(output, steps)


SHARED: Tuple[Option, ...] = (
    number_option("--limit", None, "maximum number of training pairs; a twentieth of it in valid, and in test"),
    number_option("--vocab-size", SUBWORDS, "number of subwords, fewer for a small text"),
    file_option("--model", text="use this sentencepiece model instead of a new one"),
    WORKERS,
)


def files_of(args: argparse.Namespace) -> Dict[str, Path]:
    """Return the files of own pairs, by option and language."""
    return {
        f"{name}.{language}": Path(f"{getattr(args, name)}.{language}")
        for name in ("text", "valid", "test")
        if getattr(args, name) is not None
        for language in (args.source_lang, args.target_lang)
    }


def make_own(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Make data of own pairs."""
    prefixes = {"train": args.text, "valid": args.valid, "test": args.test}
    languages = (args.source_lang, args.target_lang)
    write = partial(write_own_pairs, prefixes, languages=languages, limit=args.limit)
    report = write_data(args, work, write, "own pairs")
    report.inputs = records_of(files_of(args).values())
    return report


def make_help(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Make data of the pages that both languages have."""
    folders = (FOLDERS[args.source_lang], FOLDERS[args.target_lang])
    packages, inputs = unpacked(args, work, [f"libreoffice-help-{folder.lower()}" for folder in folders])

    def write(output: Path) -> None:
        pages, names = read_help(packages, folders)
        corpus = clean_pages(pages)
        add_names(corpus, names)
        write_corpus(corpus, output, (args.source_lang, args.target_lang), args.limit)

    report = write_data(args, work, write, "LibreOffice help")
    report.inputs = inputs
    return report


DATASETS = (
    Dataset(
        "own-pairs",
        OWN,
        (
            *sources("text", "--text", type=str, metavar="PREFIX"),
            *(
                option(f"--{side}-lang", required=True, metavar="LANG", help=f"ending of the {side} files")
                for side in ("source", "target")
            ),
            *SHARED,
        ),
        make_own,
        reads=lambda args: {**files_of(args), **LONGEST},
        layout=Layout((f"{DATA_BIN}/{MODEL_FILE}", *parallel("*", "*")), TRANSLATION),
        vocab_size=lambda args: args.vocab_size,
        own=True,
    ),
    Dataset(
        "help-pairs",
        PAGES,
        (
            PACKAGE_OPTIONS,
            choice("--source-lang", ("en", "de"), "language of the source"),
            choice("--target-lang", ("de", "en"), "language of the target"),
            *SHARED,
        ),
        make_help,
        reads=lambda args: {
            "source_folder": FOLDERS[args.source_lang],
            "target_folder": FOLDERS[args.target_lang],
            **LONGEST,
        },
        members=UNPACKED,
        layout=Layout(("text/test.en", "text/test.de", f"{DATA_BIN}/{MODEL_FILE}", *parallel("en", "de")), TRANSLATION),
        vocab_size=lambda args: args.vocab_size,
    ),
)
