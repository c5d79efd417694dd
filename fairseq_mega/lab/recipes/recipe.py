"""A recipe: everything about one number of a table, and a configuration of fairseq-hydra-train.

The group ``recipe`` has entries that fairseq does not have: the number, the paper's value, the evaluation. All other
groups are fairseq's, with every option that is not at fairseq's own default. A file has the differences from the files
in its ``defaults``, as hydra merges them: tables entry by entry, the later file first. One of these files is the preset
of its model.
"""

import re
import shlex
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, get_origin

import yaml

FOLDER = Path(__file__).resolve().parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML has it: a command reads all recipes
Config = Dict[str, Dict[str, Any]]
GROUPS = (  # in the order of the file
    *("common", "task", "model", "criterion", "dataset", "optimizer", "optimization", "lr_scheduler", "checkpoint"),
    "distributed_training",
)
FAIRSEQ = "fairseq"  # the file with fairseq's own defaults, which ours need not repeat
HYDRA = {"run": {"dir": "."}, "output_subdir": None}  # else fairseq-hydra-train runs in a folder of its own
LINE = 120  # characters of a line that is printed
ENDS = (".yaml", ".yml")  # of the name of a file
PARTS = "base"  # folder of files that several recipes share
PRESETS = "model"  # group of fairseq, and link to the folder of the presets, where hydra finds them
AUTO = "auto"
IN_CELL = {  # options of a model that a cell with the entry shows
    "encoder_chunk_size": "chunk",
    "encoder_n_dim": "ema_dim",
    "attention_activation_fn": "attention",
}
EVALUATIONS = (
    *("classifier", "images", "language-model", "translation"),
    "speed",  # of the model's updates, measured on invented tokens: nothing is trained
)


class RecipeError(ValueError):
    """A recipe, or a setting of one, that cannot be used; the message is for the user."""


@dataclass(frozen=True)
class Recipe:
    """Contents of a recipe's file."""

    name: str  # its path in the folder of recipes, without the ending
    number: str  # the table and the place of the number in it, in words
    report: str  # of :mod:`fairseq_mega.lab.report`, which prints the number beside the paper's
    # The settings that distinguish it from the other numbers of the report. Entries of IN_CELL have the values of the
    # model; the file has those of a model without the option.
    cell: Dict[str, Any]
    source: str  # where its settings are published
    # Metrics to the paper's values; empty, or null in the file, where the paper has a plot only
    paper: Dict[str, float]
    preset: str  # architecture whose values its model has or changes; by default the one in ``defaults``
    seeds: List[int]  # of the trainings whose mean the number is
    machine: str  # what the paper's authors trained on
    precision: str  # that of the authors, where it is known; AUTO where --precision auto chooses it on each machine
    data: str  # words of fairseq-mega-prepare that make the data: a data set, and options that choose a form of it
    evaluate: Dict[str, Any]  # ``kind``, one of EVALUATIONS, and its settings
    config: Config  # fairseq's groups to options to values
    notes: str = ""  # differences from the publication
    values_from: str = ""  # the source of the values in ``paper``, where it is not the paper of the table
    # Peak learning rates to train at, each with all seeds; the number is that of the best mean accuracy on the
    # validation set. By default the one of ``config``.
    rates: List[float] = field(default_factory=list)
    # Updates of shorter trainings, of the first seed, which choose one of ``rates`` by their best accuracy on the
    # validation set; 0: the trainings of the number themselves choose
    rate_updates: int = 0
    # Reports to the archives with weights that the authors published for them
    weights: Dict[str, str] = field(default_factory=dict)
    own_data: bool = False  # whether the data are the user's, of any number of classes, in the files of the data set
    any_data: bool = False  # whether --data may be of any data set, as the number compares models alone
    absent: str = ""  # words for a result that the tables of all recipes lack; empty: it was not run

    @property
    def file(self) -> str:
        """Return the name for messages: that of a recipe of the package, or the path of a file."""
        ends = [end for end in ENDS if Path(self.name).is_absolute() and Path(f"{self.name}{end}").is_file()]
        return f"{self.name}{''.join(ends[:1])}"

    @property
    def dataset(self) -> str:
        """Return the name of the data set."""
        return (shlex.split(self.data) or [""])[0]

    @property
    def place(self) -> str:
        """Return the folder of the data as fairseq reads them, which no other data have."""
        return str(self.config["task"]["data"])

    @property
    def data_options(self) -> List[str]:
        """Return the options that choose a form of the data set."""
        return shlex.split(self.data)[1:]

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the published batch."""
        return int(self.config["distributed_training"]["distributed_world_size"])

    @property
    def measured(self) -> bool:
        """Return whether the number is a speed of training, which needs no data and no trained model."""
        return bool(self.evaluate["kind"] == "speed")

    @property
    def updates(self) -> int:
        """Number of updates of the published training; 0 where it is timed."""
        return int(self.config["optimization"]["max_update"])

    @property
    def timed(self) -> bool:
        """Return whether the clock ends the training, in place of a number of updates."""
        return self.updates == 0


def _read(path: Path) -> Dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: this is not YAML ({error})") from error
    if not isinstance(found, dict):
        raise RecipeError(f"{path}: a recipe has an entry 'recipe', beside fairseq's groups: see those in {FOLDER}")
    return found


def _merged(path: Path) -> Dict[str, Any]:
    """Return the content of a file on top of the files that it inherits from."""
    found = _read(path)
    result: Dict[str, Any] = {}
    *inherited, last = found.pop("defaults", ["_self_"])
    for entry in inherited:
        if entry in defaults_of_fairseq():
            continue
        name = re.fullmatch(rf"/([\w/.-]+)@_global_|/{PRESETS}/(?P<preset>[\w.-]+)@{PRESETS}", str(entry))
        if name is None or last != "_self_":
            either = f"/NAME@_global_, files of {FOLDER}, /{PRESETS}/PRESET@{PRESETS}, and _self_ at its end"
            raise RecipeError(f"{path}: 'defaults' has {entry!r}, and {last!r} at its end: give {either}")
        if name["preset"]:
            result = merge(result, {"recipe": {"preset": name["preset"]}, "model": preset(name["preset"])})
        elif name[1] != FAIRSEQ:
            result = merge(result, _merged(FOLDER / f"{name[1]}.yaml"))
    return merge(result, found)


@lru_cache(maxsize=None)
def defaults_of_fairseq() -> Tuple[str, ...]:
    """Return the entries of ``defaults`` with fairseq's own, which are in no file."""
    return tuple(_read(Path(__file__).with_name(f"{FAIRSEQ}.yaml"))["defaults"])


