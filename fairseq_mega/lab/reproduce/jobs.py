"""A job: a training and its evaluation, with all that a recipe and the user's settings decide, resolved once."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.prepare.of_recipes import in_same_place
from fairseq_mega.lab.recipes.command_line import arguments
from fairseq_mega.lab.recipes.recipe import Config, Recipe
from fairseq_mega.lab.recipes.smoke import UPDATES, shrink, shrink_evaluation
from fairseq_mega.lab.runs.fingerprints import digest

from .settings import Choices, Weights, changing

OF_THE_MACHINE = {  # settings that change only the place and the speed of a training
    "common": ("user_dir", "log_format", "log_interval", "cpu", "seed"),
    "task": ("data",),
    "dataset": ("num_workers", "batch_size"),
    "optimization": ("update_freq",),
    "checkpoint": ("save_dir",),
    "distributed_training": ("distributed_world_size", "ddp_backend"),
}


@dataclass(frozen=True)
class Job:
    """A training and its evaluation; runner, list and tables only read it."""

    recipe: Recipe  # with the requested evaluation
    seed: int  # of the training
    choices: Choices  # of the user
    precision: str  # of the training
    weights: Optional[Weights]  # from elsewhere, that are scored; None where the job trains
    config: Config  # of fairseq, for this machine
    settings: Dict[str, Any]  # everything that the weights depend on, the source of the digest in the name
    name: str  # readable, and different for different settings
    # Name of its evaluation, another one for other settings of it; in a folder of one job, its report's
    evaluation: str
    folder: Path  # of everything that belongs to it

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        return float(self.config["optimization"]["lr"][0])

    @property
    def training(self) -> str:
        """Digest of all that the weights depend on, but for seed and data."""
        settings = {name: value for name, value in self.settings.items() if name not in ("seed", "data", "extra")}
        return digest([settings, changing(self.choices.extra)])

    @property
    def conditions(self) -> str:
        """Digest of the conditions that all results of a table share."""
        return digest(self.choices.conditions(self.recipe))

    @property
    def results(self) -> Path:
        """Folder of its result files for its report."""
        return self.folder / "results" / self.evaluation

    @property
    def result_files(self) -> List[Path]:
        """Its result files for its report."""
        return sorted(self.results.glob("*.json"))

    @property
    def data(self) -> Path:
        """The data that fairseq reads."""
        return Path(self.config["task"]["data"])

    @property
    def updates(self) -> int:
        """Number of updates of the training; 0 for as many as there is time for."""
        return int(self.config["optimization"]["max_update"])

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the training; 0 for the CPU."""
        return 0 if self.config["common"].get("cpu") else self.config["distributed_training"]["distributed_world_size"]

    def train_arguments(self) -> List[str]:
        """Return the arguments of fairseq-train."""
        return [*arguments(self.config, self.recipe.preset), *self.choices.extra]


def plan(
    recipe: Recipe, seed: int, data: Path, data_digest: str, choices: Choices, folder: Optional[Path] = None
) -> Job:
    """Adapt a recipe to a seed, a data folder and a user's settings.

    Args:
        folder: of everything that belongs to the job; by default one of its own among those in ``choices.out``.
    """
    config, cell, evaluate = copy.deepcopy(recipe.config), recipe.cell, recipe.evaluate
    used, weights = choices.precision_of(recipe), choices.weights.get(recipe.name)
    if choices.smoke:
        kept = choices.settings_of(recipe)
        shrink(config, evaluate["kind"], kept)
        evaluate = shrink_evaluation(evaluate, kept)
    set_schedule(recipe, config, choices)
    set_batch(config, min(choices.gpus, 1) if recipe.measured else choices.gpus)  # a speed is that of one device
    config["common"].update(dict.fromkeys(precision.SETS[used], True))
    config["common"]["seed"] = seed
    config["task"]["data"] = str(data)
    if evaluate.get("average"):
        config["checkpoint"]["keep_last_epochs"] = evaluate["average"]
    settings = settings_of(config, choices, seed, data_digest)
    words = [str(value) for value in cell.values()]
    if "chunk" in cell:
        words = [cell["task"], cell["model"], cell["attention"], f"n{cell['ema_dim']}"]
        words.append("full" if cell["chunk"] < 0 else f"c{cell['chunk']}")
        words += [f"lr{cell['lr']}"] if "lr" in cell else []
    if weights is not None:
        settings = {"weights": weights.sha256, "data": data_digest, "precision": used}
    if not in_same_place(recipe):  # else these recipes have the same data
        settings["made by"] = recipe.data
    name = ".".join([*words, f"seed{seed}" if weights is None else "weights", digest(settings)])
    evaluation = recipe.report if folder else f"{recipe.report}-{digest(evaluate)}"
    folder = folder or choices.out / "runs" / name
    config["checkpoint"]["save_dir"] = str(folder / "checkpoints")
    recipe = replace(recipe, evaluate=evaluate)
    return Job(recipe, seed, choices, used, weights, config, settings, name, evaluation, folder)


