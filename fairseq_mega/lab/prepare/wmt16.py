"""WMT'16 English-German: fetched, unpacked, tokenised, cut by byte-pair encoding, cleaned and binarised.

Each part is whole or not there, and a wrong number of lines is refused.
"""

import argparse
import re
import shutil
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain, islice, product
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from fairseq_mega.compat.files.card import SUBWORDS, TOKENIZER, digest_of_file
from fairseq_mega.data.card import read_json, write_settings
from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, name_of, naming_damage, tar_files
from fairseq_mega.lab.prepare.binarised import binarise
from fairseq_mega.lab.prepare.dataset import ARCHIVES, Dataset, Report
from fairseq_mega.lab.prepare.download import fetch_missing, record_of
from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order
from fairseq_mega.lab.prepare.layouts import TRANSLATION, Layout, parallel
from fairseq_mega.lab.prepare.options import WORKERS, folder_option, switch
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import count_lines, read_lines, write_json, written_whole

DETAILS = """\
4.5 million pairs of Europarl, Common Crawl and News Commentary to train on, newstest2013 to validate with, 2014, 2015
and 2016 to test: raw, tokenized, bpe (32,000 joint merges) and data-bin, whose one dictionary serves both directions.
40 GB in DIR, hours on 2 cores. Five archives of statmt.org are downloaded."""


# --- The corpora and their archives

LANGUAGES = ("en", "de")
TRAIN = "train"
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


class Corpus(NamedTuple):
    """A part of the data: its archive, its file names per language, and the lines that each must have."""

    name: str
    url: str
    files: Dict[str, Tuple[str, ...]]
    lines: int
    exact: bool = True


def _text(stem: str) -> Dict[str, Tuple[str, ...]]:
    return {language: (f"{stem}.{language}",) for language in LANGUAGES}


def _sgm(stem: str) -> Dict[str, Tuple[str, ...]]:
    # A language may be stored as source or as reference; the English source comes with the German reference.
    roles = {"en": ("src", "ref"), "de": ("ref", "src")}
    return {language: tuple(f"{stem}-{role}.{language}.sgm" for role in roles[language]) for language in LANGUAGES}


STATMT, DATA = "http://www.statmt.org", "http://data.statmt.org/wmt16/translation-task"
CRAWL, NEWS = f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz", f"{DATA}/training-parallel-nc-v11.tgz"
# In the order in which the training corpora are concatenated. Lines as counted by the shared task; the test sets
# must match exactly, the training corpora within 1 % (line counts of repackaged copies differ slightly).
TRAINING = (
    Corpus("europarl-v7", f"{STATMT}/europarl/v7/de-en.tgz", _text("europarl-v7.de-en"), 1920209, False),
    Corpus("commoncrawl", CRAWL, _text("commoncrawl.de-en"), 2399123, False),
    Corpus("news-commentary-v11", NEWS, _text("news-commentary-v11.de-en"), 242770, False),
)
EVALUATION = (
    Corpus("newstest2013", f"{DATA}/dev.tgz", _text("newstest2013"), 3000),
    Corpus("newstest2014", f"{DATA}/dev.tgz", _sgm("newstest2014-deen"), 3003),
    Corpus("newstest2015", f"{DATA}/dev.tgz", _sgm("newstest2015-ende"), 2169),
    Corpus("newstest2016", f"{DATA}/test.tgz", _sgm("newstest2016-ende"), 2999),
)
CORPORA = TRAINING + EVALUATION
SPLITS = (TRAIN, *(corpus.name for corpus in EVALUATION))


def archive_urls() -> List[str]:
    """Return the addresses of the five archives, each once."""
    return list(dict.fromkeys(corpus.url for corpus in CORPORA))


def unpack_all(archives: Path, raw: Path, published: bool = True) -> None:
    """Unpack the archives, check the numbers of lines and join the training corpora."""
    raw.mkdir(parents=True, exist_ok=True)
    for url in archive_urls():
        archive = archives / name_of(url)
        print_line(f"{archive.name}: unpacking")
        unpack(archive, raw, [corpus for corpus in CORPORA if corpus.url == url])
    check_counts(raw, published)
    print_line(f"training corpora joined: {concatenate(raw)} pairs")


def unpack(archive: Path, output: Path, corpora: Sequence[Corpus]) -> None:
    """Write ``output/<corpus>.<language>``, plain UTF-8 text, for each of ``corpora`` stored in ``archive``."""
    selected = {  # by name in the archive; of several names the first is preferred
        name: (rank, output / f"{corpus.name}.{language}")
        for corpus in corpora
        for language, names in corpus.files.items()
        for rank, name in enumerate(names)
    }
    best: Dict[Path, int] = {}
    with naming_damage(archive, FETCH_AGAIN):
        for member, stream in tar_files(archive):
            rank, path = selected.get(name_of(member.name), (0, None))
            if path is not None and best.get(path, rank) >= rank:
                best[path] = rank
                _write_text(stream, member.name, path)


