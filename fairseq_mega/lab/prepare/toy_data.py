"""Toy data in place of what data sets are made of, in the same files, so that they pass the same steps.

A function of TOYS writes toy data to a folder, and returns the options of fairseq-mega-prepare that read them. Scores
on toy data are meaningless.
"""

import gzip
import io
import pickle
import random
import tarfile
import wave
import zipfile
from itertools import product
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Tuple

import numpy as np

from fairseq_mega.lab.prepare.archives import LRA, name_of
from fairseq_mega.lab.prepare.language_modeling.texts import GCIDE
from fairseq_mega.lab.prepare.libreoffice_help import HELP
from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.prepare.wmt16 import CORPORA, LANGUAGES, TRAINING, Corpus, archive_urls
from fairseq_mega.lab.runs.files import written_whole


def begun(folder: Path) -> np.random.Generator:
    """Create a folder, and return the random generator for its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    return np.random.default_rng(1)


def add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Put a file into an archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


# --- Labelled examples


def text(draw: np.random.Generator) -> str:
    """A few words."""
    return " ".join(draw.choice(("good", "bad", "fine", "poor", "long", "short"), size=draw.integers(3, 9)))


def imdb(folder: Path) -> List[str]:
    """Tables of reviews: label, rating and text."""
    draw = begun(folder)
    for split, count in (("train", 32), ("test", 16)):
        rows = [f"{number % 2}\t{1 + 8 * (number % 2)}\t{text(draw)}\n" for number in range(count)]
        (folder / f"{split}.tsv").write_text("".join(rows))
    return ["--tsv-train", str(folder / "train.tsv"), "--tsv-test", str(folder / "test.tsv")]


def aan(folder: Path) -> List[str]:
    """The released archive with tables of pairs: label, two numbers and two texts."""
    draw = begun(folder)
    with tarfile.open(folder / name_of(LRA), "w:gz") as archive:
        for split, count in (("train", 32), ("eval", 8), ("test", 8)):
            rows = [f"{number % 2}.0\t1\t2\t{text(draw)}\t{text(draw)}\n" for number in range(count)]
            add_file(archive, f"lra_release/tsv_data/new_aan_pairs.{split}.tsv", "".join(rows).encode())
    return ["--released", "--archives", str(folder)]


def cifar10(folder: Path) -> List[str]:
    """The archive of pickled batches, of images whose three colours are alike."""
    draw, path = begun(folder), folder / "cifar-10-python.tar.gz"
    batches = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    images = [*np.split(draw.integers(0, 256, (40, 1024), dtype=np.uint8), 5)]
    images.append(draw.integers(0, 256, (10, 1024), dtype=np.uint8))
    with tarfile.open(path, "w:gz") as archive:
        for number, (name, grey) in enumerate(zip(batches, images)):
            labels = [(8 * number % 40 + row) % 10 for row in range(len(grey))]
            content = pickle.dumps({b"data": np.tile(grey, 3), b"labels": labels})
            add_file(archive, f"cifar-10-batches-py/{name}", content)
    return ["--archive", str(path)]


def speech_commands(folder: Path) -> List[str]:
    """The archive with a folder of recordings per word, one second each."""
    from fairseq_mega.lab.prepare.classification.sounds import WORDS  # and fairseq

    draw, path = begun(folder), folder / "speech_commands_v0.02.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for word, number in product(WORDS, range(7)):  # the smallest number with clips in every split
            sound = io.BytesIO()
            with wave.open(sound, "wb") as clip:
                clip.setparams((1, 2, 16000, 0, "NONE", ""))
                clip.writeframes(draw.integers(-3000, 3000, 16000).astype("<i2").tobytes())
            add_file(archive, f"{word}/{number}.wav", sound.getvalue())
    return ["--archive", str(path)]


def jpeg(draw: np.random.Generator) -> bytes:
    """An image in colour, wider than high."""
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(packed, "JPEG")
    return packed.getvalue()


def imagenet(folder: Path) -> List[str]:
    """Archives of colour images, and their development kit."""
    draw = begun(folder)
    from scipy.io import savemat

    classes = [f"n{number:08}" for number in (4, 2, 3, 1)]  # by their numbers in the kit, which are not sorted
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for name in classes:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for number in range(12):
                    add_file(archive, f"{name}_{number}.JPEG", jpeg(draw))
            add_file(outer, f"{name}.tar", inner.getvalue())
    truth = [1 + number % len(classes) for number in range(16)]
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as archive:
        for number in reversed(range(len(truth))):
            add_file(archive, f"ILSVRC2012_val_{number + 1:08}.JPEG", jpeg(draw))
    numbered = list(enumerate([*classes, "n99999999"], 1))  # the last is an inner node, without images
    synsets = np.array(numbered, dtype=[("ILSVRC2012_ID", "f8"), ("WNID", "O")])
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets[:, None]})
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as archive:
        lines = "".join(f"{number}\n" for number in truth).encode()
        for name, content in (("meta.mat", meta.getvalue()), ("ILSVRC2012_validation_ground_truth.txt", lines)):
            add_file(archive, f"ILSVRC2012_devkit_t12/data/{name}", content)
    return ["--archives", str(folder)]


# --- Texts for language models

SIZE = 20_000  # bytes of a text
WIKITEXT_LINES = {"train": 400, "valid": 40, "test": 45}
NOUNS = ("river", "tower", "ship", "law", "garden", "song", "engine", "<unk>")
VERBS = ("follows", "carries", "describes", "crosses", "resembles")
ENDINGS = (".", "; it is old .", "in 1913 .", "– or so they say .", "of Straße 5 .")


def sentence(draw: random.Random) -> str:
    """Return an English-like sentence."""
    return f"the {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} {draw.choice(ENDINGS)}"


def wikitext_lines(split: str) -> List[str]:
    """Return lines in the shape of WikiText: blank lines, headings, paragraphs of several sentences."""
    draw = random.Random(split)
    lines = []
    for number in range(WIKITEXT_LINES[split]):
        if number % 5 == 0:
            lines.append(" ")
        elif number % 5 == 1:
            lines.append(f" = The {draw.choice(NOUNS)} = ")
        else:
            lines.append(f" {' '.join(sentence(draw) for _ in range(draw.randint(1, 6)))} ")
    return lines


def running_text(size: int = SIZE) -> bytes:
    """Return `size` bytes of lines; the last line is incomplete, and some lines are empty."""
    draw = random.Random(size)
    text = b""
    while len(text) < size:
        text += b"\n" if draw.random() < 0.1 else f"   {sentence(draw)}\n".encode()
    return text[:size]


def enwik8(folder: Path) -> List[str]:
    """The archive, shorter."""
    with zipfile.ZipFile(folder / "enwik8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("enwik8", running_text())
    return ["--archive", str(folder / "enwik8.zip")]


def wikitext(folder: Path) -> List[str]:
    """The archive, for both versions."""
    with zipfile.ZipFile(folder / "wikitext-103-v1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for split in SPLITS:
            text = "".join(f"{line}\n" for line in wikitext_lines(split))
            archive.writestr(f"wikitext-103/wiki.{split}.tokens", text)
    return ["--archive", str(folder / "wikitext-103-v1.zip")]


def gcide(folder: Path) -> List[str]:
    """The dictionary, packed as in its package."""
    (folder / GCIDE).parent.mkdir(parents=True)
    (folder / GCIDE).write_bytes(gzip.compress(running_text()))
    return ["--packages", str(folder)]


def text_lm(folder: Path) -> List[str]:
    """Plain text, whose last line is complete."""
    (folder / "own.txt").write_bytes(running_text().rpartition(b"\n")[0] + b"\n")
    return ["--train", str(folder / "own.txt")]


def pg19(folder: Path) -> List[str]:
    """Books and a vocabulary."""
    draw = random.Random(1)
    words = ["the", "old", "house", "by", "sea", "had", "stood", "empty", "since", "captain", "sailed", "away", "with"]
    lines = [" ".join(draw.choices(words, k=draw.randint(4, 12))) for _ in range(400)]
    for split, count in (("train", 12), ("validation", 2), ("test", 3)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / split / f"{number}.txt").write_text("\n".join(draw.choices(lines, k=60)), encoding="utf-8")
    train_model(lines, folder / "vocabulary", 60)
    return ["--books", str(folder), "--vocabulary", str(folder / "vocabulary.model")]


# --- Translations

# 45 test sentences: not a multiple of 8, so that a dropped last batch would be noticed.
WMT16_LINES = {
    "europarl-v7": 500,
    "commoncrawl": 400,
    "news-commentary-v11": 300,
    "newstest2013": 9,
    "newstest2014": 45,
    "newstest2015": 11,
    "newstest2016": 9,
}
ADJECTIVES = {"old": "alte", "new": "neue", "small": "kleine", "round": "runde"}
THINGS = {"button": "Knopf", "text": "Text", "table": "Tisch", "printer": "Drucker", "folder": "Ordner"}
VERBS_OF_PAIRS = {"shows": "zeigt", "opens": "öffnet", "moves": "bewegt", "holds": "hält"}
NOUNS_OF_PAIRS = list(product(ADJECTIVES, THINGS))
SENTENCES = [(*first, verb, *second) for first, verb, second in product(NOUNS_OF_PAIRS, VERBS_OF_PAIRS, NOUNS_OF_PAIRS)]


def sentence_pair(words: Sequence[str]) -> Tuple[str, str]:
    """Return an English sentence of SENTENCES and its translation."""
    old, one, verb, new, other = words
    german = f"Der {ADJECTIVES[old]} {THINGS[one]} {VERBS_OF_PAIRS[verb]} den {ADJECTIVES[new]}n {THINGS[other]}."
    return f"The {old} {one} {verb} the {new} {other}.", german


def corpus_pairs(corpus: Corpus) -> List[Tuple[str, str]]:
    """Return the sentence pairs of a corpus, the same ones each time; training corpora have some rough lines."""
    rng = random.Random(corpus.name)
    pairs = [sentence_pair(words) for words in rng.sample(SENTENCES, WMT16_LINES[corpus.name])]
    if corpus in TRAINING:
        pairs[3] = ("", "")
        pairs[5] = (
            "Soft\u00adhyphen and\ttab and\u200bzero width line .",
            "Weicher\u00adTrennstrich und\tTabulator hier .",
        )
        pairs[7] = ("Too short", "Viel zu lang im Vergleich zum Englischen , das hier nur zwei kurze Wörter hat .")
    return pairs


def sgm(lines: Sequence[str], set_id: str, role: str) -> str:
    """Return the lines as an SGM test set with two documents."""
    kind, half = f"{role}set", len(lines) // 2
    documents = [
        f'<doc docid="smoke-{number}">\n<p>\n'
        + "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(part, start=1))
        + "</p>\n</doc>\n"
        for number, part in enumerate((lines[:half], lines[half:]))
    ]
    return f'<{kind} setid="{set_id}" srclang="any">\n{"".join(documents)}</{kind}>\n'


def wmt16(folder: Path) -> List[str]:
    """The five archives, filled with an invented language pair."""
    for url in archive_urls():
        with written_whole(folder / name_of(url)) as partial, tarfile.open(partial, "w:gz") as archive:
            for corpus in CORPORA:
                for language, lines in zip(LANGUAGES, zip(*corpus_pairs(corpus))) if corpus.url == url else ():
                    name = corpus.files[language][0]
                    role, plain = "src" if "-src." in name else "ref", "".join(f"{line}\n" for line in lines)
                    content = sgm(lines, corpus.name, role) if name.endswith(".sgm") else plain
                    add_file(archive, f"smoke/{name}", content.encode())
    return ["--archives", str(folder), "--no-download"]


def help_pairs(folder: Path) -> List[str]:
    """Unpacked help pages in English and German."""
    pages = 200  # a few are held out for valid and test
    for page in range(pages):
        texts = {"en-US": "", "de": ""}
        for number, words in enumerate(SENTENCES[page :: 2 * pages]):
            for language, sentence in zip(texts, sentence_pair(words)):
                texts[language] += f'<p id="par_id{number}">{sentence}</p>\n'
        for language, text in texts.items():
            path = folder / HELP / language / "text" / f"page{page}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return ["--packages", str(folder)]


TOYS: Dict[str, Callable[[Path], List[str]]] = {  # by data set
    "listops": lambda folder: ["--count", "100", "--min-length", "10", "--max-length", "40"],
    "imdb": imdb,
    "aan": aan,
    "cifar10": cifar10,
    "pathfinder32": lambda folder: ["--count", "50"],
    "pathx": lambda folder: ["--count", "20"],
    "speech-commands": speech_commands,
    "imagenet": imagenet,
    "enwik8": enwik8,
    "wikitext": wikitext,
    "gcide": gcide,
    "text-lm": text_lm,
    "pg19": pg19,
    **dict.fromkeys(("recall", "tracking", "needle"), lambda folder: ["--count", "40"]),
    "wmt16": wmt16,
    "help-pairs": help_pairs,
}
