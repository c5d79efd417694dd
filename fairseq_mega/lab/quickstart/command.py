"""The quick start: the data, a plan by time, the training of a recipe, its score, and examples of its output.

The training ends within its time on any machine. Each stage is done once in the work folder.
"""

import argparse
import copy
import math
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import List, Optional, Sequence

import torch

from fairseq_mega.compat.features.precision import evaluating
from fairseq_mega.compat.files import locks
from fairseq_mega.data.card import RECORDS, record_of
from fairseq_mega.lab.inspect.recipe_models import vocab_size_of
from fairseq_mega.lab.prepare import libreoffice_help
from fairseq_mega.lab.prepare.command import prepare
from fairseq_mega.lab.prepare.debian import fetch_package, need_dpkg
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.language_modeling.splitting import HELD_OUT_SHARE
from fairseq_mega.lab.prepare.language_modeling.texts import PACKAGE
from fairseq_mega.lab.prepare.of_recipes import settings_of
from fairseq_mega.lab.recipes.recipe import FOLDER, GROUPS, Recipe, load
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.reproduce import evaluating as evaluation
from fairseq_mega.lab.reproduce import training
from fairseq_mega.lab.reproduce.jobs import Job, plan
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.runs.commands import StageError, execute
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.script import run_script
from fairseq_mega.lab.runs.stages import check_settings, print_line, stage
from fairseq_mega.models.mega_lm import MegaLanguageModel

from .options import PROGRAM, TRANSLATION, parse

DATA = ("text", "pieces", "data-bin", "counts.json", *RECORDS)  # names in the folder
LONGEST_MINUTES = 60.0  # limit of a training with --updates
SMOKE_UPDATES, SMOKE_VOCABULARY, SMOKE_PAIRS, SMOKE_BYTES = 20, 400, 400, 40_000
EXAMPLES = ["Open the file.", "Click on the Remote Files button in the Start Center.", "Choose Format - Page."]
INTERACTIVE, INSPECT = "fairseq-mega-interactive", "fairseq-mega-inspect"
SHOWN = 700  # bytes of the text that a language model writes at the end


def recipe_of(options: argparse.Namespace) -> Recipe:
    """Return the recipe of the task that the options choose."""
    return load(FOLDER / "quickstart" / f"{options.task}.yaml")


class QuickStart:
    """The stages of a task in a folder.

    Args:
        options: of the command line.
        command: the command line, for the result file.
        recipe: of the training.
        task: lines on the task's settings and texts; an unfinished folder must have the same settings.
        texts: lines on the user's texts.

    Raises:
        StageError: if the folder was begun with other settings.
    """

    def __init__(
        self, options: argparse.Namespace, command: str, recipe: Recipe, task: Sequence[str], texts: Sequence[str]
    ) -> None:
        self.options, self.command, self.recipe = options, command, recipe
        self.updates = options.updates or (SMOKE_UPDATES if options.smoke else 0)
        usual = LONGEST_MINUTES if self.updates else 60 * self.recipe.config["optimization"]["stop_time_hours"]
        self.minutes = float(options.train_minutes or usual)
        lines = [*task, *(f"{group} {self.recipe.config[group]}" for group in GROUPS)]
        lines += [f"updates {self.updates or 'by time'}", f"minutes {self.minutes:g}"]
        lines += [f"precision {options.precision}", *texts, *["smoke"] * options.smoke]
        self.folder = options.work_dir
        check_settings(self.folder, lines, "--work-dir")
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"

    def data_words(self) -> List[str]:
        """Return the arguments of fairseq-mega-prepare that make the data, without the folder."""
        raise NotImplementedError

    def score(self) -> None:
        """Score the trained model and show what it writes."""
        raise NotImplementedError

    def start(self) -> None:
        """Run the stages that are not done, and show the model.

        Raises:
            OSError, ValueError, StageError: with messages for the user.
        """
        stage(self.folder, "data", self.make_data)
        gpus = 0 if self.options.cpu else torch.cuda.device_count()
        print_line(f"device: {torch.cuda.get_device_name() if gpus else 'CPU'}")
        precision = training.chosen_once(self.folder / "precision", self.options.precision, gpus)
        self.job = self.planned(gpus, precision)
        if not self.updates:
            print_line(f"the training takes {self.minutes:g} minutes")
        stage(self.folder, "train", lambda: training.train(self.job, execute, []))
        self.score()

    def make_data(self) -> None:
        """Make the data, as fairseq-mega-prepare does."""
        workers = ["--workers", "1"] if self.options.smoke else []
        prepare([*self.data_words(), "--out", str(self.folder), *workers], DATA)
        inputs = record_of(self.folder)["inputs"]
        packages = [f"{file.partition('_')[0]} {of['version']}" for file, of in inputs.items() if "version" in of]
        if packages:
            print_line(f"text: {', '.join(packages)}")

    def fetched(self, names: Sequence[str], own: str) -> List[str]:
        """Return files of Debian's packages, which are fetched where missing; the error names ``own``, options for the
        user's text.
        """
        otherwise = f"Use your own text instead, on any system: {own}"
        need_dpkg(otherwise)
        return [str(fetch_package(name, self.options.packages, otherwise)) for name in names]

    def planned(self, gpus: int, precision: str) -> Job:
        """Return the planned job of the recipe, on all GPUs of the machine."""
        config = copy.deepcopy(self.recipe.config)
        config["optimization"]["stop_time_hours"] = round(self.minutes / 60, 6)
        config["distributed_training"]["distributed_world_size"] = max(1, gpus)
        choices = Choices(
            self.folder, gpus=gpus, precision=precision, max_update=self.updates, smoke=self.options.smoke
        )
        recipe = replace(self.recipe, config=config)
        job = plan(recipe, recipe.seeds[0], self.folder / "data-bin", "", choices, self.folder)
        return replace(job, name="quickstart")


