"""Plain text out of the archives: unpacked, counted, and joined for training."""

import re
import shutil
from pathlib import Path
from typing import IO, Dict, List, Sequence

from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, name_of, naming_damage, tar_files
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.wmt16.sources import LANGUAGES, TRAIN, TRAINING, Corpus
from fairseq_mega.lab.runs.files import count_lines, written_whole

SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


def read_sgm(text: str) -> List[str]:
    """Return the segments of an SGM test set, one string per ``<seg>``, white space within reduced to spaces.

    Entities are left as they stand, as Moses' input-from-sgm and sacreBLEU do.
    """
    return [" ".join(segment.split()) for segment in SEGMENT.findall(text)]


def unpack(archive: Path, output: Path, corpora: Sequence[Corpus]) -> None:
    """Write ``output/<corpus>.<language>``, plain UTF-8 text, for each of ``corpora`` stored in ``archive``.

    Bytes that are no UTF-8 become U+FFFD and are counted. Raises :class:`DownloadError` when the archive cannot be
    read.
    """
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


def check_counts(output: Path, corpora: Sequence[Corpus]) -> None:
    """Raise ValueError unless both sides of every corpus have the lines they should have."""
    for corpus in corpora:
        counts = {language: count_lines(output / f"{corpus.name}.{language}") for language in LANGUAGES}
        english, german = counts["en"], counts["de"]
        if english != german:
            raise ValueError(f"{corpus.name}: {english} English and {german} German lines")
        difference = abs(english - corpus.lines)
        if english == 0 or difference > (0 if corpus.exact else corpus.lines // 100):
            raise ValueError(
                f"{corpus.name}: expected {corpus.lines} lines, found {english} in {corpus.archive}; fetch it "
                f"again from {corpus.url}"
            )
        print_line(
            f"{corpus.name}: {english} pairs" + (f" (the shared task counts {corpus.lines})" if difference else "")
        )


def concatenate(output: Path) -> int:
    """Join the training corpora, in their order, into ``output/train.<language>``; return the number of pairs."""
    for language in LANGUAGES:
        with written_whole(output / f"{TRAIN}.{language}") as partial, open(partial, "wb") as target:
            for corpus in TRAINING:
                with open(output / f"{corpus.name}.{language}", "rb") as source:
                    shutil.copyfileobj(source, target)
    for corpus in TRAINING:
        for language in LANGUAGES:
            (output / f"{corpus.name}.{language}").unlink()
    return count_lines(output / f"{TRAIN}.{LANGUAGES[0]}")
