"""Repeat the numbers of the papers: prepare the data, train, evaluate, record, and print them beside the paper's.

A RECIPE is one trained number (mega/table2/text/mega_chunk), a TABLE all numbers of a table or figure (table2, figure4,
megalodon/table5). A name without a paper means MEGA's where both papers have such a table.
"""

import argparse
import ctypes
import shlex
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.cli.commands import quiet_libraries
from fairseq_mega.lab.recipes.catalogue import catalogue, find_all
from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.recipes.recipe import AUTO, Recipe, as_yaml
from fairseq_mega.lab.reproduce import options
from fairseq_mega.lab.reproduce.listing import listing
from fairseq_mega.lab.reproduce.options import PROGRAM
from fairseq_mega.lab.reproduce.settings import Choices, choose, parse_setting, revise_all
from fairseq_mega.lab.runs.options import usable_cores
from fairseq_mega.lab.runs.script import run_script


def visible_gpus() -> int:
    """Return the number of GPUs that torch sees; without a driver torch is not imported, which needs seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        if not Path("/dev/kfd").exists():  # of AMD's
            return 0
    import torch

    return torch.cuda.device_count()


def run(given: argparse.Namespace, extra: Sequence[str], command: Sequence[str]) -> int:
    """Carry out the options; return the exit status, 1 where a run failed.

    Raises:
        RecipeError, ValueError, OSError, StageError: with messages for the user.
    """
    recipes = chosen(given)
    if given.yaml:
        print("---\n".join(map(as_yaml, recipes)), end="")
    elif given.print:
        print("\n".join(map(line_of, recipes)))
    elif given.list:
        print("\n".join(listing(recipes, given.seeds, choices_of(given, extra))))
    else:
        from fairseq_mega.lab.reproduce.runner import reproduce  # and torch

        return reproduce(recipes, choices_of(given, extra), given, command)
    return 0


def chosen(given: argparse.Namespace) -> List[Recipe]:
    """Return the recipes that the options select, with the changes by options.

    Raises:
        RecipeError: if there is none, or an option does not suit them.
    """
    found = find_all(given.recipes)
    if any(recipe.name not in catalogue() for recipe in found):  # a test checks those of the package
        from fairseq_mega.lab.reproduce.data import check_recipes

        check_recipes(found)
    for text in given.where:
        found = choose(found, text)
    return revise_all(found, tuple(map(parse_setting, given.settings)))


def line_of(recipe: Recipe) -> str:
    """Return the command line of fairseq-train for a recipe, with the precision that the runner uses here."""
    words = ["--precision", AUTO] if recipe.precision == AUTO else []
    if not words and visible_gpus():
        from fairseq_mega.lab.reproduce.training import rounds_products

        words = ["--precision", "tf32"] if rounds_products() else []
    line = [*without_user_dir(arguments(recipe.config, recipe.preset)), *words]
    return shlex.join(["fairseq-train", "--user-dir", "fairseq_mega", *line])


def choices_of(given: argparse.Namespace, extra: Sequence[str]) -> Choices:
    """Return the settings that the options make for all recipes."""
    out = given.out or given.root / ("outputs/reproduce-smoke" if given.smoke else "outputs/reproduce")
    same = ("max_update", "precision", "smoke")
    return Choices(
        out=out.resolve(),
        root=given.root.resolve(),
        data=given.data and given.data.resolve(),
        gpus=0 if given.smoke else visible_gpus() if given.gpus is None else given.gpus,
        settings=tuple(map(parse_setting, given.settings)),
        extra=tuple(extra),
        workers=given.workers or usable_cores(),
        **{name: getattr(given, name) for name in same},
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    words, extra = options.split_extra(given)
    parsed = options.build_parser(str(__doc__).strip()).parse_intermixed_args(words)
    quiet_libraries()
    return run_script(PROGRAM, lambda: run(parsed, extra, given))


if __name__ == "__main__":
    sys.exit(main())
