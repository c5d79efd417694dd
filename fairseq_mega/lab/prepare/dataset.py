"""The description of a data set for fairseq-mega-prepare, and the report on making one."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from fairseq_mega.lab.prepare.checksums import Records
from fairseq_mega.lab.prepare.work_folder import WorkFolder

ARENA = "the Long Range Arena and speech"
PICTURES = "images"
LABELLED = "labelled texts and recordings"
LANGUAGE = "text for language models"
PAIRS = "parallel text for translation"


@dataclass
class Report:
    """The report on a data set that was made, for SOURCE.json.

    Attributes:
        origin: where the examples come from, in a sentence.
        splits: per split the number of examples, the labels and further counts.
        inputs: per file that was read its size and SHA-256, and its address where it was downloaded.
        notes: differences from the published data.
        parts: names of parts of the work folder that belong to the data set.
    """

    origin: str
    splits: Dict[str, Dict[str, Any]]
    inputs: Records = field(default_factory=dict)
    notes: List[str] = field(default_factory=list)
    parts: Tuple[str, ...] = ()


class Scored(NamedTuple):
    """Size of the part of a data set that is scored.

    Attributes:
        size: number of examples, or of tokens of a text.
        mean_length: of the examples, in positions; None where all have the same, or it is unknown.
    """

    size: int
    mean_length: Optional[float] = None


@dataclass(frozen=True)
class Dataset:
    """A data set of the command.

    Attributes:
        name: as given on the command line.
        kind: heading of the list that names it.
        summary: one line for the list of data sets.
        details: sizes, times and layout, for its --help.
        add_options: adds its own options to a parser.
        check: raises ValueError for options that exclude each other, before anything is made.
        make: writes the data set below ``work.output``, or as parts.
        toy: writes a little made-up data to a folder and returns the options that read them, for --smoke; ``make``
            compares them with no published count.
        usual_out: folder below ``outputs`` of the checkout where --out is left out; None where it is required.
        reads: files that the result depends on and that no option names as they are, by a name for each.
        members: by option, patterns of the files that are read in its folder; without patterns all files.
        leaves: names of all results, where the folder may contain other files; none for a folder of its own.
        scored: size of the published part that papers score; None where there is none.
    """

    name: str
    kind: str
    summary: str
    details: str
    add_options: Callable[[argparse.ArgumentParser], None]
    check: Callable[[argparse.Namespace], None]
    make: Callable[[argparse.Namespace, WorkFolder], Report]
    toy: Optional[Callable[[Path], List[str]]] = None
    usual_out: Optional[Callable[[argparse.Namespace], str]] = None
    reads: Callable[[argparse.Namespace], Dict[str, Path]] = lambda args: {}
    members: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    leaves: Tuple[str, ...] = ()
    scored: Optional[Scored] = None
