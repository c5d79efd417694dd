"""Data sets of the runner: their files, the commands that make them, and the digests that identify them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.prepare.dataset import Scored
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.runs.fingerprints import digest_of_data

from .choices import Choices


class Examined(NamedTuple):
    """Digest that identifies a data set among others of its kind, and remarks for the user before a training."""

    digest: str
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Data:
    """A data set.

    Attributes:
        task: key of ``preflight.FILES`` for a classification task; of texts and translations the folder's name.
        command: makes it in a folder; the same command continues an interrupted one.
        check: raises a RecipeError where the folder is broken or the data can be neither found nor made.
        files: that fairseq reads, by their paths in the folder.
        scored: size of the published part that papers score; None where there is none.
    """

    task: str
    command: Callable[[Path, Choices], List[str]]
    check: Callable[[Path, Choices], None]
    files: Sequence[str]
    scored: Optional[Scored] = None

    def is_there(self, folder: Path) -> bool:
        """Return whether all files exist; a work folder of fairseq-mega-prepare must be finished."""
        return all(path.is_file() for path in self.paths(folder)) and not (folder / "unfinished").exists()

    def paths(self, folder: Path) -> List[Path]:
        """The files in a folder, which may be the data-bin that fairseq-preprocess made."""
        inside = folder.name == "data-bin" and not (folder / "data-bin").exists()
        return [folder / (name.replace("data-bin/", "") if inside else name) for name in self.files]

    def check_readers(self) -> None:
        """Raise a RecipeError if a package for reading the data in a training is not installed."""

    def fit(self, recipe: Recipe, folder: Path) -> Recipe:
        """Return a recipe with the settings that existing data decide; unchanged for the recipes' own data."""
        return recipe

    def examine(self, folder: Path) -> Examined:
        """Examine an existing data set."""
        return Examined(digest_of_data([path for path in self.paths(folder) if path.is_file()], folder))
