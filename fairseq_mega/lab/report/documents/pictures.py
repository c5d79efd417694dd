"""Pictures of documents that are drawn from results, each below a marker.

<!-- picture: NAME ARGUMENT ... -->
![words](FILE.png)

A picture contains a digest of its results, because its bytes depend on the version of matplotlib.
"""

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

from fairseq_mega.lab.benchmarks.kernels_report import plot_rows
from fairseq_mega.lab.report import classifiers, megalodon_figure1, megalodon_figure4, pathfinder_page
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import read_result, read_results

from . import accuracies as accuracy_curves
from .filling import documents
from .markers import Call, make, pictures
from .papers import of_benchmark


class Drawing(NamedTuple):
    """The results of a picture, a JSON value, and the function that draws them to a file with a digest."""

    results: Any
    draw: Callable[[Any, Path, str], None]


class Picture(NamedTuple):
    """A picture of a document, its marker, the words below it, its drawing, and the digest of the results."""

    document: Path
    call: Call
    file: Path
    words: str
    drawing: Drawing
    source: str

    def is_current(self) -> bool:
        """Return whether the file was drawn from these results."""
        return self.file.exists() and f"source\0{self.source}".encode() in self.file.read_bytes()


def kernels(folder: Path, words: Sequence[str]) -> Drawing:
    """Drawing of the operators' times in a result file."""
    (name,) = words
    return Drawing(read_result(folder / name)["rows"], plot_rows)


def figure1(folder: Path, words: Sequence[str]) -> Drawing:
    """Drawing of MEGALODON's Figure 1 with the results in some folders."""
    return Drawing(of_benchmark(folder, words, megalodon_figure1.BENCHMARK), megalodon_figure1.plot)


def figure4(folder: Path, words: Sequence[str]) -> Drawing:
    """Drawing of MEGALODON's Figure 4 with the results in some folders."""
    return Drawing(of_benchmark(folder, words, megalodon_figure4.BENCHMARK), megalodon_figure4.plot)


def accuracies(folder: Path, words: Sequence[str]) -> Drawing:
    """Drawing of the classifiers' validation accuracies in some folders, whose names may contain wildcards."""
    places = [place for word in words for place in sorted(folder.glob(word))]
    found = [result for place in places for result in read_results(place, classifiers.BENCHMARK)]
    return Drawing(sorted(found, key=classifiers.order), classifiers.plot)


def training_accuracies(folder: Path, words: Sequence[str]) -> Drawing:
    """The validation accuracies of some result files, over updates and hours."""
    return Drawing([read_result(folder / name) for name in words], accuracy_curves.plot)


def pathfinder(folder: Path, words: Sequence[str]) -> Drawing:
    """Drawing of images of Pathfinder of a size."""
    (size,) = words
    return Drawing(int(size), pathfinder_page.draw_size)


PICTURES: Dict[str, Callable[[Path, Sequence[str]], Drawing]] = {
    "kernels": kernels,
    "training-accuracies": training_accuracies,
    "megalodon-figure1": figure1,
    "megalodon-figure4": figure4,
    "classifiers": accuracies,
    "pathfinder": pathfinder,
}


def drawing_of(document: Path, call: Call) -> Drawing:
    """Return the drawing of a document's marker.

    Raises:
        ValueError: naming document and picture, if it is unknown or its results are missing or damaged.
    """
    drawing = make("picture", PICTURES, document, call)
    if not drawing.results:
        raise ValueError(f"{document}: picture {str(call)!r} has no results")
    return drawing


def drawn(root: Path) -> Iterator[Picture]:
    """Yield the marked pictures of a checkout."""
    for document in documents(root):
        try:
            found = pictures(document.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{document}: {error}") from error
        for call, words, file in found:
            drawing = drawing_of(document, call)
            yield Picture(document, call, document.parent / file, words, drawing, digest(drawing.results))


def outdated(root: Path) -> List[str]:
    """Return a line for every picture that is missing or was drawn from other results."""
    return [
        f"{picture.file.relative_to(root)}: was not drawn from its present results"
        for picture in drawn(root)
        if not picture.is_current()
    ]


def draw_outdated(root: Path) -> List[Path]:
    """Draw the outdated pictures again, and return them."""
    changed = [picture for picture in drawn(root) if not picture.is_current()]
    for picture in changed:
        picture.drawing.draw(picture.drawing.results, picture.file, picture.source)
    return [picture.file for picture in changed]