class Translation(QuickStart):
    """A translator from the help of LibreOffice, English to German, or from the user's text."""

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        recipe, self.languages = recipe_of(options), [options.source_lang, options.target_lang]
        self.vocab_size = SMOKE_VOCABULARY if options.smoke else vocab_size_of(recipe)
        task = [f"languages {' '.join(self.languages)}", f"vocabulary {self.vocab_size}"]
        task.append(f"beam {recipe.evaluate['beam']}")
        prefixes = {"": options.text, "valid ": options.valid, "test ": options.test}
        texts = [
            f"{use}{sha256_of(Path(f'{prefix}.{language}'))}"
            for use, prefix in prefixes.items()
            for language in (self.languages if prefix else ())
        ]
        super().__init__(options, command, recipe, task, texts)
        self.recipe.config["task"].update(source_lang=options.source_lang, target_lang=options.target_lang)

    def data_words(self) -> List[str]:
        """Return the arguments that clean the text, divide it and split it into subwords."""
        options, (source, target) = self.options, self.languages
        if options.text is None:
            own = f"--text PREFIX (files PREFIX.{source} and PREFIX.{target})"
            words = ["help-pairs", "--deb", *self.fetched(list(libreoffice_help.PACKAGES.values()), own)]
        else:
            given = {"--text": options.text, "--valid": options.valid, "--test": options.test}
            words = ["own-pairs", *(word for name, prefix in given.items() if prefix for word in (name, prefix))]
        few = ["--limit", str(SMOKE_PAIRS)] if options.smoke else []
        return [*words, "--source-lang", source, "--target-lang", target, "--vocab-size", str(self.vocab_size), *few]

    def score(self) -> None:
        """Translate the test sentences, print BLEU and examples, and write the result file."""
        job, result = self.job, self.folder / "result.json"
        stage(self.folder, "translate", lambda: evaluation.translate(job, "best", self.checkpoint, execute, {}))
        settings = {
            "task": "-".join(self.languages),
            "precision": job.precision,
            "train_minutes": f"{self.minutes:.2f}",
        }
        words = [*evaluation.score_words(job, "best"), "--examples", "5", "--json", str(result)]
        words += ["--command", self.command, "--seed", str(job.seed), "--label", "quickstart"]
        words += ["--benchmark", "quickstart", *evaluation.settings_words(settings)]
        if report(["translations", *words]):
            raise StageError
        words = evaluation.translator_words(job, self.checkpoint)
        if self.options.text is None:
            show_examples([INTERACTIVE, *words])
        print(f"\ncheckpoint: {self.checkpoint}\nscore and settings: {result}")
        programs, sentence = Path(sys.prefix) / "bin", "TEXT" if self.options.text else EXAMPLES[1]
        drawn = [str(programs / INSPECT), str(self.checkpoint), "--attention", sentence]
        print(f"\nTo draw the source words that each word of a translation reads:\n\n  {shlex.join(drawn)}")
        print(f"\nTo translate what you type ({' to '.join(self.languages)}), paste this line:\n")
        print(f"  {shlex.join([str(programs / INTERACTIVE), *words])}")


