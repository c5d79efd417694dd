"""A run: a recipe with one seed, as it is trained on this machine."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.prepare.of_recipes import in_same_place
from fairseq_mega.lab.recipes.command_line import arguments
from fairseq_mega.lab.recipes.recipe import Config, Recipe, RecipeError
from fairseq_mega.lab.recipes.smoke import UPDATES, shrink, shrink_evaluation
from fairseq_mega.lab.runs.files import count_lines
from fairseq_mega.lab.runs.fingerprints import digest

from .batches import counts_tokens, seen_by_norm, share_out
from .choices import Choices

OF_THE_MACHINE = {  # settings that change only the place and the speed of a training
    "common": ("user_dir", "log_format", "log_interval", "cpu", "seed"),
    "task": ("data",),
    "dataset": ("num_workers", "batch_size"),
    "optimization": ("update_freq",),
    "checkpoint": ("save_dir",),
    "distributed_training": ("distributed_world_size", "ddp_backend"),
}


@dataclass(frozen=True)
class Run:
    """A training and its evaluation.

    Attributes:
        recipe: with the requested evaluation.
        seed: of the training.
        config: of fairseq, for this machine.
        settings: everything that the weights depend on, the source of the digest in the name.
        name: readable, and different for different settings.
        evaluation: name of its evaluation, another one for other settings of it; in a folder of one run, its report's.
        folder: of everything that belongs to it.
        smoke: whether it is the tiny form.
        stop: ending of the names of its stages: with its updates where the schedule goes on after them, else empty.
        extra: further arguments of fairseq-train.
    """

    recipe: Recipe
    seed: int
    config: Config
    settings: Dict[str, Any]
    name: str
    evaluation: str
    folder: Path
    smoke: bool
    stop: str
    extra: List[str]

    @property
    def data(self) -> Path:
        """The data that fairseq reads."""
        return Path(self.config["task"]["data"])

    @property
    def updates(self) -> int:
        """Number of updates of the training; 0 for as many as there is time for."""
        return int(self.config["optimization"]["max_update"])

    @property
    def training_stage(self) -> str:
        """Name of the stage that trains it."""
        return f"train{self.stop}"

    @property
    def evaluation_stage(self) -> str:
        """Name of the stage that evaluates it."""
        return f"evaluate.{self.evaluation}{self.stop}"

    @property
    def minutes(self) -> float:
        """Longest time of the training; 0 for any time."""
        return 60 * float(self.config["optimization"].get("stop_time_hours", 0))

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the training; 0 for the CPU."""
        return 0 if self.config["common"].get("cpu") else self.config["distributed_training"]["distributed_world_size"]

    @property
    def examples(self) -> int:
        """Return the number of examples of an update, where the recipe counts examples."""
        dataset, places = self.config["dataset"], self.config["distributed_training"]["distributed_world_size"]
        return int(dataset["batch_size"] * self.config["optimization"]["update_freq"][0] * places)

    def train_arguments(self) -> List[str]:
        """Return the arguments of fairseq-train."""
        return [*arguments(self.config, self.recipe.preset), *self.extra]


def plan(
    recipe: Recipe, seed: int, data: Path, data_digest: str, choices: Choices, folder: Optional[Path] = None
) -> Run:
    """Adapt a recipe to a seed, a data folder and a user's settings.

    Args:
        folder: of everything that belongs to the run; by default one of its own among those in ``choices.out``.

    Raises:
        RecipeError: if a setting of the user does not suit the recipe.
    """
    config, cell = copy.deepcopy(recipe.config), recipe.cell
    evaluate, choices = recipe.evaluate, choices.suited_to(recipe)
    if recipe.measured:
        choices = on_one_device(recipe, choices)
    if choices.smoke:
        kept = choices.settings_of(recipe)
        shrink(config, recipe.evaluate["kind"], kept)
        evaluate = shrink_evaluation(recipe.evaluate, kept)
    set_schedule(recipe, config, choices)
    set_batch(config, choices)
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
    weights = choices.weights.get(recipe.name)
    if weights is not None:
        settings = {"weights": weights.sha256, "data": data_digest, "precision": choices.used_precision}
    if not in_same_place(recipe):  # else these recipes have the same data
        settings["made by"] = recipe.data
    name = ".".join([*words, f"seed{seed}" if weights is None else "weights", digest(settings)])
    evaluation = recipe.report if folder else f"{recipe.report}-{digest(evaluate)}"
    folder = folder or choices.out / "runs" / name
    config["checkpoint"]["save_dir"] = str(folder / "checkpoints")
    return Run(
        recipe=replace(recipe, evaluate=evaluate),
        seed=seed,
        config=config,
        settings=settings,
        name=name,
        evaluation=evaluation,
        folder=folder,
        smoke=choices.smoke,
        stop=f".{config['optimization']['max_update']}" if choices.keep_schedule else "",
        extra=list(choices.extra),
    )


