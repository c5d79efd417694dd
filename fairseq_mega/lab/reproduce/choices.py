"""Settings of a user that differ from the recipes, for this machine or for an experiment."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from fairseq_mega.lab.recipes.recipe import AUTO, Recipe

from .behind import changing
from .revising import EVALUATE, Setting


class Weights(NamedTuple):
    """Weights for a recipe that were trained elsewhere.

    Attributes:
        path: of the checkpoint, a file or a folder, of any layout that the converter supports.
        source: their origin, for a reader.
        authors: whether the papers' authors published them, by the address.
        sha256: of the file.
        updates, seed: of their training, None where there is no record.
        differs: options that decide the outputs and are not the recipe's.
    """

    path: Path
    source: str
    authors: bool
    sha256: str
    updates: Optional[int]
    seed: Optional[int]
    differs: Tuple[str, ...]

    def told(self) -> Dict[str, Any]:
        """Return the record of the weights for a result file."""
        return {name: value for name, value in self._asdict().items() if name != "path"}


@dataclass(frozen=True)
class Choices:
    """Settings of a command that hold for all of its recipes.

    Attributes:
        out: folder of runs, results and tables.
        root: start of the relative paths of the recipes.
        data: folder of the data, for recipes of one data set.
        data_dir: folder with a folder for each data set; by default where the recipes have them.
        processed: folder of the authors' unpacked archives, whose data are used as they are.
        processed_from: address of an archive to be fetched and unpacked to ``processed``, or "published" for all of
            the authors' that are needed.
        released: read the data of the Long Range Arena from its released archive, as far as it has them.
        results: folder of all result files, by default in ``out``.
        gpus: that may be used; 0 for the CPU.
        gpus_per_run: at most; by default as many as the published batch comes from.
        per_step: examples that a GPU processes at a time; by default the recipe's.
        max_update: fewer updates than the paper's; the schedule is shortened in proportion, but for what is in
            ``settings``.
        keep_schedule: with ``max_update``: the paper's schedule, stopped there; more updates continue it.
        precision: fp32, tf32, bf16 or fp16; by default TF32 on GPUs, which torch used by default when the papers'
            models were trained, and else float32.
        automatic: precision of recipes that leave it to the machine, instead of this default.
        settings: changes that the recipes already contain.
        extra: further arguments of fairseq-train.
        smoke: toy models, a few updates, a little invented data, on the CPU.
        workers: processes that prepare data.
        archives: folder of downloaded archives, for data that have some.
        download: whether archives may be fetched.
        weights: by the names of recipes those that are scored, in place of a training's.
    """

    out: Path
    root: Path = Path()
    data: Optional[Path] = None
    data_dir: Optional[Path] = None
    processed: Optional[Path] = None
    processed_from: Optional[str] = None
    released: bool = False
    results: Optional[Path] = None
    gpus: int = 0
    gpus_per_run: Optional[int] = None
    per_step: Optional[int] = None
    max_update: Optional[int] = None
    keep_schedule: bool = False
    precision: Optional[str] = None
    automatic: Optional[str] = None
    settings: Tuple[Setting, ...] = ()
    extra: Tuple[str, ...] = ()
    smoke: bool = False
    workers: int = 1
    archives: Optional[Path] = None
    download: bool = True
    weights: Mapping[str, Weights] = field(default_factory=dict)

    @property
    def used_precision(self) -> str:
        """The precision of the trainings."""
        return self.precision or ("tf32" if self.gpus > 0 else "fp32")

    def suited_to(self, recipe: Recipe) -> "Choices":
        """Return the settings for a recipe: one with an automatic precision has no other default."""
        if recipe.precision != AUTO or self.precision is not None:
            return self
        return replace(self, precision=self.automatic)

    def settings_of(self, recipe: Recipe) -> Dict[str, str]:
        """The keys of the settings that change a recipe to their texts."""
        return {setting.key: setting.text for setting in self.settings if setting.changes(recipe)}

    def conditions(self, recipe: Recipe) -> Dict[str, Any]:
        """Return the conditions of a result that its table requires: not the seed, and not what its cell shows."""
        used = self.suited_to(recipe).used_precision
        own = [setting for setting in self.settings if setting.changes(recipe) and not setting.is_told(recipe)]
        return {
            "max_update": self.max_update,
            "keep_schedule": self.keep_schedule,
            "precision": "fp32" if used == "tf32" else used,
            "overrides": {setting.key: setting.text for setting in own if setting.group != EVALUATE},
            "evaluation": {setting.option: setting.text for setting in own if setting.group == EVALUATE},
            "extra": changing(self.extra),
            "smoke": self.smoke,
        }
