"""Generated tables and pictures, and marked numbers, of a checkout's documents: write them again, or compare them.

<!-- table: NAME ARGUMENT ... -->
| ... |
<!-- /table -->

<!-- picture: NAME ARGUMENT ... -->
![words](FILE.png)

The arguments are result files or folders, relative to the document. A picture contains a digest of its results, because
its bytes depend on the version of matplotlib.

Measured numbers stand within sentences, each after a mark that names its source:
``It takes <!-- n: results/layer.json mega L=4096 seconds in ms -->89 ms`` is filled from the file, relative to the
document; the number keeps its decimals. A key is a name among the scores, or a path of names and places from the top of
the file (``settings.updates``, ``curve.0.accuracy``); ``A / B`` is a ratio and ``A - B`` a difference; ``min GLOB`` and
``max GLOB`` are computed over the scores that match. ``in ms`` and ``in MiB`` convert seconds and bytes. ``B`` may
begin with another file: ``A / other.json B``. A name with ``*`` matches several files, whose values are averaged.

``<!-- n: parameters mega_lm_enwik8_base -->39,137,792`` is filled from the architecture, which is built on paper.
``parameters mega_wmt_en_de symbols=33000 share_all_embeddings=True`` names the size of the dictionary, too, and another
option.
"""

import difflib
import fnmatch
import operator
import re
import shlex
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple, TypeVar

import yaml

from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.report import benchmark_tables, comparisons, figures, pictures, recall
from fairseq_mega.lab.report.benchmark_tables import count_parameters, the_result
from fairseq_mega.lab.report.numbers import MIB
from fairseq_mega.lab.report.papers import PAPER_TABLES, PaperTable
from fairseq_mega.lab.report.recipe_states import benchmark_table, find_results, states
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.plotting import Panel, draw_panels
from fairseq_mega.lab.runs.results import Result, read_result
from fairseq_mega.lab.runs.text_tables import Table, markdown, table_of

BEGIN, END, PICTURE = "<!-- table: ", "<!-- /table -->", "<!-- picture: "
BLOCK = re.compile(rf"^{BEGIN}(?P<call>[^\n]*?) -->\n(?:(?!{BEGIN}|{END}).*\n)*{END}$", re.MULTILINE)
MARKED = re.compile(rf"^{PICTURE}(?P<call>.*?) -->\n!\[(?P<words>[^\]]*)\]\((?P<file>[^)]+)\)$", re.MULTILINE)

# Of marked numbers.
NUMBER = "<!-- n: "
BEGUN = re.compile(f"(?<!`){NUMBER}")  # and not quoted as code
MARK = re.compile(
    rf"(?P<before>(?<!`){NUMBER}(?P<file>\S+) (?P<key>[^\n]+?) -->[\[*]*)(?P<number>-?\d+(?:,\d{{3}})*(?:\.\d+)?)"
)
OTHER = re.compile(r"(?P<file>\S+\.json) (?P<key>.+)")  # a part of a key with another file
PICKS: Dict[str, Callable[..., float]] = {"min ": min, "max ": max}
OPERATIONS: Dict[str, Callable[[float, float], float]] = {" / ": operator.truediv, " - ": operator.sub}
UNITS = {" in ms": 1e3, " in MiB": 1 / MIB}
Read = Callable[[str], List[Dict[str, Any]]]  # of the results of a file's name
Made = TypeVar("Made")
Maker = Callable[[Path, Sequence[str]], Made]  # of the document's folder and the words behind the name
Draw = Callable[[Any, Path, str], None]  # of results, to a file with a digest


def in_folders(folder: Path, words: Sequence[str]) -> List[Result]:
    """Return the results of recipes in some folders."""
    return find_results([folder / word for word in words])


def of_paper(table: PaperTable) -> Maker[Table]:
    """Return the maker of a paper's table with the results in some folders."""
    return lambda folder, words: table.of_recipes(in_folders(folder, words))


def of_figure(benchmark: str, made: Callable[[List[Result]], Made]) -> Maker[Made]:
    """Return the maker of a part of a figure from the results of a benchmark in some folders."""
    return lambda folder, words: made([one for one in in_folders(folder, words) if one["benchmark"] == benchmark])


