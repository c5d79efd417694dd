"""A recipe in the folder of a quick start, planned by time: the training ends within its time on any machine."""

import argparse
import copy
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import List, Sequence

import torch

from fairseq_mega.data.card import RECORDS, record_of
from fairseq_mega.lab.prepare.command import prepare
from fairseq_mega.lab.prepare.debian import fetch_package, need_dpkg
from fairseq_mega.lab.recipes.recipe import FOLDER, GROUPS, Recipe, load
from fairseq_mega.lab.recipes.smoke import shrink
from fairseq_mega.lab.reproduce import training
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.precisions import chosen_once
from fairseq_mega.lab.reproduce.runs import Run, plan
from fairseq_mega.lab.runs.commands import execute
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.stages import Work, is_done, say

LONGEST_MINUTES = 60.0  # limit of a training with --updates
SLOW = 0.5  # fraction of the usual updates a minute
SMOKE_UPDATES = 20
DATA = ("text", "pieces", "data-bin", "counts.json", *RECORDS)  # names in the folder


def recipe_of(task: str, smoke: bool) -> Recipe:
    """Return the recipe of a task, translation or lm, or its tiny form."""
    recipe = load(FOLDER / "quickstart" / f"{task}.yaml")
    if not smoke:
        return recipe
    config, evaluate = copy.deepcopy(recipe.config), dict(recipe.evaluate)
    shrink(config, evaluate["kind"])
    if "beam" in evaluate:
        evaluate["beam"] = 2
    return replace(recipe, config=config, evaluate=evaluate)


def fetched(names: Sequence[str], folder: Path, own: str) -> List[Path]:
    """Return files of Debian's packages in a folder; missing packages are fetched.

    Args:
        own: options for the user's text, named in the error if a package cannot be obtained.

    Raises:
        DownloadError: if a package cannot be obtained.
    """
    otherwise = f"Use your own text instead, on any system: {own}"
    need_dpkg(otherwise)
    return [fetch_package(name, folder, otherwise) for name in names]


class QuickStart:
    """The stages of all tasks: the data, the plan and the training of a recipe, in a folder.

    Args:
        options: of the command line.
        task: lines on the task's settings; an unfinished folder must have the same settings.
        minutes: default time of the training, in words.
        texts: lines on the user's texts.

    Raises:
        StageError: if the folder was begun with other settings.
    """

    enough: int  # updates; with fewer, the model may be poor
    usual: int  # updates a minute on the slowest two cores that were measured

    def __init__(self, options: argparse.Namespace, task: Sequence[str], minutes: str, texts: Sequence[str]) -> None:
        self.options = options
        self.recipe = recipe_of(options.task, options.smoke)
        self.updates = int(options.updates or (SMOKE_UPDATES if options.smoke else 0))
        lines = [*task, *(f"{group} {self.recipe.config[group]}" for group in GROUPS)]
        lines += [f"updates {self.updates or 'by time'}", f"minutes {options.train_minutes or minutes}"]
        self.work = Work(options.work_dir, [*lines, f"precision {options.precision}", *texts], "--work-dir")
        self.folder = self.work.folder

    def data_words(self) -> List[str]:
        """Return the arguments of fairseq-mega-prepare that make the data, without the folder."""
        raise NotImplementedError

    def start(self) -> None:
        """Run the remaining stages, and show the model."""
        raise NotImplementedError

    def usual_minutes(self) -> float:
        """Return the minutes of a training whose time and updates no option sets."""
        raise NotImplementedError

    def make_data(self) -> None:
        """Make the data, as fairseq-mega-prepare does."""
        if (self.folder / "logs").exists():  # an earlier version was stopped while it made the data, stage by stage
            for name in RECORDS:
                (self.folder / name).unlink(missing_ok=True)
            for name in ("text", "pieces", "data-bin", "logs"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        workers = ["--workers", "1"] if self.options.smoke else []
        prepare([*self.data_words(), "--out", str(self.folder), *workers], DATA)
        inputs = record_of(self.folder)["inputs"]
        packages = [f"{file.partition('_')[0]} {of['version']}" for file, of in inputs.items() if "version" in of]
        if packages:
            say(f"text: {', '.join(packages)}")

    def train(self) -> None:
        """Make the data, plan the training, and train; each is done once.

        Raises:
            OSError, ValueError, StageError: with messages for the user.
        """
        if not is_done(self.folder, "binarise"):  # the last stage of the data in an earlier version
            self.work.stage("data", self.make_data)
        self.gpus = gpus_for(self.options.cpu)
        self.precision = chosen_once(self.folder / "precision", self.options.precision, self.gpus)
        self.work.stage("plan", self.plan)
        self.run = self.planned()
        self.work.stage("train", self.train_planned)

    def plan(self) -> None:
        """Write the minutes of the training to a file, for a second start."""
        given, usual = self.options.train_minutes, LONGEST_MINUTES if self.updates else self.usual_minutes()
        write_text(self.folder / "minutes", f"{float(given or usual):.2f}\n")
        if not self.updates:
            say(f"the training will take {self.minutes:.1f} minutes")

    @property
    def minutes(self) -> float:
        """Return the planned time of the training."""
        return float((self.folder / "minutes").read_text(encoding="utf-8"))

    def planned(self) -> Run:
        """Return the planned run of the recipe, on all GPUs of the machine."""
        config = copy.deepcopy(self.recipe.config)
        config["optimization"]["stop_time_hours"] = round(self.minutes / 60, 6)
        config["distributed_training"]["distributed_world_size"] = max(1, self.gpus)
        self.choices = Choices(
            self.folder, gpus=self.gpus, gpus_per_run=self.gpus, precision=self.precision, max_update=self.updates
        )
        recipe = replace(self.recipe, config=config)
        run = plan(recipe, recipe.seeds[0], self.folder / "data-bin", "", self.choices, self.folder)
        return replace(run, name="quickstart")

    def train_planned(self) -> None:
        """Train, and report a training of too few updates, by a short time or by a slow machine."""
        done = training.train(self.run, self.choices, execute, [])
        if not self.updates and done < self.enough:
            say(self.about_few_updates(done))

    def about_few_updates(self, done: int) -> str:
        """Return the reason for few updates, and the remedy."""
        rate = done / self.minutes
        made = f"only {done} updates in {self.minutes:g} minute{'s' * (self.minutes != 1)}, {rate:.0f} a minute"
        if rate >= self.usual * SLOW:
            minutes = max(2 * self.minutes, self.enough / rate)
            return (
                f"{made}: the time was short. For a better model give --train-minutes "
                f"{math.ceil(minutes)} or more and another --work-dir"
            )
        return (
            f"{made}, where the slowest machine that was measured made {self.usual}: this machine is slow or busy, and "
            f"the model will be poor. Give --train-minutes {2 * math.ceil(self.minutes)} or more and another "
            "--work-dir, or wait until the machine is idle"
        )


def gpus_for(cpu: bool) -> int:
    """Return the number of GPUs to train on, 0 for the CPU."""
    if torch.cuda.is_available() and not cpu:
        say(f"device: {torch.cuda.get_device_name()}")
        return torch.cuda.device_count()
    say("device: CPU")
    return 0
