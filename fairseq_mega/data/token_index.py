"""Token counts of files of JSON lines, in spans of about 1 MiB, counted once and written beside the files.

Only the counts of a corpus are in memory, about 20 bytes for each MiB of text. The counts determine the position of
every token, so a training can begin anywhere in the corpus.
"""

import hashlib
import json
import logging
import zipfile
import zlib
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import numpy as np

from fairseq_mega.compat.files.locks import held
from fairseq_mega.compat.files.saving import written_whole

from .json_lines import Source, read_texts
from .text_units import SubwordVocabulary

logger = logging.getLogger(__name__)
SPAN = 1 << 20  # bytes; a longer line is a separate span


class TokenIndex(NamedTuple):
    """Spans of a file.

    Attributes:
        begins: (spans + 1,) int64, bytes at which spans begin, and the size of the file.
        tokens: (spans,) int64, tokens of each span.
        documents, skipped: number of texts, and of skipped lines.
    """

    begins: np.ndarray
    tokens: np.ndarray
    documents: int
    skipped: int


def count(source: Source, vocabulary: SubwordVocabulary) -> TokenIndex:
    """Count the tokens of a whole file, on all cores.

    Raises:
        ValueError: for a bad line, see :func:`read_texts`.
    """
    size, begins, tokens = source.path.stat().st_size, [0], []  # spans begin at line ends about SPAN apart
    documents = skipped = 0
    with source.path.open("rb") as file:
        while begins[-1] < size:
            file.seek(min(begins[-1] + SPAN, size) - 1)
            file.readline()
            begins.append(file.tell())
            texts = list(read_texts(source, *begins[-2:]))
            found = [text for text in texts if text is not None]
            tokens.append(sum(map(len, vocabulary.encode(found, threads=-1))))
            documents, skipped = documents + len(found), skipped + len(texts) - len(found)
            if len(tokens) % 500 == 0:
                logger.info(f"{source.path.name}: counted the tokens of {begins[-1] / size:.1%}")
    return TokenIndex(np.array(begins, np.int64), np.array(tokens, np.int64), documents, skipped)


def load_or_count(source: Source, vocabulary: SubwordVocabulary, folder: Optional[Path] = None) -> TokenIndex:
    """Load the index of a file, or count the tokens if there is no index for file, vocabulary and settings.

    If several processes call this function at the same time, one of them counts.

    Args:
        source: the file.
        vocabulary: vocabulary of the tokens.
        folder: folder of the index; default: the folder of the file.

    Raises:
        OSError: if the file cannot be read, or the index cannot be written.
        ValueError: for a bad line.
    """
    state = source.path.stat()
    of = {"size": state.st_size, "changed": state.st_mtime_ns, "model": vocabulary.digest, "span": SPAN}
    about = json.dumps({**of, "field": source.field, "bad_lines": source.bad_lines})
    path = index_path(source.path, folder)
    found = read(path, about)
    if found is None:
        with held(path.with_suffix(".lock"), f"the index of {source.path}", "training"):
            found = read(path, about)
            if found is None:
                logger.info(f"{source.path}: counting the tokens once ({state.st_size / 1e6:,.0f} MB)")
                found = count(source, vocabulary)
                write(path, found, about)
    return found


def index_path(path: Path, folder: Optional[Path]) -> Path:
    """Return the path of a file's index: hidden beside the file, or in ``folder`` with a digest of the path."""
    if folder is None:
        return path.with_name(f".{path.name}.index.npz")
    return folder / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.{path.name}.index.npz"


def write(path: Path, index: TokenIndex, about: str) -> None:
    """Write an index atomically."""
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, about=np.array(about), **index._asdict())


def read(path: Path, about: str) -> Optional[TokenIndex]:
    """Read an index; None if it is missing, damaged or belongs to other settings."""
    try:
        with np.load(path, allow_pickle=False) as file:
            values: Dict[str, Any] = {name: file[name] for name in file.files}
        if str(values.pop("about", "")) != about:
            return None
        return TokenIndex(values["begins"], values["tokens"], int(values["documents"]), int(values["skipped"]))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):  # missing, or damaged
        return None