def show_examples(command: List[str]) -> None:
    """Translate some sentences of an interface.

    Raises:
        StageError: if the command fails.
    """
    done = subprocess.run(command, input="\n".join(EXAMPLES) + "\n", capture_output=True, encoding="utf-8")
    if done.returncode:
        raise StageError(f"{INTERACTIVE} failed: {done.stderr.strip().splitlines()[-1]}")
    answers = [line.split("\t")[2] for line in done.stdout.splitlines() if line.startswith("D-")]
    for source, answer in zip(EXAMPLES, answers):
        print(f"  {source:55} {answer}")


class LanguageModel(QuickStart):
    """A language model of bytes, from a dictionary of English or from the user's text."""

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        text = "dict-gcide" if options.text is None else sha256_of(Path(options.text))
        super().__init__(options, command, recipe_of(options), [f"text {text}"], [])

    def data_words(self) -> List[str]:
        """Return the words that select blocks of the text, some of them for validation and test."""
        usual = settings_of(self.recipe)
        held_out = round(usual.held_out * usual.limit, -3)  # bytes for each of the two; the share is a rounded one
        limit = SMOKE_BYTES if self.options.smoke else usual.limit
        if self.options.text is None:
            words = ["gcide", "--deb", *self.fetched([PACKAGE], "--text FILE")]
        else:
            words = ["text-lm", "--unit", "bytes", "--train", self.options.text]
            limit = min(limit, Path(self.options.text).stat().st_size)
        share = min(HELD_OUT_SHARE, held_out / limit)
        return [*words, "--limit", str(limit), "--held-out", f"{share:.6f}"]

    def score(self) -> None:
        """Score the test text, each byte once; print bits per byte, and a text that the model writes byte by byte."""
        stage(self.folder, "evaluate", lambda: evaluation.evaluate(self.job, execute, [], self.command))
        (file,) = (self.folder / "results").rglob("*.json")
        result = read_result(file)
        bits, count = result["scores"]["bits_per_token"], result["examples"]
        print(f"bits per byte: {bits:.3f} ({bits * math.log(2):.3f} nats), of {count:,} bytes of held-out text\n")
        where = str(self.checkpoint.parent), self.checkpoint.name, str(self.folder / "data-bin")
        generator = MegaLanguageModel.from_pretrained(*where)
        generator.to("cuda" if self.job.gpus else "cpu")
        prompt = "" if self.options.text else "Sea, n. "
        random = torch.Generator(generator.device).manual_seed(self.job.seed)
        print(prompt, end="", flush=True)
        with evaluating("fp32", generator.device.type):
            for text in islice(generator.stream(prompt, temperature=0.7, generator=random), SHOWN):
                print(text, end="", flush=True)
        print(f"\n\ncheckpoint: {self.checkpoint}\nscore and settings: {file}")
        code = [
            f"from {MegaLanguageModel.__module__} import MegaLanguageModel",
            f"beginning = {prompt!r}  # or any text for the model to continue",
            f"model = MegaLanguageModel.from_pretrained({', '.join(map(repr, where))})",
            "print(beginning + model.complete(beginning, 500, temperature=0.7))",
        ]
        print(
            f"to write more:\n\nPYTHONWARNINGS=ignore {shlex.quote(sys.executable)} - <<'END'", *code, "END", sep="\n"
        )
        words = [str(Path(sys.prefix) / "bin" / INTERACTIVE), where[2], "--path", str(self.checkpoint)]
        words += [*["--cpu"] * (self.job.gpus == 0), "--beam", "1", "--sampling", "--temperature", "0.7"]
        print(f"\nin the shell, to continue each line that you type:\n\n  {shlex.join(words)}")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the quick start; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    command = shlex.join(["bash", f"scripts/{PROGRAM}", *given])

    def work() -> None:
        quick_start = (Translation if options.task == TRANSLATION else LanguageModel)(options, command)
        folder = quick_start.folder
        with locks.held(folder / "run.lock", f"--work-dir {folder}", "quick start"):
            quick_start.start()

    return run_script(PROGRAM, work)
