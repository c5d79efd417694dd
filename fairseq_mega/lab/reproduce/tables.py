"""The tables and figures at the end of a command, with the options that its own options mean for them."""

import argparse
from typing import Dict, List, Sequence

from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.recipes.smoke import shrink_evaluation
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.runs.commands import PYTHON, execute
from fairseq_mega.lab.runs.stages import stage

from .evaluating import score_contexts
from .recording import print_report
from .runs import Run
from .wishes import Wishes

CHUNKED = {"table3": -1, "table4": 1000, "figure4": -1, "figure5": -1}  # reports of one chunk, by default this one


def print_tables(runs: Sequence[Run], options: argparse.Namespace, wishes: Wishes) -> int:
    """Print the reports of all runs, one after the other; returns the worst exit status."""
    status = 0
    for name in dict.fromkeys(run.recipe.report for run in runs):
        own = [run for run in runs if run.recipe.report == name]
        status = max(status, print_report(name, wishes, report_options(name, own, options, wishes)))
    return status


def report_options(name: str, runs: Sequence[Run], options: argparse.Namespace, wishes: Wishes) -> List[str]:
    """The options of a report."""
    words: List[str] = []
    if name in CHUNKED:
        words += ["--chunk", str(CHUNKED[name] if options.chunk is None else options.chunk)]
    if name == "figure6":
        left, right = runs[0].recipe.evaluate["contexts"]
        words += ["--label", runs[0].name, "--chunk", str(left["chunk_size"][0])]
        words += ["--segments", str(right["segments"][0]), "--benchmark", "figure6" + "-smoke" * wishes.smoke]
    if name == "table2":
        words += speed(wishes, [run.recipe for run in runs], options.no_speed)
    if options.output is not None and "figure" in name:
        words += ["--output", options.output]
    return words


def score_checkpoint(recipes: Sequence[Recipe], options: argparse.Namespace, wishes: Wishes) -> int:
    """Draw Figure 6 of a checkpoint that was trained elsewhere; returns the exit status.

    Raises:
        RecipeError: for other recipes, without the data, or if there is no such checkpoint.
    """
    if [recipe.report for recipe in recipes] != ["figure6"]:
        raise RecipeError("--path is for Figure 6 alone: give the recipe figure6")
    if not options.path.is_file():
        raise RecipeError(f"--path: {options.path} does not exist; without --path the model is trained first")
    if wishes.data is None:
        raise RecipeError("--path needs --data, the folder of fairseq-preprocess that the checkpoint was trained on")
    evaluate = {**recipes[0].evaluate, **wishes.evaluation}
    if wishes.smoke:
        evaluate = {**shrink_evaluation(recipes[0].evaluate), **wishes.evaluation}
    folder = wishes.results or wishes.out / "figure6"
    words = [str(wishes.data), "--path", str(options.path), "--label", "mega", "--benchmark", "figure6"]
    score_contexts([*words, "--output", str(folder)], evaluate, execute, {}, folder / "test.log")
    left, right = evaluate["contexts"]
    panels = ["--chunk", str(left["chunk_size"][0]), "--segments", str(right["segments"][0])]
    output = options.output or str(folder / "figure6.png")
    return report(["figure6", str(folder), "--label", "mega", *panels, "--output", output])


def speed(wishes: Wishes, recipes: Sequence[Recipe], left_out: bool) -> List[str]:
    """Measure training speed and memory on 4K tokens beside the Transformer's, if Text is among the tasks."""
    result = wishes.out / "speed.json"
    if any(recipe.cell["task"] == "text" for recipe in recipes) and not left_out and not wishes.smoke:
        where = "cuda" if wishes.gpus else "cpu"
        words = [*PYTHON, "fairseq_mega.lab.benchmarks", "lra-speed", "--length", "4096", "--json", str(result)]
        nothing: Dict[str, str] = {}
        log = wishes.out / "speed.log"
        stage(wishes.out, f"speed.{where}", lambda: execute([*words, "--device", where], log, nothing))
    return ["--speed", str(result)] if result.exists() else []
