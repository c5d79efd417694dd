"""Parallel text, of your own or of LibreOffice's help: cleaned, paired, split, cut into subwords and binarised."""

import argparse
import hashlib
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable, Collection, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import sentencepiece

from fairseq_mega.data.text_cleaning import SENTENCES, clean, write_steps
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.archives import BYTE_ORDER_MARK, decoded_lines
from fairseq_mega.lab.prepare.binarised import binarise, split_options
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.debian import PACKAGE_OPTIONS, unpacked
from fairseq_mega.lab.prepare.download import records_of
from fairseq_mega.lab.prepare.layouts import DATA_BIN, TRANSLATION, Layout, parallel
from fairseq_mega.lab.prepare.libreoffice_help import HELP, read_help
from fairseq_mega.lab.prepare.options import SUBWORDS, WORKERS, Option, choice, number_option, option, sources
from fairseq_mega.lab.prepare.progress import HELD_OUT, SPLITS, print_line, print_overlap
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY, train_model, write_dictionary
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import count_lines, read_lines

Languages = Tuple[str, str]  # source and target
MINIMUM_PAIRS = {"train": 50, "valid": 5, "test": 5}  # with fewer, subwords and scores are meaningless
VALID_SHARE, TEST_SHARE = 0.035, 0.045  # shares of the pages
_SENTENCE_END = re.compile(r"[.!?]+[\"'”“’»«)\]]*\s+(?=[\"'„“‘‚»«(\[]*[^\W_])")
_NO_SENTENCE_END = re.compile(
    r"(?:^|[\s(\[\"'„“])(?:\w|\d+|etc|vs|no|nr|fig|cf|approx|incl|mr|mrs|ms|dr|prof|st|ca|bzw|usw|vgl|abb|abs|bsp|evtl"
    r"|ggf|inkl|max|min|sog|str|tel|zzgl|engl|i\.e|e\.g|z\.\s?b|d\.\s?h|u\.\s?a|o\.\s?ä)\.$",
    re.IGNORECASE,
)


class Pair(NamedTuple):
    """A source text and its translation."""

    source: str
    target: str


class PairRules(NamedTuple):
    """Limits of kept pairs."""

    min_source_words: int = 1
    is_prose: bool = False  # in two languages: no key names, formulas or untranslated text


HELP_RULES = PairRules(3, True)
LEARNT_RULES = PairRules(1, True)  # for training, short names of the interface are also kept
MAX_WORDS = 150  # of a side
LENGTH_RATIO, LENGTH_SLACK = 2.5, 3  # of the longer side of prose to the shorter, and words beyond
MIN_LETTERS = 0.65  # of the visible characters of prose


