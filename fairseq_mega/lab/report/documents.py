"""Generated tables and pictures, and marked numbers, of a checkout's documents: write them again, or compare them.

<!-- table: NAME ARGUMENT ... -->
| ... |
<!-- /table -->

<!-- picture: NAME ARGUMENT ... -->
![words](FILE.png)

The arguments are result files or folders, relative to the document. A picture contains a digest of its results, because
its bytes depend on the version of matplotlib.
"""

import re
import shlex
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

import yaml

from fairseq_mega.lab.benchmarks.kernels_report import plot_rows
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.report import benchmark_tables, comparisons, figures, pictures
from fairseq_mega.lab.report.benchmark_tables import the_result
from fairseq_mega.lab.report.marked_numbers import Number, fill_numbers
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.recipe_states import benchmark_table, find_results, states
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import Result, read_result, read_results
from fairseq_mega.lab.runs.text_tables import Table, markdown, table_of

BEGIN, END, PICTURE = "<!-- table: ", "<!-- /table -->", "<!-- picture: "
BLOCK = re.compile(rf"^{BEGIN}(?P<call>[^\n]*?) -->\n(?P<body>(?:(?!{BEGIN}|{END}).*\n)*){END}$", re.MULTILINE)
IMAGE = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<file>[^)]+)\)")
TITLE = re.compile(r"#+ (?P<heading>.+)|\*\*(?P<bold>[^*]+)\*\*")

Made = TypeVar("Made")
Maker = Callable[[Path, Sequence[str]], Made]  # of the document's folder and the words behind the name
Draw = Callable[[Any, Path, str], None]  # of results, to a file with a digest


