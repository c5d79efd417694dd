"""A recipe in the folder of a quick start, planned by time: the training ends within its time on any machine."""

import argparse
import copy
import math
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
from fairseq_mega.lab.reproduce.jobs import Job, plan
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.reproduce.training import chosen_once
from fairseq_mega.lab.runs.commands import execute
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.stages import Work, print_line

LONGEST_MINUTES = 60.0  # limit of a training with --updates
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
        workers = ["--workers", "1"] if self.options.smoke else []
        prepare([*self.data_words(), "--out", str(self.folder), *workers], DATA)
        inputs = record_of(self.folder)["inputs"]
        packages = [f"{file.partition('_')[0]} {of['version']}" for file, of in inputs.items() if "version" in of]
        if packages:
            print_line(f"text: {', '.join(packages)}")

    def train(self) -> None:
        """Make the data, plan the training, and train; each is done once.

        Raises:
            OSError, ValueError, StageError: with messages for the user.
        """
        self.work.stage("data", self.make_data)
        self.gpus = gpus_for(self.options.cpu)
        self.precision = chosen_once(self.folder / "precision", self.options.precision, self.gpus)
        self.work.stage("plan", self.plan)
        self.job = self.planned()
        self.work.stage("train", self.train_planned)

    def plan(self) -> None:
        """Write the minutes of the training to a file, for a second start."""
        given, usual = self.options.train_minutes, LONGEST_MINUTES if self.updates else self.usual_minutes()
        write_text(self.folder / "minutes", f"{float(given or usual):.2f}\n")
        if not self.updates:
            print_line(f"the training will take {self.minutes:.1f} minutes")

    @property
    def minutes(self) -> float:
        """Return the planned time of the training."""
        return float((self.folder / "minutes").read_text(encoding="utf-8"))

    def planned(self) -> Job:
        """Return the planned job of the recipe, on all GPUs of the machine."""
        config = copy.deepcopy(self.recipe.config)
        config["optimization"]["stop_time_hours"] = round(self.minutes / 60, 6)
        config["distributed_training"]["distributed_world_size"] = max(1, self.gpus)
        choices = Choices(
            self.folder, gpus=self.gpus, gpus_per_run=self.gpus, precision=self.precision, max_update=self.updates
        )
        recipe = replace(self.recipe, config=config)
        job = plan(recipe, recipe.seeds[0], self.folder / "data-bin", "", choices, self.folder)
        return replace(job, name="quickstart")

    def train_planned(self) -> None:
        """Train, and report a training of too few updates, by a short time or by a slow machine."""
        done = training.train(self.job, execute, [])
        if not self.updates and done < self.enough:
            minutes = math.ceil(max(2 * self.minutes, self.enough * self.minutes / max(1, done)))
            print_line(
                f"only {done} updates in {self.minutes:g} minutes, and {self.enough} make a good model: give "
                f"--train-minutes {minutes} or more and another --work-dir, or wait until the machine is idle"
            )


def gpus_for(cpu: bool) -> int:
    """Return the number of GPUs to train on, 0 for the CPU."""
    if torch.cuda.is_available() and not cpu:
        print_line(f"device: {torch.cuda.get_device_name()}")
        return torch.cuda.device_count()
    print_line("device: CPU")
    return 0
