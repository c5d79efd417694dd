"""Numbers of words beside a text, for the perplexity per word of models that read subwords."""

import json
from pathlib import Path
from typing import Dict, Optional

WORDS_FILE = "words.json"  # {"test": 6966499}: words of each split, by which the likelihood of its tokens is divided


def words_of(folder: Path, subset: str) -> Optional[int]:
    """Return the number of words of a split, None where the folder has no record.

    Raises:
        ValueError: if the record has another form.
    """
    path = folder / WORDS_FILE
    if not path.is_file():
        return None
    try:
        found: Dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        words = found.get(subset)
    except (ValueError, AttributeError) as error:
        raise ValueError(f'{path}: {error}; it must hold the words of each split, {{"test": NUMBER}}') from error
    if words is not None and (type(words) is not int or words < 1):
        raise ValueError(f"{path}: {subset} has {words!r} words: give a whole number above 0")
    return words
