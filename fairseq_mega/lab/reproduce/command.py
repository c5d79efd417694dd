"""Repeat the numbers of the papers: prepare the data, train, evaluate, record, and print them beside the paper's.

A RECIPE is one trained number (mega/table2/text/mega_chunk), a TABLE all numbers of a table or figure (table2, figure4,
megalodon/table5). A name without a paper means MEGA's where both papers have such a table. --help beside a RECIPE or a
TABLE describes its recipes.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.cli.commands import failure, hide_deprecations
from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError, as_yaml
from fairseq_mega.lab.reproduce import aggregate, launchers, listing, options, precisions, requested, runner
from fairseq_mega.lab.reproduce.authors_archives import fetch_processed
from fairseq_mega.lab.reproduce.behind import check_extra
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.options import PROGRAM
from fairseq_mega.lab.reproduce.revising import check_by_fairseq
from fairseq_mega.lab.reproduce.runs import plan
from fairseq_mega.lab.reproduce.storage import check_disk
from fairseq_mega.lab.reproduce.tables import print_tables, score_checkpoint
from fairseq_mega.lab.reproduce.weights import find_weights
from fairseq_mega.lab.runs.commands import StageError


def visible_gpus() -> int:
    """Return the number of GPUs that torch sees."""
    import torch

    return torch.cuda.device_count()


def run(given: argparse.Namespace, extra: Sequence[str], command: Sequence[str]) -> int:
    """Carry out the options; return the exit status, 1 where a run failed.

    Raises:
        RecipeError, ValueError, OSError, StageError: with messages for the user.
    """
    recipes, seeds = requested.chosen(given), requested.seeds_of(given)
    if given.yaml or given.print:
        requested.check_printed(given, extra)
    if given.yaml:
        print("---\n".join(map(as_yaml, recipes)), end="")
        return 0
    if given.print:
        for recipe in recipes:
            words = [*without_user_dir(arguments(recipe.config, recipe.preset)), *precisions.option_of(recipe)]
            print(shlex.join(["fairseq-train", "--user-dir", "fairseq_mega", *words]))
        return 0
    requested.check_weights(given, extra)
    choices = requested.choices_of(given, extra, visible_gpus)
    if given.checkpoint is None:
        choices = precisions.with_automatic(choices, recipes, begun=not given.list)
    runner.check_choices(recipes, choices)
    if given.list:
        print("\n".join(listing.listing(recipes, seeds, choices)))
        return 0
    if given.path is not None:
        return score_checkpoint(recipes, given, choices)
    if choices.gpus == 0 and given.gpus is None and not given.smoke:
        raise RecipeError("no GPU is visible: give --gpus 0 to use the CPU, or --smoke for a quick test")
    for recipe in recipes:
        planned = plan(recipe, 1, Path(), "", choices)
        if choices.max_update or choices.settings_of(recipe):
            check_by_fairseq(replace(recipe, config=planned.config))
        if extra:
            check_extra(recipe, planned.train_arguments(), extra)
    fetch_processed(recipes, choices)
    if given.checkpoint is not None:
        choices = replace(choices, weights=find_weights(recipes, given.checkpoint, choices))
    elsewhere = given.launcher != "local"
    runner.check(recipes, choices, choices.gpus if elsewhere or choices.gpus == 0 else visible_gpus())
    return reproduce(recipes, seeds, choices, given, command)


def reproduce(
    recipes: Sequence[Recipe], seeds: List[int], choices: Choices, given: argparse.Namespace, command: Sequence[str]
) -> int:
    """Prepare the data of all recipes, then do or launch their runs, then print the tables."""
    digests = runner.prepare_all(recipes, choices)
    runs = runner.same_work(runner.runs_of(recipes, seeds, choices, digests))
    runner.check_bands([run for run in runs if run.recipe.name not in choices.weights])
    if given.launcher == "print":
        launchers.print_commands(runs, choices, command, given.recipes)
        return 0
    check_disk(runs, choices.out)
    if given.launcher == "slurm":
        parameters = dict(requested.parameter(text) for text in given.slurm)
        print(
            f"jobs {', '.join(launchers.submit(runs, choices, parameters))}; the same command without --launcher then"
        )
        return 0
    outcomes = runner.perform_all(runs, choices, shlex.join([PROGRAM, *command]), only_train=given.only_train)
    if not given.only_train and not choices.weights:
        aggregate.write_cells(runs, choices, shlex.join([PROGRAM, *command]))
    failed = [outcome.run.name for outcome in outcomes if outcome.error is not None]
    status = 0 if given.only_train else print_tables(runs, failed, given, choices)
    if failed:
        print(f"{PROGRAM}: error: {len(failed)} of {len(runs)} runs failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else status


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    words, extra = options.split_extra(given)
    parser = options.build_parser(words, str(__doc__).strip())
    hide_deprecations()
    try:
        return run(parser.parse_intermixed_args(words), extra, given)
    except (OSError, ValueError, StageError) as error:
        return failure(PROGRAM, error)
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; the same command continues", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
