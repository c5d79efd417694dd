"""Options of fairseq-mega-reproduce, which a script checks with any Python 3 before there is an environment.

Needs the standard library only, as scripts/check_options.py runs :func:`main`; PyYAML adds to the help.
"""

import argparse
import re
from pathlib import Path
from typing import List, NoReturn, Optional, Sequence, Tuple

from fairseq_mega.cli.usage import UNKNOWN, Parser
from fairseq_mega.lab.runs.options import ROOT, WIDTH, add_environment, at_least, for_script

PROGRAM = "fairseq-mega-reproduce"
RECIPES = Path(__file__).resolve().parents[1] / "recipes"
ABOUT = """\
Data and options are checked before anything runs. The same command continues an interrupted run: finished stages are
skipped, and a result is used for its own settings, data and seed only. Arguments after -- are passed to fairseq-train;
--set changes those that a recipe sets."""
LACKING = re.compile(r"argument (\S+): expected .* arguments?")
LAUNCHERS = ("local", "print")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
OF_TRAININGS = {"seeds", "max_update", "only_train", "gpus_per_run", "launcher"}  # which score no weights


def seeds(text: str) -> List[int]:
    """Read whole numbers separated by commas, each once."""
    found = list(map(at_least(0), text.split(",")))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"'{text}': give each number once")
    return found


def refuse_without_effect(given: argparse.Namespace, extra: Sequence[str]) -> None:
    """Refuse options of runs beside those that show a recipe, and options of trainings beside --checkpoint.

    Raises:
        ValueError: naming the option.
    """
    words = {action.dest: action.option_strings[0] for action in reversed(given.of_runs)}
    words = {dest: word for dest, word in words.items() if getattr(given, dest) != given.defaults[dest]}
    half = {"precision"} if given.precision in ("bf16", "fp16") else set()
    for main_option, idle in (("print", set(words)), ("yaml", set(words)), ("checkpoint", OF_TRAININGS | half)):
        found = [word for dest, word in words.items() if dest in idle] + [f"{word} after --" for word in extra[:1]]
        if getattr(given, main_option) and found:
            raise ValueError(f"{found[0]} has no effect beside --{main_option}: omit it")


