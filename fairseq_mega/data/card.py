"""Data card of a data folder: ``card.json``, and the entries that its dictionaries and subword models make.

``fairseq-mega-prepare`` writes ``card.json`` into every data folder, with origin, counts, checksums and settings. A
folder without it, as fairseq-preprocess writes, has the entries that its files make. The comparison of cards,
:mod:`fairseq_mega.compat.files.card`, is in the room ``compat`` with the reading and writing of checkpoints,
and reads no data folders.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from fairseq.data import Dictionary

from fairseq_mega.compat.features.encoders import SUBWORDS_FILE, folders_of
from fairseq_mega.compat.files.card import (
    CLEANING,
    LABELS,
    LANGUAGES,
    LENGTH,
    RATE,
    SOURCE,
    SUBWORDS,
    TARGET,
    TOKENIZER,
    UNIT,
    Card,
    OtherCard,
    differences,
    digest,
    digest_of_file,
)
from fairseq_mega.compat.files.settings import settings_of

CARD_FILE = "card.json"
UNIT_FILE, CLEANING_FILE = "unit.json", "cleaning.json"  # of earlier versions, in its place
RECORDS = (CARD_FILE, "SOURCE.json")  # files with the origin of data; the second one of earlier versions
SETTINGS = (UNIT, CLEANING, LENGTH, RATE, SUBWORDS, TOKENIZER)  # entries that a card records and no file makes
_LENGTH = re.compile(r"the (first|last) (\d+) bytes")
PathLike = Union[str, "os.PathLike[str]"]


def read_json(path: Path) -> Dict[str, Any]:
    """Return the object in a file of JSON; empty if the file does not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def record_of(folder: Path) -> Dict[str, Any]:
    """Return what a folder records on its data: ``card.json``, else an earlier version's SOURCE.json; else nothing."""
    return next(filter(None, (read_json(folder / name) for name in RECORDS)), {})


def options_of(folder: Path) -> Dict[str, Any]:
    """Return the options of fairseq-mega-prepare that made the data of a folder; empty if they are not recorded."""
    return record_of(folder).get("settings", {})


def is_recorded(folder: Path) -> bool:
    """Return whether a folder has a file with the origin of its data."""
    return any((folder / name).is_file() for name in RECORDS)


def settings_of_data(folder: Path) -> Card:
    """Return the settings that a folder records, as entries of its card."""
    card = read_json(folder / CARD_FILE)
    found: Dict[str, Any] = {entry: card[entry] for entry in SETTINGS if entry in card}
    if not card:
        options = options_of(folder)
        found = {**labelled_text(options)} if options else {}
        for entry, name in ((UNIT, UNIT_FILE), (CLEANING, CLEANING_FILE)):
            found[entry] = read_json(folder / name).get(entry, found.get(entry))
    texts = {entry: "\n".join(value) if isinstance(value, list) else value for entry, value in found.items()}
    return {entry: str(text) for entry, text in texts.items() if text not in (None, "")}


def labelled_text(settings: Mapping[str, Any]) -> Card:
    """Return the entries of labelled texts made with options: bytes with ``--length`` (and ``--end``), else words."""
    length, which = settings.get("length"), "last" if settings.get("end") is True else "first"
    if not isinstance(length, int):
        return {UNIT: "words"}
    return {UNIT: "bytes", LENGTH: f"the {which} {length} bytes"}


def kept_bytes(card: Card) -> Optional[Tuple[int, bool]]:
    """Return how many bytes of a text were kept, and whether of its end; None for whole texts of words."""
    found = _LENGTH.fullmatch(card.get(LENGTH, ""))
    return None if found is None else (int(found[2]), found[1] == "last")


def write_settings(folder: Path, settings: Mapping[str, str]) -> None:
    """Add settings to the card of a folder."""
    content = {**read_json(folder / CARD_FILE), **settings}
    (folder / CARD_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def digest_of_dictionary(dictionary: Dictionary) -> str:
    """Return the SHA-256 of the tokens of a dictionary, one a line, in the order of their ids."""
    return digest("\n".join(dictionary.symbols))


def card_of_subwords(model: PathLike, *others: PathLike) -> Card:
    """Return the entry of a sentencepiece model; nothing if the file does not exist.

    Args:
        model: its file, beside the data that are read first.
        others: files beside further data, which may not exist.

    Raises:
        OtherCard: if another file is another model: the first alone is read.
    """
    if not os.path.isfile(model):
        return {}
    card = {SUBWORDS: digest_of_file(model)}
    for other in filter(os.path.isfile, others):
        refuse_differences(card, {SUBWORDS: digest_of_file(other)}, model, other)
    return card


def refuse_differences(first: Card, second: Card, *places: PathLike) -> None:
    """Raise OtherCard if the files of two data folders, of which one is read for both, differ."""
    found = differences(first, second, (str(places[0]), str(places[1])))
    if found:
        raise OtherCard(f"all data of one model must have the same files, and they differ: {'; '.join(found)}")


def card_of_task(task: Any) -> Card:
    """Return the card of the data of a task of fairseq: languages, dictionaries, subwords and recorded settings.

    Raises:
        OtherCard: if the data folders have different dictionaries or subword models; those of the first alone are read.
    """
    cfg, (folder, *further) = settings_of(task), folders_of(task)
    pair = tuple(getattr(cfg, f"{side}_lang", None) for side in (SOURCE, TARGET))
    card = settings_of_data(Path(folder))
    if all(isinstance(language, str) for language in pair):
        card[LANGUAGES] = "-".join(map(str, pair))
    languages = {SOURCE: pair[0], TARGET: pair[1], LABELS: None}
    for entry, language in languages.items():
        dictionary = getattr(task, "label_dictionary" if entry == LABELS else f"{entry}_dictionary", None)
        if isinstance(dictionary, Dictionary) and not (entry == TARGET and dictionary is task.source_dictionary):
            card[entry] = digest_of_dictionary(dictionary)
            for name in (f"dict.{language}.txt", "dict.txt"):
                refuse_other_dictionaries(entry, *(Path(place) / name for place in (folder, *further)))
    return {**card, **card_of_subwords(*(Path(place) / SUBWORDS_FILE for place in (folder, *further)))}


def refuse_other_dictionaries(entry: str, first: Path, *others: Path) -> None:
    """Raise OtherCard if the file of a dictionary, which is read for all data, differs from others that exist."""
    for other in others:
        if first.is_file() and other.is_file():
            one, two = ({entry: digest_of_dictionary(Dictionary.load(str(path)))} for path in (first, other))
            refuse_differences(one, two, first, other)
