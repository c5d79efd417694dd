"""The quick start: the data, the training of a recipe within its time, its score, and examples of its output.

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
from typing import List, Optional

import torch

from fairseq_mega.compat.features.precision import evaluating
from fairseq_mega.compat.files import locks
from fairseq_mega.data.card import RECORDS
from fairseq_mega.lab.prepare.command import prepare
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.language_modeling.splitting import HELD_OUT_SHARE
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

from .options import PROGRAM, TRANSLATION, parse, texts_of

DATA = ("text", "pieces", "data-bin", "counts.json", *RECORDS)  # names in the folder
LONGEST_MINUTES = 60.0  # limit of a training with --updates
SMOKE_UPDATES, SMOKE_BYTES = 20, 40_000
SMOKE_PAIRS = ["--vocab-size", "400", "--limit", "400"]
EXAMPLES = ["Open the file.", "Click on the Remote Files button in the Start Center.", "Choose Format - Page."]
INTERACTIVE, INSPECT = "fairseq-mega-interactive", "fairseq-mega-inspect"
SHOWN = 700  # bytes of the text that a language model writes at the end


def start(options: argparse.Namespace, command: str) -> None:
    """Run the stages that are not done, and show the model.

    Args:
        command: the command line, for the result file.

    Raises:
        OSError, ValueError, StageError: with messages for the user.
    """
    folder, recipe = options.work_dir, requested(options)
    check_settings(folder, settings(options, recipe), "--work-dir")
    words = [*data_words(options, recipe), "--out", str(folder), *["--workers", "1"] * options.smoke]
    stage(folder, "data", lambda: prepare(words, DATA))
    gpus = 0 if options.cpu else torch.cuda.device_count()
    print_line(f"device: {torch.cuda.get_device_name() if gpus else 'CPU'}")
    job = planned(options, recipe, gpus, training.chosen_once(folder / "precision", options.precision, gpus))
    if not job.updates:
        print_line(f"the training takes {minutes_of(recipe):g} minutes")
    stage(folder, "train", lambda: training.train(job, execute, []))
    (score_translator if options.task == TRANSLATION else score_language_model)(job, options, command)


def requested(options: argparse.Namespace) -> Recipe:
    """Return the recipe of the task, with the time and the languages that the options choose."""
    recipe = load(FOLDER / "quickstart" / f"{options.task}.yaml")
    config = copy.deepcopy(recipe.config)
    if options.train_minutes or updates_of(options):
        config["optimization"]["stop_time_hours"] = float(options.train_minutes or LONGEST_MINUTES) / 60
    if options.task == TRANSLATION:
        config["task"].update(source_lang=options.source_lang, target_lang=options.target_lang)
    return replace(recipe, config=config)


def updates_of(options: argparse.Namespace) -> int:
    """Return the requested number of updates; 0 where the clock alone ends the training."""
    return options.updates or (SMOKE_UPDATES if options.smoke else 0)


def minutes_of(recipe: Recipe) -> float:
    """Return the longest time of a recipe's training."""
    return 60 * float(recipe.config["optimization"]["stop_time_hours"])


def settings(options: argparse.Namespace, recipe: Recipe) -> List[str]:
    """Return the settings, which an unfinished folder must have, a line each."""
    texts = [f"{use} {sha256_of(path)}" for use, path in texts_of(options)]
    lines = [f"data {recipe.data}", f"evaluation {recipe.evaluate}"]
    lines += [f"{group} {recipe.config[group]}" for group in GROUPS]
    lines += [f"updates {updates_of(options) or 'by time'}", f"minutes {minutes_of(recipe):g}"]
    return [*lines, f"precision {options.precision}", *texts, *["smoke"] * options.smoke]


def data_words(options: argparse.Namespace, recipe: Recipe) -> List[str]:
    """Return the arguments of fairseq-mega-prepare that make the data of the recipe or from the user's text."""
    if options.task == TRANSLATION:
        given = {"--text": options.text, "--valid": options.valid, "--test": options.test}
        own = ["own-pairs", *(word for name, prefix in given.items() if prefix for word in (name, prefix))]
        languages = ["--source-lang", options.source_lang, "--target-lang", options.target_lang]
        data = own if options.text else [recipe.dataset]
        return [*data, *languages, *recipe.data_options, *(SMOKE_PAIRS if options.smoke else [])]
    usual = settings_of(recipe)
    own = ["text-lm", "--unit", "bytes", "--train", options.text]
    sizes = [usual.limit, *[SMOKE_BYTES] * options.smoke, *(path.stat().st_size for _, path in texts_of(options))]
    share = min(HELD_OUT_SHARE, round(usual.held_out * usual.limit, -3) / min(sizes))  # as many bytes of any text
    data = own if options.text else [recipe.dataset]
    return [*data, "--limit", str(min(sizes)), "--held-out", f"{share:.6f}"]