@dataclass
class Corpus:
    """Pairs per split, and the number of dropped pairs by reason."""

    splits: Dict[str, List[Pair]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    dropped: Counter = field(default_factory=Counter)

    def is_kept(self, pair: Pair, rules: PairRules) -> bool:
        """Return whether a pair keeps the rules; count it as dropped otherwise."""
        reason = rejection(pair, rules)
        self.dropped.update([reason] if reason else [])
        return reason is None


def clean_text(text: str) -> str:
    """Compose characters (NFC), remove control and invisible characters, and replace white space by single spaces."""
    return clean(text, SENTENCES)


def letter_share(text: str) -> float:
    """Return the share of letters among the characters other than white space of a text that has some."""
    visible = "".join(text.split())
    return sum(map(str.isalpha, visible)) / len(visible)


def rejection(pair: Pair, rules: PairRules) -> Optional[str]:
    """Return the first rule that a pair breaks, or None for a pair to keep."""
    words = [len(text.split()) for text in pair]
    if min(words) == 0:
        return "empty side"
    if "\ufffd" in pair.source or "\ufffd" in pair.target:
        return "broken characters"
    if rules.is_prose and pair.source == pair.target:
        return "not translated"
    if words[0] < rules.min_source_words:
        return "too short"
    if max(words) > MAX_WORDS:
        return "too long"
    if rules.is_prose and not lengths_agree(pair):
        return "lengths differ too much"
    if rules.is_prose and min(map(letter_share, pair)) < MIN_LETTERS:
        return "too few letters"
    return None


def lengths_agree(pair: Pair) -> bool:
    """Return whether neither side has more words than prose allows by those of the other."""
    fewer, more = sorted(len(text.split()) for text in pair)
    return more <= LENGTH_RATIO * fewer + LENGTH_SLACK


def split_sentences(text: str) -> List[str]:
    """Split a cleaned text into sentences at `.`, `!` and `?`; joined by single spaces they are the text.

    A text is not split after an abbreviation, a single letter or a number (German ordinals), nor before a small letter.
    """
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        following = text[end.end() :].lstrip("\"'„“‘‚»«([")
        sentence = text[start : end.end()].rstrip()
        if not following[:1].islower() and not _NO_SENTENCE_END.search(sentence):
            sentences.append(sentence)
            start = end.end()
    rest = text[start:].strip()
    return [*sentences, rest] if rest else sentences


def pair_sentences(pair: Pair) -> List[Pair]:
    """Split both sides into sentences if the sentences agree in number and lengths, else return the pair."""
    sources, targets = split_sentences(pair.source), split_sentences(pair.target)
    pairs = [Pair(source, target) for source, target in zip(sources, targets)]
    return pairs if len(sources) == len(targets) and all(map(lengths_agree, pairs)) else [pair]


def split_of_page(page: str) -> str:
    """Return the split of a page, which depends on its path alone."""
    draw = int.from_bytes(hashlib.sha256(page.encode("utf-8")).digest()[:8], "big") / 2.0**64
    if draw < TEST_SHARE:
        return "test"
    return "valid" if draw < TEST_SHARE + VALID_SHARE else "train"


def leak_key(text: str) -> str:
    """Return a key without letter case, spacing and closing marks: texts with equal keys are one sentence."""
    return " ".join(text.casefold().split()).rstrip(" .!?:;,…。！？：；，、")


def clean_pages(pages: Iterable[Tuple[str, List[Tuple[str, str]]]]) -> Corpus:
    """Clean pages of (path, [(source, target)]), pair sentences, and divide them into a corpus without leaks.

    Pages of `train` follow LEARNT_RULES, the others HELP_RULES.

    Every pair occurs once; a source sentence of `test` is neither in `train` nor in `valid`,
    one of `valid` not in `train`.
    """
    corpus = Corpus()
    for page, paragraphs in pages:
        name = split_of_page(page)
        rules = LEARNT_RULES if name == "train" else HELP_RULES
        for source, target in paragraphs:
            paragraph = Pair(clean_text(source), clean_text(target))
            if corpus.is_kept(paragraph, rules):
                sentences = pair_sentences(paragraph)
                corpus.splits[name] += [pair for pair in sentences if corpus.is_kept(pair, rules)]
    remove_repeats(corpus)
    return corpus


def add_names(corpus: Corpus, pages: Iterable[Tuple[str, List[Tuple[str, str]]]]) -> None:
    """Add names of the interface to `train` (in place): new names from its pages that are not held out."""
    held_out = {leak_key(pair.source) for name in ("valid", "test") for pair in corpus.splits[name]}
    known = set(corpus.splits["train"])
    for page, names in pages:
        for source, target in names if split_of_page(page) == "train" else ():
            pair = Pair(clean_text(source), clean_text(target))
            if pair not in known and leak_key(pair.source) not in held_out and not rejection(pair, LEARNT_RULES):
                known.add(pair)
                corpus.splits["train"].append(pair)


def remove_repeats(corpus: Corpus) -> None:
    """Drop repeated pairs of a split and, from valid and test, sources of an earlier split (in place)."""
    seen_sources: Set[str] = set()
    for name in ("train", "test", "valid"):
        pairs, seen = [], set()
        for pair in corpus.splits[name]:
            # A held-out source is scored once, whatever its translations; training may use several translations.
            key = pair if name == "train" else leak_key(pair.source)
            if key in seen:
                corpus.dropped["repeated"] += 1
            elif name != "train" and leak_key(pair.source) in seen_sources:
                corpus.dropped["held out, but known from another split"] += 1
            else:
                seen.add(key)
                pairs.append(pair)
        corpus.splits[name] = pairs
        seen_sources.update(leak_key(pair.source) for pair in pairs)


def own_corpus(train: List[Pair], valid: Optional[List[Pair]], test: Optional[List[Pair]]) -> Corpus:
    """Make a corpus of the user's pairs; a missing split is a twentieth of `train`, at most 1000, from its end.

    Args:
        train: pairs to learn from; pairs with an empty side or hundreds of words are dropped.
        valid, test: the user's pairs, which are kept line by line.
    """
    corpus = Corpus()
    usable = [pair for pair in train if corpus.is_kept(pair, PairRules())]
    held_out = min(1000, len(usable) // HELD_OUT)
    given = {"test": test, "valid": valid}
    for name in [name for name, pairs in given.items() if pairs is None]:
        cut = max(0, len(usable) - held_out)
        corpus.splits[name], usable = usable[cut:], usable[:cut]
    corpus.splits["train"] = usable
    remove_repeats(corpus)
    corpus.splits.update({name: pairs for name, pairs in given.items() if pairs is not None})
    return corpus


# --- Files: line n of the target file translates line n of the source file


def read_sentences(path: Path) -> List[str]:
    r"""Read a text file as UTF-8, with lines that end at `\n`; other line separators remain part of a line."""
    return [line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK) for line in decoded_lines(path)]


def read_pairs(prefix: str, source_lang: str, target_lang: str) -> List[Pair]:
    """Read and clean the pairs of `prefix.source_lang` and `prefix.target_lang`, empty lines included.

    Raises OSError or ValueError for a missing file, and for files that are not UTF-8 or differ in length.
    """
    paths = [Path(f"{prefix}.{lang}") for lang in (source_lang, target_lang)]
    sides = [read_sentences(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"line n of {paths[0]} and {paths[1]} must be one pair: {len(sides[0])}, {len(sides[1])} lines"
        )
    return [Pair(clean_text(source), clean_text(target)) for source, target in zip(*sides)]


def write_pairs(prefix: str, source_lang: str, target_lang: str, pairs: List[Pair]) -> None:
    """Write pairs, one per line, to the files `prefix.source_lang` and `prefix.target_lang`."""
    for side, lang in enumerate((source_lang, target_lang)):
        with open(f"{prefix}.{lang}", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{pair[side]}\n" for pair in pairs)


def write_corpus(
    corpus: Corpus,
    folder: Path,
    languages: Languages,
    limit: Optional[int] = None,
    whole: Collection[str] = (),
) -> None:
    """Write every split to `folder` as `<split>.<lang>`, record its cleaning, and print its counts.

    Args:
        limit: maximum number of training pairs; every other split keeps a twentieth of this number.
        whole: splits without the limit.

    Raises:
        ValueError: if a split has too few pairs to learn from or to be scored.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dropped = ", ".join(f"{count} {reason}" for reason, count in corpus.dropped.most_common()) or "none"
    for name, least in MINIMUM_PAIRS.items():
        if limit is not None and name not in whole:
            del corpus.splits[name][limit if name == "train" else max(limit // 20, least) :]
        found = len(corpus.splits[name])
        if found < least:
            raise ValueError(f"too few {name} pairs: {found} left, at least {least} needed (dropped: {dropped})")
        write_pairs(str(folder / name), *languages, corpus.splits[name])
    write_steps(folder, SENTENCES)
    kept = ", ".join(f"{name} {len(pairs)}" for name, pairs in corpus.splits.items())
    print_line(f"sentence pairs: {kept}; dropped: {dropped}")


# --- The data sets

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
    pieces = work.part("pieces", lambda folder: cut_pairs(text, folder, languages, args.vocab_size))
    words = ["--source-lang", languages[0], "--target-lang", languages[1], "--joined-dictionary"]
    words += [*split_options(), "--srcdict", DICTIONARY, "--workers", str(args.workers)]
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(pieces, words, folder, log))
    shutil.copyfile(pieces / MODEL, data / MODEL_FILE)
    splits = {split: {"pairs": count_lines(pieces / f"{split}.{languages[0]}")} for split in SPLITS}
    return Report(origin, splits, parts=("text", "pieces", "data-bin"))


def cut_pairs(text: Path, output: Path, languages: Sequence[str], vocabulary_size: int = SUBWORDS) -> None:
    """Split parallel text into subwords of a new joint sentencepiece model, ``joint.model``.

    Longer training pairs than LONGEST are omitted, a longer line of valid or test is an error.

    Args:
        text: folder with ``SPLIT.LANGUAGE`` of every split, cleaned by SENTENCES.
        output: folder for the same files as subwords, and ``dict.txt`` of all subwords.
    """
    output.mkdir(parents=True, exist_ok=True)
    model = output / MODEL
    lines = [line for language in languages for line in read_lines(text / f"train.{language}")]
    train_model(lines, output / model.stem, vocabulary_size, cleaning=SENTENCES)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for split in SPLITS:
        files = [f"{split}.{language}" for language in languages]
        pairs = list(zip(*(processor.encode(list(read_lines(text / file)), out_type=str) for file in files)))
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
    write_steps(output, SENTENCES)


SHARED: Tuple[Option, ...] = (
    number_option("--limit", None, "maximum number of training pairs; a twentieth of it in valid, and in test"),
    number_option("--vocab-size", SUBWORDS, "number of subwords, fewer for a small text"),
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
        members={"packages": (str(HELP),)},  # the part of their folder that is read
        layout=Layout(("text/test.en", "text/test.de", f"{DATA_BIN}/{MODEL_FILE}", *parallel("en", "de")), TRANSLATION),
        vocab_size=lambda args: args.vocab_size,
    ),
)