def academic_benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """Return MEGALODON's Table 1: tasks, shots and metrics of a file of lm-evaluation-harness, and values."""
    (name,) = words
    number = without_recipe()["megalodon/table1/academic-benchmarks"]
    columns = {**number.peers, "MEGALODON 7B": number.paper}
    rows = []
    for entry in yaml.safe_load((folder / name).read_text(encoding="utf-8"))["task"]:
        task = entry.get("task") or entry["group"]
        (metric,) = (measured["metric"] for measured in entry["metric_list"])
        settings = {"task of the harness": f"`{task}`", "shots": str(entry["num_fewshot"]), "metric": metric}
        rows.append({**settings, **{f"{model}, paper": f"{values[task]:.1f}" for model, values in columns.items()}})
    return table_of(rows)


TABLES: Dict[str, Maker[Table]] = {
    "benchmarks": lambda folder, words: benchmark_table(states([folder / word for word in words])),
    **{f"paper-{name}": of_paper(table) for name, table in PAPER_TABLES.items()},
    "megalodon-table1": academic_benchmarks,
    "megalodon-figure1": of_figure(figures.FIGURE1, figures.training_table),
    "megalodon-figure1-contexts": of_figure(figures.FIGURE1, figures.context_table),
    "megalodon-figure4": of_figure(figures.FIGURE4, figures.speed_table),
    **comparisons.TABLES,
    **recall.TABLES,
    **benchmark_tables.TABLES,
}


def drawn(panels: Callable[[Sequence[Result]], List[Panel]]) -> Draw:
    """Return the function that draws the panels of results."""
    return lambda results, file, source: draw_panels(panels(results), file, source=source)


PICTURES: Dict[str, Tuple[Maker[Any], Draw]] = {
    "kernels": (lambda folder, words: the_result(folder, words)["rows"], pictures.plot_rows),
    "training-accuracies": (
        lambda folder, words: [read_result(folder / name) for name in words],
        drawn(comparisons.training_panels),
    ),
    "megalodon-figure1": (of_figure(figures.FIGURE1, list), drawn(figures.figure1_panels)),
    "megalodon-figure4": (of_figure(figures.FIGURE4, list), drawn(figures.figure4_panels)),
    "classifiers": (comparisons.classifiers, drawn(comparisons.classifier_panels)),
    "recall": (
        lambda folder, words: [recall.of_task(folder, words), words[2:]],
        lambda found, file, source: draw_panels(recall.panels(*found), file, source=source),
    ),
    "pathfinder": (lambda folder, words: int(*words), pictures.draw_page),
}


def make(kind: str, call: str, makers: Mapping[str, Maker[Made]], folder: Path) -> Made:
    """Return the table, or the results of the picture, of a marker in a document of a folder.

    Raises:
        ValueError: naming kind and call, if it is unknown or its results are missing or damaged.
    """
    name, *words = shlex.split(call)
    where = f"{kind} {call!r}"
    if name not in makers:
        raise ValueError(f"{where} is unknown: give {', '.join(sorted(makers))}")
    try:
        made = makers[name](folder, words)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{where}: {error!r}" if isinstance(error, KeyError) else f"{where}: {error}") from error
    if not (made.rows if isinstance(made, Table) else made):
        raise ValueError(f"{where} has no row: its results are missing")
    return made


class Place(NamedTuple):
    """A generated table, and the words of its marker."""

    call: str
    table: Table


class Picture(NamedTuple):
    """A picture of a document: its marker's name, its file and words, its results, and their digest."""

    name: str
    file: Path
    words: str
    results: Any
    source: str

    def is_current(self) -> bool:
        """Return whether the file was drawn from these results."""
        return self.file.exists() and f"source\0{self.source}".encode() in self.file.read_bytes()


class Document(NamedTuple):
    """A document: its file, its present text, the text from its results, its tables and its pictures."""

    file: Path
    old: str
    new: str
    places: List[Place]
    pictures: List[Picture]


def documents(root: Path) -> List[Path]:
    """Return the Markdown files of a checkout.

    Raises:
        FileNotFoundError: if the folder is not a checkout.
    """
    found = [*sorted(root.glob("*.md")), *sorted(root.glob("examples/**/*.md"))]
    if root / "README.md" not in found or not (root / "examples").is_dir():
        raise FileNotFoundError(f"{root} contains no README.md and examples: give --root, the folder of a checkout")
    return found


def outside(text: str) -> str:
    """Return the text without its generated tables, but with their empty lines."""
    return BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)