class OneLineParser(Parser):
    """A parser whose errors have the form of the runner's own."""

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and end with exit status 1."""
        lacking, unknown = LACKING.fullmatch(message), message.startswith(UNKNOWN)
        if lacking is not None:
            message = f"{lacking[1].split('/')[0]} needs a value; see --help"
        elif unknown:
            message = f"unknown option '{message[len(UNKNOWN) :].split()[0]}'; see --help"
        self.exit(1, f"{self.prog}: error: {message.removeprefix('argument ')}\n")


def build_parser(
    words: Sequence[str], about: str, prog: str = PROGRAM, usage: Optional[str] = None, out: str = "reproduce"
) -> OneLineParser:
    """Describe the command line.

    Args:
        words: of the command; its help describes the recipes that they name.
        about: first paragraphs of the help.
        usage: of a script, whose recipes are fixed.
        out: folder in outputs that is the default of --out.
    """
    parser = OneLineParser(
        prog=prog,
        usage=usage,
        description=f"{about}\n\n{ABOUT}",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
        allow_abbrev=False,
    )
    if {"-h", "--help"} & set(words):
        describe_recipes(parser, words)
    recipes = "for example mega/table2/text/mega_chunk, mega/table2, figure4, or a file"
    parser.add_argument("recipes", nargs="*", metavar="RECIPE|TABLE", help=argparse.SUPPRESS if usage else recipes)
    add_options(parser, out)
    return parser


def describe_recipes(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the values of --where, the seeds and the notes of the recipes that words of a command line name.

    Without PyYAML, the names of the recipes' files alone.
    """
    try:
        from fairseq_mega.lab.recipes.describing import description, named, notes
    except ImportError:
        tables = [word for word in words if not word.startswith("-") and (RECIPES / word).is_dir()]
        files = [file for table in tables for file in sorted((RECIPES / table).rglob("*.yaml"))]
        names = dict.fromkeys(file.stem for file in files)
        parser.add_argument_group(f"recipes of {', '.join(tables)}", f"--where name=LIST  {', '.join(names)}")
        parser.epilog = "After bash scripts/setup.sh, --help lists more keys of --where, the seeds and notes."
        return
    tables, recipes = named(words)
    if recipes:
        parser.add_argument_group(f"recipes of {', '.join(tables)}", description(recipes))
        parser.epilog = notes(recipes)


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Add all options; ``of_runs`` in the result has those about runs, which no recipe shows."""
    doing = parser.add_argument_group("actions").add_mutually_exclusive_group().add_argument
    doing("--list", action="store_true", help="list the recipes: state, paper's value, ours, time left")
    doing("--print", action="store_true", help="print each recipe as a command line of fairseq-train")
    doing(
        "--yaml",
        action="store_true",
        help="print each recipe as one whole YAML file, without inheritance: a recipe of this command and, in a folder "
        "within the folder of its configurations, of fairseq-hydra-train",
    )
    which = parser.add_argument_group("choice and change of recipes").add_argument
    which(
        "--where",
        action="append",
        default=[],
        metavar="KEY=LIST",
        help="recipes whose KEY ('name' or an entry of their cell, see --yaml) is in LIST: task=text,image, "
        "name=mega_chunk, direction=en-de; may be repeated",
    )
    which(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="[NAME:]GROUP.OPTION=VALUE",
        help="set an option in the recipes that have it, or in recipes named NAME: optimization.lr=0.002, "
        "mega_chunk:model.encoder_chunk_size=64, evaluate.average=10; may be repeated",
    )
    which("--root", type=Path, default=Path(), help=argparse.SUPPRESS)
    shown = len(parser._actions)
    how = parser.add_argument_group("training").add_argument
    how("--only-train", action="store_true", help="do not evaluate, and print no table")
    how(
        "--launcher",
        choices=LAUNCHERS,
        default="local",
        help="run here; or make the data and print a command for each run",
    )
    how(
        "--seeds",
        "--seed",
        type=seeds,
        default=[],
        metavar="LIST",
        help="seeds, separated by commas (default: the recipe's)",
    )
    how(
        "--gpus",
        type=at_least(0),
        metavar="N",
        help="number of GPUs for all runs together, 0: the CPU (default: all visible)",
    )
    how(
        "--gpus-per-run",
        type=at_least(1),
        metavar="N",
        help="maximum GPUs of one run (default: as many as the published batch comes from)",
    )
    how("--per-step", type=at_least(1), metavar="N", help="examples of one pass on a GPU (default: the recipe's)")
    how(
        "--max-update",
        type=at_least(1),
        metavar="N",
        help="train N updates, not more than the paper's; warm-up and decay are shortened alike, but --set keeps its "
        "values",
    )
    how(
        "--precision",
        choices=PRECISIONS,
        help="default: tf32 on GPUs, as in the papers' trainings; else fp32; bf16 in quick starts where it is fast",
    )
    how("--fp32", dest="precision", action="store_const", const="fp32", help="the same as --precision fp32")
    how("--bf16", dest="precision", action="store_const", const="bf16", help="the same as --precision bf16")
    files = parser.add_argument_group("files and evaluation")
    where = files.add_argument
    where(
        "--out",
        "--work-dir",
        type=Path,
        metavar="DIR",
        help=f"folder of runs, results and tables (default: outputs/{out})",
    )
    of_data = files.add_mutually_exclusive_group().add_argument
    of_data("--data", type=Path, metavar="DIR", help="data folder; with several data sets, one folder each in it")
    of_data("--data-dir", type=Path, metavar="DIR", help="folder with a folder for each data set")
    of_data(
        "--processed",
        metavar="DIR|URL",
        help="instead of --data, the authors' processed data: an unpacked archive, the address of an archive, or "
        "the word published, which downloads all archives that are needed",
    )
    where(
        "--checkpoint",
        metavar="FILE|DIR|URL",
        help="score these weights without training: a checkpoint, or a folder or zip file of checkpoints, of the "
        "published code or of this package; or the word published, for the authors' weights (see --list)",
    )
    where("--released", action="store_true", help="use ListOps, Retrieval, Pathfinder, Path-X of LRA's archive (8 GB)")
    where(
        "--archives",
        type=Path,
        metavar="DIR",
        help="folder of the archives of WMT'16 and LRA, which are downloaded into it where missing",
    )
    where("--no-download", action="store_true", help="fail if an archive is missing, instead of downloading it")
    where("--results-dir", type=Path, metavar="DIR", help="folder for the result files (default: results in --out)")
    where("--output", metavar="FILE", help="image file of a figure (default: figure4.png, for example, in --out)")
    where("--workers", "--processes", type=at_least(1), metavar="N", help="number of processes that prepare data")
    where(
        "--smoke", action="store_true", help="train toy models for a few updates on a little invented data, on the CPU"
    )
    where("--no-speed", action="store_true", help="do not measure speed and memory for a table that has them")
    of_runs = parser._actions[shown:]
    parser.set_defaults(of_runs=of_runs, defaults={action.dest: action.default for action in of_runs})


def split_extra(given: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The command's own arguments, and those after -- for fairseq-train."""
    words = list(given)
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def comment_of(script: Path) -> str:
    """Return the comment at the top of a script of the shell, which describes it."""
    _, *lines = script.read_text(encoding="utf-8").splitlines()
    end = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line[2:] for line in lines[:end])


def main(arguments: List[str]) -> None:
    """Check the command line of a script that runs recipes, and print what the script needs of it.

    Args:
        arguments: path of the script, folder in outputs that is the default of --out, words of fairseq-mega-reproduce
            and of :func:`add_environment`.
    """
    script, folder, *given = arguments
    words, extra = split_extra(given)
    usage = f"bash scripts/{Path(script).name} [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]"
    parser = build_parser(words, comment_of(Path(script)), Path(script).name, usage, folder)
    add_environment(parser.add_argument_group("environment"))
    found = parser.parse_intermixed_args(words)
    environment = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_environment(environment)
    _, words = environment.parse_known_args(words)
    if found.out is None and not (found.print or found.yaml):
        words += ["--out", str(ROOT / "outputs" / (f"{folder}-smoke" if found.smoke else folder))]
    print(for_script(found, [*words, "--root", str(ROOT), *(["--", *extra] if extra else [])]))