def _write_text(stream: IO[bytes], member: str, path: Path) -> None:
    """Write a text, of which bytes that are no UTF-8 become U+FFFD, or the segments of an SGM test set."""
    damaged = 0
    with written_whole(path) as partial, open(partial, "wb") as target:
        if member.endswith(".sgm"):
            target.writelines(f"{line}\n".encode() for line in read_sgm(stream.read().decode("utf-8", "replace")))
        else:
            for line in stream:
                text = line.rstrip(b"\n").decode("utf-8", "replace").encode("utf-8") + b"\n"
                damaged += text.rstrip(b"\n") != line.rstrip(b"\n")
                target.write(text)
    if damaged:
        print_line(f"{member}: {damaged} lines hold bytes that are not UTF-8, replaced by U+FFFD")


def read_sgm(text: str) -> List[str]:
    """Return the segments of an SGM test set, one string per ``<seg>``, white space within reduced to spaces.

    Entities are left as they stand, as Moses' input-from-sgm and sacreBLEU do.
    """
    return [" ".join(segment.split()) for segment in SEGMENT.findall(text)]


def check_counts(output: Path, published: bool = True) -> None:
    """Raise ValueError unless both sides of every corpus have as many lines, those that are published."""
    for corpus in CORPORA:
        english, german = (count_lines(output / f"{corpus.name}.{language}") for language in LANGUAGES)
        tolerance = 0 if corpus.exact else corpus.lines // 100
        if english != german or (published and abs(english - corpus.lines) > tolerance):
            raise ValueError(
                f"{corpus.name}: expected {corpus.lines} lines, found {english} English and {german} German ones in "
                f"{name_of(corpus.url)}; fetch it again from {corpus.url}"
            )
        print_line(f"{corpus.name}: {english} pairs (the shared task counts {corpus.lines})")


def concatenate(output: Path) -> int:
    """Join the training corpora, in their order, into ``output/train.<language>``; return the number of pairs."""
    for language in LANGUAGES:
        parts = [output / f"{corpus.name}.{language}" for corpus in TRAINING]
        with ExitStack() as stack:
            target = stack.enter_context(open(stack.enter_context(written_whole(output / f"{TRAIN}.{language}")), "wb"))
            for part in parts:
                shutil.copyfileobj(stack.enter_context(open(part, "rb")), target)
        for part in parts:
            part.unlink()
    return count_lines(output / f"{TRAIN}.{LANGUAGES[0]}")


# --- Words, subwords, and pairs of fitting lengths

MERGES, TOY_MERGES = 32_000, 300
VOCAB_SIZE = 33_000  # of the dictionary, with the padding of fairseq-preprocess
MOSES = "--tokenizer moses --moses-no-dash-splits --moses-no-escape"  # options that tokenise as this file does
PARTS = ("raw", "tokenized", "bpe", "data-bin")
BLOCK_LINES = 500
SHORTEST, LONGEST, RATIO = 3, 150, 1.5  # tokens of a sentence; the longer of a pair to the shorter
LineFunction = Callable[[str], str]


@cache
def tokenizer(language: str, cleaned: bool) -> LineFunction:
    """Return Moses tokenisation without escaping and without splitting at hyphens; for training text cleaning first.

    Cleaning is remove-non-printing-char and normalize-punctuation. Moses replaces a non-printing character by a space,
    where sacremoses' ``remove_control_chars`` drops it and would join the words beside it; the space is kept here.
    """
    import regex
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    moses = MosesTokenizer(lang=language)
    non_printing = regex.compile(r"\p{C}")
    normalizer = MosesPunctNormalizer(lang=language, perl_parity=True)

    def tokenize(line: str) -> str:
        text = normalizer.normalize(non_printing.sub(" ", line)) if cleaned else line
        return " ".join(moses.tokenize(text, aggressive_dash_splits=False, escape=False))

    return tokenize


@cache
def segmenter(codes: str) -> LineFunction:
    """Return byte-pair encoding with the merges of a ``codes`` file; a subword within a word ends in ``@@``."""
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8", newline="\n") as stream:
        segment: LineFunction = BPE(stream).segment
    return segment


def on_lines(factory: Callable[..., LineFunction], words: Sequence[Any], lines: List[str]) -> List[str]:
    """Change lines in a process by a function that it makes once."""
    return list(map(factory(*words), lines))


def transform(source: Path, target: Path, function: Callable[[List[str]], List[str]], processes: int) -> None:
    """Write the lines that a picklable function makes of those of ``source`` to ``target``, unless it is there.

    ``target`` appears whole or not at all. Raises ValueError for a result with a line feed, which would shift all later
    lines.
    """
    if target.exists():
        return
    lines = follow(read_lines(source), target.name, "lines", count_lines(source))
    blocks = iter(lambda: list(islice(lines, BLOCK_LINES)), [])
    with written_whole(target) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
        for line in chain.from_iterable(in_order(function, blocks, processes)):
            if "\n" in line:
                raise ValueError(f"{source}: a line became several lines: {line!r}")
            stream.write(line + "\n")
    print_line(f"{target.name}: {count_lines(target)} lines")