def on_one_device(recipe: Recipe, choices: Choices) -> Choices:
    """Return the user's settings for a measured speed, that of one device.

    Raises:
        RecipeError: for settings about a training, as nothing is trained.
    """
    if choices.extra:
        raise RecipeError(f"{recipe.name} measures a speed and does not train: leave out the options after --")
    if choices.used_precision == "fp16":
        raise RecipeError(f"{recipe.name}: --precision fp16 leaves the range of MEGALODON's sums: give bf16 or fp32")
    return replace(choices, gpus_per_run=1)


def set_schedule(recipe: Recipe, config: Config, choices: Choices) -> None:
    """Set the updates, and the schedule that belongs to them."""
    published = recipe.updates
    smoke = UPDATES[recipe.evaluate["kind"]] if choices.smoke else None
    wanted = choices.max_update or min((count for count in (smoke, published) if count), default=0)  # 0: the clock's
    if wanted > published and recipe.source != "ours":
        raise RecipeError(f"--max-update is {wanted}, and the training of {recipe.name} has {published}: give fewer")
    config["optimization"]["max_update"] = wanted
    schedule = config["lr_scheduler"]
    if recipe.timed and wanted:  # a rate that follows the clock would not have fallen after so many updates
        warmup = min(schedule["warmup_updates"], (wanted + 3) // 4, wanted - 1)
        config["lr_scheduler"] = {"_name": "linear_decay", "warmup_updates": warmup, "total_num_update": float(wanted)}
    if choices.keep_schedule or recipe.timed:
        return
    scaled: Dict[str, Any] = {}
    if schedule.get("total_num_update") is not None:
        scaled["total_num_update"] = float(wanted)
    if schedule["_name"] == "epoch_cosine":
        scaled["period_epochs"] = -(-schedule["period_epochs"] * wanted // published)
        scaled["warmup_epochs"] = schedule["warmup_epochs"] * wanted // published
    elif not choices.smoke or recipe.evaluate["kind"] == "classifier":
        scaled["warmup_updates"] = recipe.config["lr_scheduler"]["warmup_updates"] * wanted // published
    else:
        scaled["warmup_updates"] = min(schedule["warmup_updates"], wanted - 1)
    given = choices.settings_of(recipe)
    schedule.update({option: value for option, value in scaled.items() if f"lr_scheduler.{option}" not in given})
    if schedule.get("lr_period_updates") is not None and "lr_scheduler.lr_period_updates" not in given:
        schedule["lr_period_updates"] = float(wanted - schedule["warmup_updates"])  # the cosine ends with the training


def set_batch(config: Config, choices: Choices) -> None:
    """Set device, precision and the parts of the published batch."""
    most = choices.gpus_per_run or int(config["distributed_training"]["distributed_world_size"])
    batch = share_out(config, min(choices.gpus, most), choices.per_step)
    if batch.step is not None:
        config["dataset"]["batch_size"] = batch.step
    config["optimization"]["update_freq"] = [batch.accumulated]
    config["distributed_training"]["distributed_world_size"] = batch.places
    if batch.synchronised:
        config["model"]["normalization_type"] = "syncbatchnorm"
    elif config["model"].get("normalization_type") == "syncbatchnorm" and batch.places == 1:
        config["model"]["normalization_type"] = "batchnorm"
    if choices.gpus == 0:
        config["common"]["cpu"] = True
        config["dataset"]["num_workers"] = 0
    config["common"].update(dict.fromkeys(precision.SETS[choices.used_precision], True))


def settings_of(config: Config, choices: Choices, seed: int, data_digest: str) -> Dict[str, Any]:
    """Everything that the weights depend on."""
    found: Dict[str, Any] = {
        group: {key: value for key, value in options.items() if key not in OF_THE_MACHINE.get(group, ())}
        for group, options in config.items()
    }
    if str(found["model"].get("normalization_type")).endswith("batchnorm"):
        found["model"]["normalization_type"] = f"batchnorm over {seen_by_norm(config)}"
    places = config["distributed_training"]["distributed_world_size"] * config["optimization"]["update_freq"][0]
    step = 1 if counts_tokens(config) else config["dataset"]["batch_size"]
    if choices.keep_schedule:
        del found["optimization"]["max_update"]  # more updates continue in the same folder
    return {**found, "batch": step * places, "seed": seed, "data": data_digest, "extra": list(choices.extra)}


def languages(run: Run) -> Tuple[str, str]:
    """Source and target of a translation."""
    task = run.config["task"]
    return task["source_lang"], task["target_lang"]


def test_text(run: Run, language: str) -> Path:
    """One side of the test set as plain text."""
    return run.data.parent / f"{run.recipe.evaluate['test']}.{language}"


def sentences(run: Run) -> int:
    """Return the number of sentences of the test set."""
    return count_lines(test_text(run, languages(run)[0]))