def planned(options: argparse.Namespace, recipe: Recipe, gpus: int, precision: str) -> Job:
    """Return the job of the recipe on all GPUs of the machine."""
    folder, config = options.work_dir, copy.deepcopy(recipe.config)
    config["distributed_training"]["distributed_world_size"] = max(1, gpus)
    choices = Choices(folder, gpus=gpus, precision=precision, max_update=updates_of(options), smoke=options.smoke)
    job = plan(replace(recipe, config=config), recipe.seeds[0], folder / "data-bin", "", choices, folder)
    return replace(job, name="quickstart")


def score_translator(job: Job, options: argparse.Namespace, command: str) -> None:
    """Translate the test sentences, print BLEU and examples, and write the result file."""
    result, checkpoint = job.folder / "result.json", job.folder / "checkpoints" / "checkpoint_best.pt"
    stage(job.folder, "translate", lambda: evaluation.translate(job, "best", checkpoint, execute, {}))
    languages = evaluation.languages(job)
    shown = {
        "task": "-".join(languages),
        "precision": job.precision,
        "train_minutes": f"{minutes_of(job.recipe):.2f}",
    }
    words = [*evaluation.score_words(job, "best"), "--examples", "5", "--json", str(result)]
    words += ["--command", command, "--seed", str(job.seed), "--label", "quickstart"]
    if report(["translations", *words, "--benchmark", "quickstart", *evaluation.settings_words(shown)]):
        raise StageError
    words = evaluation.translator_words(job, checkpoint)
    if options.text is None:
        show_examples([INTERACTIVE, *words])
    print(f"\ncheckpoint: {checkpoint}\nscore and settings: {result}")
    programs, sentence = Path(sys.prefix) / "bin", "TEXT" if options.text else EXAMPLES[1]
    drawn = [str(programs / INSPECT), str(checkpoint), "--attention", sentence]
    print(f"\nTo draw the source words that each word of a translation reads:\n\n  {shlex.join(drawn)}")
    print(f"\nTo translate what you type ({' to '.join(languages)}), paste this line:\n")
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


def score_language_model(job: Job, options: argparse.Namespace, command: str) -> None:
    """Score the test text, each byte once; print bits per byte, and a text that the model writes byte by byte."""
    stage(job.folder, "evaluate", lambda: evaluation.evaluate(job, execute, [], command))
    (file,) = job.result_files
    result = read_result(file)
    bits, count = result["scores"]["bits_per_token"], result["examples"]
    print(f"bits per byte: {bits:.3f} ({bits * math.log(2):.3f} nats), of {count:,} bytes of held-out text\n")
    folder, checkpoint, data = str(job.folder / "checkpoints"), "checkpoint_best.pt", str(job.data)
    generator = MegaLanguageModel.from_pretrained(folder, checkpoint, data)
    generator.to("cuda" if job.gpus else "cpu")
    prompt = "" if options.text else "Sea, n. "
    random = torch.Generator(generator.device).manual_seed(job.seed)
    print(prompt, end="", flush=True)
    with evaluating("fp32", generator.device.type):
        for text in islice(generator.stream(prompt, temperature=0.7, generator=random), SHOWN):
            print(text, end="", flush=True)
    print(f"\n\ncheckpoint: {folder}/{checkpoint}\nscore and settings: {file}")
    code = [
        f"from {MegaLanguageModel.__module__} import MegaLanguageModel",
        f"beginning = {prompt!r}  # or any text for the model to continue",
        f"model = MegaLanguageModel.from_pretrained({folder!r}, {checkpoint!r}, {data!r})",
        "print(beginning + model.complete(beginning, 500, temperature=0.7))",
    ]
    print(f"to write more:\n\nPYTHONWARNINGS=ignore {shlex.quote(sys.executable)} - <<'END'", *code, "END", sep="\n")
    words = [str(Path(sys.prefix) / "bin" / INTERACTIVE), data, "--path", f"{folder}/{checkpoint}"]
    words += [*["--cpu"] * (job.gpus == 0), "--beam", "1", "--sampling", "--temperature", "0.7"]
    print(f"\nin the shell, to continue each line that you type:\n\n  {shlex.join(words)}")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the quick start; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)

    def work() -> None:
        with locks.held(options.work_dir / "run.lock", f"--work-dir {options.work_dir}", "quick start"):
            start(options, shlex.join(["bash", f"scripts/{PROGRAM}", *given]))

    return run_script(PROGRAM, work)