def tokenize(raw: Path, workers: int, tokenized: Path) -> None:
    """Tokenise all splits; the training text is cleaned before, dev and test sets are not."""
    for split, language in product(SPLITS, LANGUAGES):
        name = f"{split}.{language}"
        transform(raw / name, tokenized / name, partial(on_lines, tokenizer, (language, split == TRAIN)), workers)


def learn_merges(paths: Sequence[Path], codes: Path, merges: int) -> None:
    """Learn ``merges`` joint merges on the concatenation of the texts, and write them."""
    from subword_nmt.learn_bpe import learn_bpe

    with written_whole(codes) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
        learn_bpe(chain.from_iterable(map(read_lines, paths)), stream, merges)


def encode(tokenized: Path, merges: int, workers: int, bpe: Path) -> None:
    """Learn joint merges, segment all splits, and keep the training pairs of sensible length."""
    codes = bpe / "codes"
    if not codes.exists():
        learn_merges([tokenized / f"{TRAIN}.{language}" for language in LANGUAGES], codes, merges)
        print_line(f"{count_lines(codes) - 1} merges written")  # the first line names the format
    for split, language in product(SPLITS, LANGUAGES):
        name = f"{split}.{language}"
        transform(tokenized / name, bpe / name, partial(on_lines, segmenter, (str(codes),)), workers)
    read, kept = clean_corpus(bpe / TRAIN, bpe / f"{TRAIN}.clean", LANGUAGES)
    print_line(f"{kept} of {read} training pairs kept (3 to 150 subwords, ratio up to 1.5)")


def clean_corpus(source: Path, target: Path, languages: Sequence[str]) -> Tuple[int, int]:
    """Copy the pairs that pass the rule of Moses' clean-corpus-n from ``source.<language>`` to ``target.<language>``.

    Return the numbers of pairs read and kept.
    """
    read = kept = 0
    sides = [read_lines(source.with_name(f"{source.name}.{language}")) for language in languages]
    with ExitStack() as stack:
        outputs = [target.with_name(f"{target.name}.{language}") for language in languages]
        partials = [stack.enter_context(written_whole(path)) for path in outputs]
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in partials]
        for pair in follow(zip(*sides), f"cleaning {source.name}", "lines"):
            words = [line.split() for line in pair]
            low, high = sorted(map(len, words))
            read += 1
            if low >= SHORTEST and high <= LONGEST and high <= RATIO * low:
                kept += 1
                for file, side in zip(files, words):
                    file.write(" ".join(side) + "\n")
    return read, kept


def write_data(bpe: Path, workers: int, log: Path, folder: Path) -> None:
    """Binarise all splits with one dictionary, and record the encoders of their text."""
    tests = ",".join(f"newstest{year}" for year in (2014, 2015, 2016))
    words: List[object] = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary", "--workers", workers]
    words += ["--trainpref", f"{TRAIN}.clean", "--validpref", "newstest2013", "--testpref", tests]
    binarise(bpe, [*words, "--nwordssrc", VOCAB_SIZE, "--nwordstgt", VOCAB_SIZE], folder, log)
    codes = digest_of_file(bpe / "codes")
    write_settings(folder, {TOKENIZER: MOSES, SUBWORDS: f"--bpe subword_nmt --bpe-codes {codes}"})


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Fetch the archives and make all parts of them."""
    archives, record = args.archives or args.out / ARCHIVES, work.parts / "checksums.json"

    def make_raw(folder: Path) -> None:
        paths = {url: archives / name_of(url) for url in archive_urls()}
        for url, path in paths.items():
            fetch_missing(url, path, allowed=not args.no_download)
        unpack_all(archives, folder, not args.smoke)
        write_json(record, {path.name: record_of(path, url=url) for url, path in paths.items()})

    raw = work.part("raw", make_raw)
    tokenized = work.part("tokenized", partial(tokenize, raw, args.workers))
    bpe = work.part("bpe", partial(encode, tokenized, TOY_MERGES if args.smoke else MERGES, args.workers))
    work.part("data-bin", partial(write_data, bpe, args.workers, work.scratch / "preprocess.log"))
    splits = {split: {"pairs": count_lines(bpe / f"{split}.en")} for split in (f"{TRAIN}.clean", *SPLITS[1:])}
    return Report("the archives of statmt.org", splits, read_json(record), parts=PARTS)


DATASETS = (
    Dataset(
        "wmt16",
        DETAILS,
        (
            folder_option("--archives", text=f"folder of the archives, else fetched (default: {ARCHIVES} in --out)"),
            switch("--no-download", "fail if an archive is missing, instead of downloading it"),
            WORKERS,
        ),
        make,
        leaves=PARTS,
        layout=Layout(("raw/newstest2014.en", "tokenized/newstest2014.de", *parallel(*LANGUAGES)), TRANSLATION),
        vocab_size=lambda args: VOCAB_SIZE,
    ),
)