def fill(file: Path) -> Document:
    """Make the tables and the numbers of a document, and read the results of its pictures.

    Raises:
        ValueError: naming the document, for a wrong marker, or if a result is missing or damaged.
    """
    places: List[Place] = []

    def filled(match: "re.Match[str]") -> str:
        places.append(Place(match["call"], make("table", match["call"], TABLES, file.parent)))
        return f"{BEGIN}{match['call']} -->\n{markdown(places[-1].table)}\n{END}"

    try:
        old = file.read_text(encoding="utf-8")
        for number, line in enumerate(MARKED.sub("\n", outside(old)).splitlines(), 1):
            if line.startswith((BEGIN, END, PICTURE)):
                raise ValueError(
                    f"line {number}: a table begins with '{BEGIN}NAME ... -->' and ends with '{END}'; "
                    f"'{PICTURE}NAME ... -->' stands in the line before '![words](file)'"
                )
        new = fill_numbers(file.parent, BLOCK.sub(filled, old))
        return Document(file, old, new, places, [picture_of(match, file.parent) for match in MARKED.finditer(old)])
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def picture_of(match: "re.Match[str]", folder: Path) -> Picture:
    """Return a marked picture of a document in a folder."""
    results = make("picture", match["call"], {name: read for name, (read, _) in PICTURES.items()}, folder)
    return Picture(shlex.split(match["call"])[0], folder / match["file"], match["words"], results, digest(results))


def fill_numbers(folder: Path, text: str) -> str:
    """Return the text of a document in a folder with every marked number replaced.

    Raises:
        ValueError: naming the mark, if it is incomplete, or its file or key is missing.
    """
    cached = lru_cache(maxsize=None)(read_result)

    def read(name: str) -> List[Dict[str, Any]]:
        paths = sorted(folder.glob(name)) if "*" in name else [folder / name]
        if not paths:
            raise ValueError("no file matches")
        return list(map(cached, paths))

    def filled(match: "re.Match[str]") -> str:
        try:
            value = _value(read, match["file"], match["key"])
        except (OSError, ValueError) as error:
            raise ValueError(f"number of {match['file']} {match['key']}: {error}") from error
        return f"{match['before']}{value:,.{len(match['number'].partition('.')[2])}f}"

    for number, line in enumerate(text.splitlines(), 1):
        if len(BEGUN.findall(line)) != len(MARK.findall(line)):
            raise ValueError(f"line {number}: write a mark as '{NUMBER}FILE KEY -->NUMBER' in one line")
    return MARK.sub(filled, text)


def _value(read: Read, file: str, key: str) -> float:
    if file == "parameters":
        return count_parameters(key)
    for unit, factor in UNITS.items():
        if key.endswith(unit):
            return factor * _value(read, file, key[: -len(unit)])
    for sign, operation in OPERATIONS.items():
        left, found, right = key.partition(sign)
        if found:
            other = OTHER.fullmatch(right)
            return operation(_value(read, file, left), _value(read, *(other.groups() if other else (file, right))))
    return statistics.fmean(_number(result, key) for result in read(file))


def _number(result: Dict[str, Any], key: str) -> float:
    scores = result["scores"]
    for word, pick in PICKS.items():
        names = fnmatch.filter(scores, key[len(word) :]) if key.startswith(word) else []
        if names:
            return pick(scores[name] for name in names)
    if key in scores:
        return float(scores[key])
    found: Any = result
    try:
        for name in key.split("."):
            found = found[int(name) if isinstance(found, list) else name]
    except (LookupError, TypeError, ValueError):
        found = None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError("the file has no such number")
    return float(found)


def write(root: Path) -> Iterator[Path]:
    """Write all tables and numbers again, and draw pictures that are missing or of other results; yield what changed.

    Nothing is written if one table, number or picture cannot be made.
    """
    found = list(map(fill, documents(root)))
    for document in found:
        if document.new != document.old:
            document.file.write_text(document.new, encoding="utf-8")
            yield document.file
    for picture in (one for document in found for one in document.pictures if not one.is_current()):
        PICTURES[picture.name][1](picture.results, picture.file, picture.source)
        yield picture.file


def differences(root: Path) -> List[str]:
    """Return the differences of all tables and numbers from their results, as ``diff -u``, and outdated pictures."""
    found: List[str] = []
    for document in map(fill, documents(root)):
        name, texts = str(document.file.relative_to(root)), (document.old.splitlines(), document.new.splitlines())
        found += difflib.unified_diff(*texts, name, f"{name} (from its results)", n=0, lineterm="")
        outdated = [picture.file.relative_to(root) for picture in document.pictures if not picture.is_current()]
        found += [f"{file}: was not drawn from its present results" for file in outdated]
    return found
