"""Parallel text, of your own or of LibreOffice's help: cleaned, split, cut into subwords and binarised."""

import argparse
import shutil
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from fairseq_mega.data.text_cleaning import SENTENCES, write_steps
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import binarise, split_options
from fairseq_mega.lab.prepare.checksums import records_of
from fairseq_mega.lab.prepare.dataset import PAIRS, Dataset, Report, Sources
from fairseq_mega.lab.prepare.layouts import DATA_BIN, TRANSLATION, Layout, parallel
from fairseq_mega.lab.prepare.libreoffice_help import UNPACKED, add_packages, check_packages, unpacked
from fairseq_mega.lab.prepare.options import SUBWORDS
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY
from fairseq_mega.lab.prepare.shared_options import add_workers, at_least, refuse_unused
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.translation.corpus import Corpus, add_names, clean_pages, leak_key, own_corpus
from fairseq_mega.lab.prepare.translation.help_corpus import HelpCorpus
from fairseq_mega.lab.prepare.translation.parallel_files import describe_dropped, read_pairs, write_corpus
from fairseq_mega.lab.prepare.translation.parallel_text import seem_swapped, swapped_lines
from fairseq_mega.lab.prepare.translation.subwords import MODEL, PIECES, TRAIN_PIECES, cut_pairs, require
from fairseq_mega.lab.prepare.translation.toy_data import write_pages
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import count_lines

Languages = Tuple[str, str]  # source and target

LAYOUT = """\
Writes text (cleaned, without repeats; card.json names the steps), pieces (of joint.model, learnt from both
languages) and data-bin, with the model as subwords.model."""
OWN = f"""\
{LAYOUT}
Line n of PREFIX.SOURCE is translated by line n of PREFIX.TARGET. Pairs with an empty side and repeated ones are
dropped, except in a --valid or --test of your own. DIR needs four times the size of the text: 4 MB for 1 MB."""
PAGES = f"""\
{LAYOUT}
The text is the paragraphs that English and German pages of the help have in common, split into sentences. The
Debian packages libreoffice-help-en-us and -de (5 MB, MPL-2.0) are fetched with apt-get download and not installed."""


def write_help_pairs(
    packages: Path,
    output: Path,
    languages: Languages = ("en", "de"),
    folders: Languages = ("en-US", "de"),
    limit: Optional[int] = None,
) -> None:
    """Make train, valid and test text from the unpacked packages of LibreOffice's help.

    Args:
        packages: folder that holds ``usr/``.
        output: folder for ``SPLIT.LANGUAGE``.
        folders: of the languages in the packages.
        limit: training pairs to keep, and a twentieth of it in the other splits.

    Raises:
        OSError, ValueError: where there are no pages, or too few pairs.
    """
    help_corpus = HelpCorpus(packages, *folders)
    corpus = clean_pages(Progress("reading", "help pages", len(help_corpus)).follow(help_corpus))
    add_names(corpus, help_corpus.names)
    write_corpus(corpus, output, *languages, limit=limit)
    write_steps(output, SENTENCES)
    found = help_corpus.statistics
    say(
        f"help pages in both languages: {found.pages_paired} (in one only: {found.pages_of_one_language}); "
        f"paragraphs paired: {found.paragraphs_paired} (without a partner: {found.paragraphs_unpaired})"
    )
    say(f"pairs dropped: {describe_dropped(corpus)}")
    say(f"sentence pairs: {describe_splits(corpus)}")