def benchmarks(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each benchmark of the papers, with the results in some folders."""
    return benchmark_table(states([folder / word for word in words]))


def of_paper(folder: Path, words: Sequence[str], name: str) -> Table:
    """Return a table of a paper, by the name of its report, with the results in some folders."""
    return PAPER_TABLES[name].of_recipes(find_results([folder / word for word in words]))


def of_benchmark(folder: Path, words: Sequence[str], benchmark: str) -> List[Result]:
    """Return the results of a benchmark in some folders."""
    return [result for result in find_results([folder / word for word in words]) if result["benchmark"] == benchmark]


def of_figure(folder: Path, words: Sequence[str], benchmark: str, table: Callable[[Sequence[Result]], Table]) -> Table:
    """Return a table of the results of a figure in some folders."""
    return table(of_benchmark(folder, words, benchmark))


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


def classifiers(folder: Path, words: Sequence[str]) -> List[Result]:
    """Return the results of classifiers in some folders, whose names may contain wildcards."""
    places = [place for word in words for place in sorted(folder.glob(word))]
    found = [result for place in places for result in read_results(place, comparisons.CLASSIFIERS)]
    return sorted(found, key=comparisons.order)


TABLES: Dict[str, Maker[Table]] = {
    "benchmarks": benchmarks,
    **{f"paper-{name}": partial(of_paper, name=name) for name in PAPER_TABLES},
    "megalodon-table1": academic_benchmarks,
    "megalodon-figure1": partial(of_figure, benchmark=figures.FIGURE1, table=figures.training_table),
    "megalodon-figure1-contexts": partial(of_figure, benchmark=figures.FIGURE1, table=figures.context_table),
    "megalodon-figure4": partial(of_figure, benchmark=figures.FIGURE4, table=figures.speed_table),
    **comparisons.TABLES,
    **benchmark_tables.TABLES,
}
PICTURES: Dict[str, Tuple[Maker[Any], Draw]] = {
    "kernels": (lambda folder, words: the_result(folder, words)["rows"], plot_rows),
    "training-accuracies": (
        lambda folder, words: [read_result(folder / name) for name in words],
        pictures.plot_accuracies,
    ),
    "megalodon-figure1": (partial(of_benchmark, benchmark=figures.FIGURE1), figures.plot_megalodon_figure1),
    "megalodon-figure4": (partial(of_benchmark, benchmark=figures.FIGURE4), figures.plot_megalodon_figure4),
    "classifiers": (classifiers, comparisons.plot_classifiers),
    "pathfinder": (lambda folder, words: int(*words), pictures.draw_page),
}


class Call(NamedTuple):
    """A marker of a table or a picture: its name, and its result files or folders."""

    name: str
    words: List[str]

    def __str__(self) -> str:
        return shlex.join([self.name, *self.words])

    def make(self, kind: str, makers: Mapping[str, Maker[Made]], folder: Path) -> Made:
        """Return the table, or the results of the picture, of a document in a folder.

        Raises:
            ValueError: naming kind and call, if it is unknown or its results are missing or damaged.
        """
        where = f"{kind} {str(self)!r}"
        if self.name not in makers:
            raise ValueError(f"{where} is unknown: give {', '.join(sorted(makers))}")
        try:
            made = makers[self.name](folder, self.words)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{where}: {error!r}" if isinstance(error, KeyError) else f"{where}: {error}") from error
        if not (made.rows if isinstance(made, Table) else made):
            raise ValueError(f"{where} has no row: its results are missing")
        return made


def call_of(text: str) -> Call:
    """Return the call in a marker."""
    name, *words = shlex.split(text)
    return Call(name, words)


class Place(NamedTuple):
    """A generated table, with its document and its marker."""

    document: Path
    call: Call
    table: Table
    text: str  # the present text of the table


class Picture(NamedTuple):
    """A picture of a document, its marker, the words below it, its results, and their digest."""

    document: Path
    call: Call
    file: Path
    words: str
    results: Any
    source: str

    def is_current(self) -> bool:
        """Return whether the file was drawn from these results."""
        return self.file.exists() and f"source\0{self.source}".encode() in self.file.read_bytes()


class Filled(NamedTuple):
    """A document, its present text and the text from its results, with its tables and its marked numbers."""

    document: Path
    old: str
    new: str
    places: List[Place]
    numbers: List[Number]


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


def titles(text: str) -> List[str]:
    """Return a title for each generated table: the words in bold at the head of a paragraph above it, or a heading."""
    found, title = [], ""
    for line in text.splitlines():
        named = TITLE.match(line)
        if line.startswith(BEGIN):
            found.append(title)
        elif named is not None:
            title = (named["heading"] or named["bold"]).replace("`", "").strip().rstrip(".:")
    return found


def fill(document: Path) -> Filled:
    """Make the tables and the numbers of a document.

    Raises:
        ValueError: naming the document, for a wrong marker, or if a result is missing or damaged.
    """
    places: List[Place] = []

    def filled(match: "re.Match[str]") -> str:
        call = call_of(match["call"])
        places.append(Place(document, call, call.make("table", TABLES, document.parent), match["body"].rstrip()))
        return f"{BEGIN}{match['call']} -->\n{markdown(places[-1].table)}\n{END}"

    try:
        old = document.read_text(encoding="utf-8")
        for number, line in enumerate(outside(old).splitlines(), 1):
            if line.startswith(BEGIN) or line == END:
                raise ValueError(f"line {number}: a table begins with '{BEGIN}NAME ... -->' and ends with '{END}'")
        new, numbers = fill_numbers(document.parent, BLOCK.sub(filled, old))
    except ValueError as error:
        raise ValueError(f"{document}: {error}") from error
    return Filled(document, old, new, places, numbers)


def places_of(root: Path) -> List[Place]:
    """Return all generated tables of a checkout."""
    return [place for document in documents(root) for place in fill(document).places]


def drawn(root: Path) -> Iterator[Picture]:
    """Yield the marked pictures of a checkout.

    Raises:
        ValueError: naming the document, for a marker without a picture below, or if results are missing or damaged.
    """
    for document in documents(root):
        lines = document.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if not line.startswith(PICTURE):
                continue
            image = IMAGE.fullmatch(lines[number]) if number < len(lines) else None
            try:
                if image is None or not line.endswith(" -->"):
                    raise ValueError(
                        f"line {number}: '{PICTURE}NAME ... -->' stands in the line before '![words](file)'"
                    )
                call = call_of(line[len(PICTURE) : -len(" -->")])
                results = call.make("picture", {name: read for name, (read, _) in PICTURES.items()}, document.parent)
            except ValueError as error:
                raise ValueError(f"{document}: {error}") from error
            yield Picture(document, call, document.parent / image["file"], image["words"], results, digest(results))


def write(root: Path) -> List[Path]:
    """Write all tables and numbers again, or none if one cannot be made; return the changed documents."""
    changed = [filled for filled in map(fill, documents(root)) if filled.new != filled.old]
    for filled in changed:
        filled.document.write_text(filled.new, encoding="utf-8")
    return [filled.document for filled in changed]


def draw_outdated(root: Path) -> List[Path]:
    """Draw the pictures again that are missing or were drawn from other results, and return them."""
    changed = [picture for picture in drawn(root) if not picture.is_current()]
    for picture in changed:
        _, draw = PICTURES[picture.call.name]
        draw(picture.results, picture.file, picture.source)
    return [picture.file for picture in changed]


def differences(root: Path) -> List[str]:
    """Return a line for every row, number and picture that differs from its results."""
    found = [line for document in documents(root) for line in differences_in(fill(document), root)]
    outdated = [picture.file.relative_to(root) for picture in drawn(root) if not picture.is_current()]
    return [*found, *(f"{file}: was not drawn from its present results" for file in outdated)]


def differences_in(filled: Filled, root: Path) -> List[str]:
    """Return a line for every row and every number of a document below `root` that differs from its results."""
    found = []
    for place in filled.places:
        expected = markdown(place.table).splitlines()
        for row, (stands, should) in enumerate(zip_longest(place.text.splitlines(), expected)):
            if stands != should:
                where = f"table '{place.call.name}', {row_title(row, should)}"
                found.append(f"{where}: {quoted(stands)}, not {quoted(should)}")
    for number in filled.numbers:
        if number.stands != number.should:
            found.append(f"{number.key} of {number.file}: {number.stands}, not {number.should}")
    return [f"{filled.document.relative_to(root)}: {line}" for line in found]


def row_title(row: int, line: Optional[str]) -> str:
    """Return the name of a row of a table in words: "head", or its number and first cell."""
    first = "" if line is None else line.split("|")[1].strip()
    return "head" if row == 0 else f"row {row - 1}" + (f" ({first})" if first else "")


def quoted(line: Optional[str]) -> str:
    """Return a line of a table, for a message."""
    return "nothing" if line is None else f"'{line}'"