def preset(name: str) -> Dict[str, Any]:
    """Return the options of a preset, and its model as ``_name``."""
    return _read(FOLDER / PRESETS / f"{name}.yaml")


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    """Return one table on top of another: tables in them are merged, all other values replaced."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def load(path: Path, name: Optional[str] = None) -> Recipe:
    """Read a recipe and what it inherits; ``name`` is by default its path in the folder of recipes.

    Raises:
        RecipeError: naming the file and the entry that is missing, unknown or of another type.
        OSError: if it cannot be read.
    """
    found = _merged(path)
    about = found.pop("recipe", {})
    found.pop("hydra", None)
    faults = [key for key in {*found, *GROUPS} if key not in GROUPS or not isinstance(found.get(key), dict)]
    faults += [f"recipe.{key}" for key in about if key not in ENTRIES]
    for key, kind in ENTRIES.items():
        if (key in about or key not in OPTIONAL) and not isinstance(about.get(key), kind):
            faults.append(f"recipe.{key}")
    if faults:
        raise RecipeError(f"{path}: missing, unknown or of another type than elsewhere: {', '.join(sorted(faults))}")
    about["paper"] = {metric: value for metric, value in about["paper"].items() if value is not None}
    kind = about["evaluate"].get("kind")
    if kind not in EVALUATIONS:
        raise RecipeError(f"{path}: 'evaluate' has the kind {kind!r}: give one of {', '.join(EVALUATIONS)}")
    about["cell"] = shown(about["cell"], found["model"])
    found["lr_scheduler"].update(length(found))
    return Recipe(name=name or name_of(path), config=found, **about)


def shown(cell: Mapping[str, Any], model: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a cell with the values of a model's options in its entries of IN_CELL."""
    return {**cell, **{entry: model[key] for key, entry in IN_CELL.items() if entry in cell and key in model}}


def length(config: Config) -> Dict[str, float]:
    """Return the default of the option with a schedule's number of updates, which is that of the training; nothing for
    a schedule without the option, or with a value in the file.
    """
    schedule, updates = config["lr_scheduler"], config["optimization"].get("max_update", 0)
    lengths = {
        "linear_decay": ("total_num_update", updates),
        "cosine": ("lr_period_updates", updates - schedule.get("warmup_updates", 0)),
    }
    option, value = lengths.get(str(schedule.get("_name")), ("", 0))
    return {option: float(value)} if option and option not in schedule else {}


def as_yaml(recipe: Recipe) -> str:
    """Return the text of a file with the whole of a recipe, which :func:`load` and fairseq-hydra-train read alone."""
    about = {entry: getattr(recipe, entry) for entry in ENTRIES if entry not in OPTIONAL or getattr(recipe, entry)}
    whole = {"defaults": [*defaults_of_fairseq(), "_self_"], "recipe": about}
    whole.update({group: recipe.config[group] for group in GROUPS}, hydra=HYDRA)
    body = yaml.safe_dump(whole, sort_keys=False, width=LINE, allow_unicode=True, default_flow_style=None)
    return f"# @package _global_\n# {recipe.name}\n{body}"


OPTIONAL = ("notes", "values_from", "rates", "rate_updates", "weights", "own_data", "any_data", "absent")
ENTRIES: Dict[str, Any] = {  # to the type of its value
    entry.name: get_origin(entry.type) or entry.type for entry in fields(Recipe) if entry.name not in ("name", "config")
}


def name_of(path: Path) -> str:
    """Path in the folder of recipes without the ending, or that of a file elsewhere."""
    path = path.resolve()
    return (path.relative_to(FOLDER) if FOLDER in path.parents else path).with_suffix("").as_posix()