def write_own_pairs(
    prefixes: Dict[str, Optional[str]],
    output: Path,
    languages: Languages,
    held_out: Optional[int] = None,
    limit: Optional[int] = None,
) -> None:
    """Make train, valid and test text from parallel text of one's own.

    Args:
        prefixes: of the files of each split; valid and test are held out of train where they have none.
        output: folder for ``SPLIT.LANGUAGE``.
        held_out: pairs for each split without files; by default a twentieth, 1000 at most.
        limit: training pairs to keep, and a twentieth of it in each split without files.

    Raises:
        OSError, ValueError: for text that cannot be used, naming file, line and remedy.
    """
    given = {split: read_pairs(prefix, *languages) for split, prefix in prefixes.items() if prefix is not None}
    corpus = own_corpus(given["train"], given.get("valid"), given.get("test"), held_out)
    write_corpus(corpus, output, *languages, limit=limit, whole=[name for name in SPLITS[1:] if name in given])
    write_steps(output, SENTENCES)
    for first, last in swapped_lines(given["train"]):
        say(
            f"note: about lines {first} to {last} of --text {prefixes['train']} seem to have their languages swapped "
            f"against its first lines: unless this is meant, exchange the two sides there"
        )
    earlier = {"text": corpus.splits["train"]}
    for name in SPLITS[1:]:
        empty = sum(not all(pair) for pair in given.get(name, ()))
        for other, pairs in earlier.items():
            learnt = {leak_key(pair.source) for pair in pairs}
            known = sum(leak_key(pair.source) in learnt for pair in given.get(name, ()))
            if known:
                say(f"note: sources of --{name} that --{other} has, too, which raises the score: {known:,}")
        if name in given:
            earlier[name] = given[name]
        if seem_swapped(given.get(name, ()), given["train"]):
            say(
                f"note: --{name} {prefixes[name]} seems to have its languages swapped: its .{languages[0]} has the "
                f"words of the .{languages[1]} to train on, and the reverse: unless this is meant, correct the names"
            )
        if empty:
            say(f"note: pairs of --{name} with an empty side, which are scored nevertheless: {empty:,}")
    say(f"pairs read: {len(given['train'])}; dropped: {describe_dropped(corpus)}")
    say(f"sentence pairs: {describe_splits(corpus)}")


def describe_splits(corpus: Corpus) -> str:
    """Return the number of pairs in each split."""
    return ", ".join(f"{name} {len(corpus.splits[name])}" for name in SPLITS)


def write_data(args: argparse.Namespace, work: WorkFolder, write_text: Callable[[Path], None], origin: str) -> Report:
    """Make text, pieces and data-bin; raise FileNotFoundError for a given model that is not there."""
    require(args.model)
    languages = (args.source_lang, args.target_lang)
    limits = (args.max_train_pieces, args.max_pieces)
    text = work.part("text", write_text)
    pieces = work.part(
        "pieces", lambda folder: cut_pairs(text, folder, languages, args.vocab_size, args.model, *limits)
    )
    words = ["--source-lang", languages[0], "--target-lang", languages[1], "--joined-dictionary"]
    words += [*split_options(), "--srcdict", DICTIONARY, "--workers", str(args.workers)]
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(pieces, words, folder, log))
    shutil.copyfile(pieces / MODEL if (pieces / MODEL).exists() else args.model, data / MODEL_FILE)
    splits = {split: {"pairs": count_lines(pieces / f"{split}.{languages[0]}")} for split in SPLITS}
    return Report(origin, splits, parts=("text", "pieces", "data-bin"))