class Batch(NamedTuple):
    """Division of an update's examples into steps and places."""

    # Examples that a place (a GPU, or the CPU) processes at a time; None where the recipe counts tokens
    step: Optional[int]
    accumulated: int  # steps of an update
    places: int  # GPUs, or 1
    synchronised: bool  # whether a batch norm needs the examples of all places


def share_out(config: Config, gpus: int) -> Batch:
    """Divide the published batch among the largest number of GPUs that divides it, up to ``gpus`` (0: the CPU).

    A batch norm sees as many examples at a time as in the published recipe, where possible.
    """
    published = int(config["distributed_training"]["distributed_world_size"])
    accumulated = int(config["optimization"]["update_freq"][0])
    if counts_tokens(config):  # the number of batches counts, on any GPU
        batches = published * accumulated
        places = dividing(batches, max(1, gpus))
        return Batch(None, batches // places, places, False)
    step = config["dataset"]["batch_size"]
    examples, at_a_time = step * accumulated * published, step * published
    normalised = has_batch_norm(config)
    places = dividing(examples, max(1, gpus))
    share = examples // places
    step = dividing(share, -(-at_a_time // places) if normalised else step)
    return Batch(step, share // step, places, places > 1 and normalised)


def counts_tokens(config: Config) -> bool:
    """Return whether the batches of a training are measured in tokens, not in examples."""
    return "max_tokens" in config["dataset"] or config["dataset"].get("batch_size") is None


def has_batch_norm(config: Config) -> bool:
    """Return whether a model has a batch norm, synchronised or not."""
    return str(config["model"].get("normalization_type", "")).endswith("batchnorm")


def dividing(whole: int, most: int) -> int:
    """The largest divisor of a number up to a limit."""
    return next(number for number in range(min(whole, most), 0, -1) if whole % number == 0)


def set_schedule(recipe: Recipe, config: Config, choices: Choices) -> None:
    """Set the updates, and the schedule that belongs to them."""
    published = recipe.updates
    smoke = UPDATES[recipe.evaluate["kind"]] if choices.smoke else None
    updates = choices.max_update or min((count for count in (smoke, published) if count), default=0)  # 0: the clock's
    config["optimization"]["max_update"] = updates
    schedule = config["lr_scheduler"]
    if recipe.timed and updates:  # a learning rate that follows the clock would not have fallen after so many updates
        warmup = min(schedule["warmup_updates"], (updates + 3) // 4, updates - 1)
        config["lr_scheduler"] = {"_name": "linear_decay", "warmup_updates": warmup, "total_num_update": float(updates)}
    if recipe.timed:
        return
    scaled: Dict[str, Any] = {}
    if schedule.get("total_num_update") is not None:
        scaled["total_num_update"] = float(updates)
    if schedule["_name"] == "epoch_cosine":
        scaled["period_epochs"] = -(-schedule["period_epochs"] * updates // published)
        scaled["warmup_epochs"] = schedule["warmup_epochs"] * updates // published
    elif not choices.smoke or recipe.evaluate["kind"] == "classifier":
        scaled["warmup_updates"] = recipe.config["lr_scheduler"]["warmup_updates"] * updates // published
    else:
        scaled["warmup_updates"] = min(schedule["warmup_updates"], updates - 1)
    given = choices.settings_of(recipe)
    schedule.update({option: value for option, value in scaled.items() if f"lr_scheduler.{option}" not in given})
    if schedule.get("lr_period_updates") is not None and "lr_scheduler.lr_period_updates" not in given:
        schedule["lr_period_updates"] = float(updates - schedule["warmup_updates"])  # the cosine ends with the training


def set_batch(config: Config, gpus: int) -> None:
    """Set the device, and the parts of the published batch, on as many GPUs as published at most."""
    batch = share_out(config, min(gpus, int(config["distributed_training"]["distributed_world_size"])))
    if batch.step is not None:
        config["dataset"]["batch_size"] = batch.step
    config["optimization"]["update_freq"] = [batch.accumulated]
    config["distributed_training"]["distributed_world_size"] = batch.places
    if batch.synchronised:
        config["model"]["normalization_type"] = "syncbatchnorm"
    elif has_batch_norm(config) and batch.places == 1:
        config["model"]["normalization_type"] = "batchnorm"
    if gpus == 0:
        config["common"]["cpu"] = True
        config["dataset"]["num_workers"] = 0


def settings_of(config: Config, choices: Choices, seed: int, data_digest: str) -> Dict[str, Any]:
    """Everything that the weights depend on."""
    found: Dict[str, Any] = {
        group: {key: value for key, value in options.items() if key not in OF_THE_MACHINE.get(group, ())}
        for group, options in config.items()
    }
    places = config["distributed_training"]["distributed_world_size"]
    step = 1 if counts_tokens(config) else config["dataset"]["batch_size"]
    if has_batch_norm(config):
        found["model"]["normalization_type"] = f"batchnorm over {step * places}"
    batch = step * places * config["optimization"]["update_freq"][0]
    return {**found, "batch": batch, "seed": seed, "data": data_digest, "extra": list(choices.extra)}
