"""A recipe: one file that says everything about one number of a table, and is a configuration of fairseq-hydra-train.

Below ``recipe`` stands what fairseq does not know: which number it is, what the paper found, how it is evaluated. All
other groups are fairseq's, with every option that is not at fairseq's own default.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, get_origin

import yaml

FOLDER = Path(__file__).resolve().parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML has it: a command reads all recipes
Config = Dict[str, Dict[str, Any]]
GROUPS = (  # in the order of the file
    *("common", "task", "model", "criterion", "dataset", "optimizer", "optimization", "lr_scheduler", "checkpoint"),
    "distributed_training",
)
FIRST_LINES = {  # of every file: what makes it complete for fairseq-hydra-train
    "defaults": ["/fairseq@_global_", "_self_"],
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
}
EVALUATIONS = (
    *("classifier", "images", "language-model", "translation"),
    "script",  # trains and evaluates by itself
    "speed",  # of the model's updates, measured on made-up tokens: nothing is trained
)


class RecipeError(ValueError):
    """A recipe, or a wish about one, that cannot be followed; the message is for the user."""


@dataclass(frozen=True)
class Recipe:
    """What a file says.

    Attributes:
        name: its path in the folder of recipes, without the ending.
        number: which number of which table it is, in words.
        report: of :mod:`fairseq_mega.reports`, which prints the number beside the paper's.
        cell: the settings that tell it from the other numbers of the report.
        source: where its settings are published.
        paper: metrics to the paper's values; empty where the paper has a plot only.
        preset: architecture whose values its model repeats or revises.
        seeds: of the trainings whose mean the number is.
        machine: what the paper's authors trained on.
        precision: what they computed with, where it is known.
        data: the data set, a name of :data:`fairseq_mega.recipes.datasets.DATASETS`.
        evaluate: ``kind``, one of EVALUATIONS, and its settings.
        config: fairseq's groups to options to values.
        notes: differences from the publication.
        values_from: whose values ``paper`` has, where the paper of the table has none.
        rates: peak learning rates to train at, each with all seeds; the number is that of the best mean accuracy on the
            validation set. By default the one of ``config``.
    """

    name: str
    number: str
    report: str
    cell: Dict[str, Any]
    source: str
    paper: Dict[str, float]
    preset: str
    seeds: List[int]
    machine: str
    precision: str
    data: str
    evaluate: Dict[str, Any]
    config: Config
    notes: str = ""
    values_from: str = ""
    rates: List[float] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """How many GPUs the published batch comes from."""
        return int(self.config["distributed_training"]["distributed_world_size"])

    @property
    def script(self) -> Optional[str]:
        """The command that trains and evaluates, where that is not the runner."""
        return self.evaluate["command"] if self.evaluate["kind"] == "script" else None

    @property
    def measured(self) -> bool:
        """Whether the number is a training's speed, for which no data are read and nothing is trained."""
        return bool(self.evaluate["kind"] == "speed")

    @property
    def updates(self) -> int:
        """Of the published training."""
        return int(self.config["optimization"]["max_update"])


def load(path: Path, name: Optional[str] = None) -> Recipe:
    """Read a recipe; ``name`` is by default its path in the folder of recipes.

    Raises:
        RecipeError: naming the file and the entry that is missing, unknown or of another type.
        OSError: if it cannot be read.
    """
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: this is no YAML ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("recipe"), dict):
        raise RecipeError(f"{path}: a recipe has an entry 'recipe', beside fairseq's groups: see those in {FOLDER}")
    for entry, value in FIRST_LINES.items():
        if found.pop(entry, None) != value:
            raise RecipeError(f"{path}: '{entry}' has to be {value}, or fairseq-hydra-train cannot take the file")
    about = found.pop("recipe")
    check_entries(path, "the file", found, GROUPS, {})
    check_entries(path, "'recipe'", about, [key for key in ENTRIES if key not in OPTIONAL], ENTRIES, optional=OPTIONAL)
    kind = about["evaluate"].get("kind")
    if kind not in EVALUATIONS:
        raise RecipeError(f"{path}: 'evaluate' has the kind {kind!r}: give one of {', '.join(EVALUATIONS)}")
    return Recipe(name=name or name_of(path), config=found, **about)


OPTIONAL = ("notes", "values_from", "rates")
ENTRIES = {  # to the type of its value
    entry.name: get_origin(entry.type) or entry.type for entry in fields(Recipe) if entry.name not in ("name", "config")
}


def check_entries(
    path: Path, where: str, found: Mapping[str, Any], wanted: Any, types: Mapping[str, Any], optional: Any = ()
) -> None:
    """Raise a RecipeError unless exactly the wanted entries are there, each of its type (default: a table)."""
    missing = [key for key in wanted if key not in found]
    unknown = [key for key in found if key not in wanted and key not in optional]
    if missing or unknown:
        said = [
            f"{verb} {', '.join(keys)}" for verb, keys in (("lacks", missing), ("has the unknown", unknown)) if keys
        ]
        raise RecipeError(f"{path}: {where} {' and '.join(said)}")
    for key, value in found.items():
        if not isinstance(value, types.get(key, dict)):
            raise RecipeError(f"{path}: '{key}' of {where} is {value!r}, of another type than in the other recipes")


def name_of(path: Path) -> str:
    """Path in the folder of recipes without the ending, or that of a file elsewhere."""
    path = path.resolve()
    return (path.relative_to(FOLDER) if FOLDER in path.parents else path).with_suffix("").as_posix()