def add_shared(parser: argparse.ArgumentParser, **languages: str) -> None:
    """Add the options of all parallel text."""
    add = parser.add_argument
    for side in ("source", "target"):
        usual = languages.get(side)
        ending = f"ending of the {side} files" + (" (default: %(default)s)" if usual else "")
        add(f"--{side}-lang", default=usual, required=usual is None, metavar="LANG", help=ending)
    keep = "maximum number of training pairs; a twentieth of it in valid, and in test"
    add("--limit", type=at_least(1), metavar="N", help=keep)
    size = "number of pieces, fewer for a small text (default: %(default)s)"
    pieces = parser.add_mutually_exclusive_group()
    pieces.add_argument("--vocab-size", type=at_least(1), default=SUBWORDS, metavar="N", help=size)
    model = "use this sentencepiece model instead of a new one"
    pieces.add_argument("--model", type=Path, metavar="FILE", help=model)
    longest = "drop training pairs with more pieces (default: %(default)s)"
    add("--max-train-pieces", type=at_least(1), default=TRAIN_PIECES, metavar="N", help=longest)
    held_out = "maximum pieces of a line of valid and test (default: %(default)s)"
    add("--max-pieces", type=at_least(1), default=PIECES, metavar="N", help=held_out)
    add_workers(parser)


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add the options of own pairs."""
    add = parser.add_argument
    add("--text", required=True, metavar="PREFIX", help="text to train on, one sentence per line")
    add("--valid", metavar="PREFIX", help="validation text (default: held out from the end of --text)")
    add("--test", metavar="PREFIX", help="test text (default: held out from the end of --text)")
    held_out = "pairs held out per split (default: a twentieth, 1000 at most)"
    add("--held-out", type=at_least(1), metavar="N", help=held_out)
    add_shared(parser)


def files_of(args: argparse.Namespace) -> Dict[str, Path]:
    """Return the files of own pairs, by option and language."""
    return {
        f"{name}.{language}": Path(f"{getattr(args, name)}.{language}")
        for name in ("text", "valid", "test")
        if getattr(args, name) is not None
        for language in (args.source_lang, args.target_lang)
    }


def check_own(args: argparse.Namespace) -> None:
    """Refuse one language twice, and pairs to hold out for splits that are given."""
    if args.source_lang == args.target_lang:
        raise ValueError(f"--source-lang and --target-lang are both '{args.source_lang}': they must differ")
    refuse_unused(args, ("--valid", "--test"), {"--held-out": None})


def make_own(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Make data of own pairs."""
    prefixes = {"train": args.text, "valid": args.valid, "test": args.test}
    languages = (args.source_lang, args.target_lang)
    write = partial(write_own_pairs, prefixes, languages=languages, held_out=args.held_out, limit=args.limit)
    report = write_data(args, work, write, "own pairs")
    report.inputs = records_of(files_of(args).values())
    return report


def add_help(parser: argparse.ArgumentParser) -> None:
    """Add the options of the help pages."""
    add_packages(parser)
    for side, usual in (("source", "en-US"), ("target", "de")):
        folder = f"folder of the {side} language in the packages (default: %(default)s)"
        parser.add_argument(f"--{side}-folder", default=usual, metavar="NAME", help=folder)
    add_shared(parser, source="en", target="de")


def make_help(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Make data of the pages that both languages have."""
    folders = (args.source_folder, args.target_folder)
    packages, inputs = unpacked(args, work, [f"libreoffice-help-{folder.lower()}" for folder in folders])
    languages = (args.source_lang, args.target_lang)
    write = partial(write_help_pairs, packages, languages=languages, folders=folders, limit=args.limit)
    report = write_data(args, work, write, "LibreOffice help")
    report.inputs = inputs
    return report


def check_help_sources(folder: Path, sources: Sources) -> None:
    """Refuse to make the data without the packages."""
    if not sources.download:
        raise ValueError(f"{folder} holds no pairs: make them with fairseq-mega-prepare help-pairs, see --help")


DATASETS = (
    Dataset(
        "own-pairs",
        PAIRS,
        "sentences of your own and their translations",
        OWN,
        add_own,
        check_own,
        make_own,
        reads=files_of,
        layout=Layout((f"{DATA_BIN}/{MODEL_FILE}", *parallel("*", "*")), TRANSLATION),
        symbols=lambda args: args.vocab_size,
        own=True,
    ),
    Dataset(
        "help-pairs",
        PAIRS,
        "LibreOffice help, from Debian packages",
        PAGES,
        add_help,
        check_packages,
        make_help,
        write_pages,
        members=UNPACKED,
        layout=Layout(("text/test.en", "text/test.de", f"{DATA_BIN}/{MODEL_FILE}", *parallel("en", "de")), TRANSLATION),
        symbols=lambda args: args.vocab_size,
        check_sources=check_help_sources,
    ),
)
