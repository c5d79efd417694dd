"""Options of fairseq-mega-reproduce, which a script checks with any Python 3 before there is an environment.

Needs the standard library only, as scripts/check_options.py runs :func:`main`.
"""

import argparse
from itertools import takewhile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.lab.runs.options import ROOT, Parser, add_environment, at_least, for_script

PROGRAM = "fairseq-mega-reproduce"
ABOUT = """\
Data and options are checked before anything runs. The same command continues an interrupted run: finished stages are
skipped, and a result is used for its own settings, data and seed only. Arguments after -- are passed to fairseq-train;
--set changes those that a recipe sets."""
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def seeds(text: str) -> List[int]:
    """Read whole numbers separated by commas, each once."""
    return list(dict.fromkeys(map(at_least(0), text.split(","))))


def build_parser(about: str, prog: str = PROGRAM, usage: Optional[str] = None, out: str = "reproduce") -> Parser:
    """Describe the command line.

    Args:
        about: first paragraphs of the help.
        usage: of a script, whose recipes are fixed.
        out: folder in outputs that is the default of --out.
    """
    parser = Parser(prog, usage, f"{about}\n\n{ABOUT}")
    recipes = "for example mega/table2/text/mega_chunk, mega/table2, figure4, or a file"
    parser.add_argument("recipes", nargs="*", metavar="RECIPE|TABLE", help=argparse.SUPPRESS if usage else recipes)
    parser.add_argument("--root", type=Path, default=Path(), help=argparse.SUPPRESS)
    doing = parser.add_argument_group("actions").add_mutually_exclusive_group().add_argument
    about = "list the recipes, those first that this machine finishes first: state, paper's value, ours, time left"
    doing("--list", action="store_true", help=about)
    doing("--print", action="store_true", help="print each recipe as a command line of fairseq-train")
    doing(
        "--yaml",
        action="store_true",
        help="print each recipe as one whole YAML file, without inheritance: a recipe of this command and, in a folder "
        "within the folder of its configurations, of fairseq-hydra-train",
    )
    which = parser.add_argument_group("choice and change of recipes").add_argument
    several: Dict[str, Any] = {"action": "append", "default": []}
    which(
        "--where",
        **several,
        metavar="KEY=LIST",
        help="recipes whose KEY ('name' or an entry of their cell, see --yaml) is in LIST: task=text,image, "
        "name=mega_chunk, direction=en-de; may be repeated",
    )
    which(
        "--set",
        **several,
        dest="settings",
        metavar="GROUP.OPTION=VALUE",
        help="set an option in the recipes that have it: optimization.lr=0.002, model.encoder_chunk_size=64, "
        "evaluate.average=10; may be repeated",
    )
    add_options_of_runs(parser, out)
    return parser


def add_options_of_runs(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options about runs, which no recipe shows."""
    how = parser.add_argument_group("training").add_argument
    files = parser.add_argument_group("files and evaluation").add_argument
    number = at_least(1)
    about = "seeds, separated by commas (default: the recipe's)"
    how("--seeds", "--seed", type=seeds, default=[], metavar="LIST", help=about)
    about = "number of GPUs for all runs together, 0: the CPU (default: all visible)"
    how("--gpus", type=at_least(0), metavar="N", help=about)
    about = (
        "train N updates, not more than the paper's; warm-up and decay are shortened alike, but --set keeps its values"
    )
    how("--max-update", type=number, metavar="N", help=about)
    about = "default: tf32 on GPUs, as in the papers' trainings; else fp32; bf16 in quick starts where it is fast"
    how("--precision", choices=PRECISIONS, help=about)
    how("--bf16", dest="precision", action="store_const", const="bf16", help="the same as --precision bf16")
    about = f"folder of runs, results and tables (default: outputs/{out})"
    files("--out", type=Path, metavar="DIR", help=about)
    about = "data folder; with several data sets, one folder each in it"
    files("--data", type=Path, metavar="DIR", help=about)
    about = (
        "score these weights without training: a checkpoint, or a folder of one for each recipe, of the published code "
        "or of this package; or the word published, which downloads the authors' weights (see --list)"
    )
    files("--checkpoint", metavar="FILE|DIR|published", help=about)
    files("--workers", type=number, metavar="N", help="number of processes that prepare data")
    about = "train toy models for a few updates on a little invented data, on the CPU"
    files("--smoke", action="store_true", help=about)
    about = "do not measure speed and memory for a table that has them"
    files("--no-speed", action="store_true", help=about)


def split_extra(given: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The command's own arguments, and those after -- for fairseq-train."""
    words = list(given)
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def main(arguments: List[str]) -> None:
    """Check the command line of a script that runs recipes, and print what the script needs of it.

    Args:
        arguments: path of the script, folder in outputs that is the default of --out, words of fairseq-mega-reproduce
            and of :func:`add_environment`.
    """
    script, folder, *given = arguments
    words, extra = split_extra(given)
    usage = f"bash scripts/{Path(script).name} [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]"
    lines = Path(script).read_text(encoding="utf-8").splitlines()[1:]
    about = "\n".join(line[2:] for line in takewhile(lambda line: line.startswith("#"), lines))
    parser = build_parser(about, Path(script).name, usage, folder)
    add_environment(parser.add_argument_group("environment"))
    found = parser.parse_intermixed_args(words)
    environment = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_environment(environment)
    _, words = environment.parse_known_args(words)
    if found.out is None and not (found.print or found.yaml):
        words += ["--out", str(ROOT / "outputs" / (f"{folder}-smoke" if found.smoke else folder))]
    print(for_script(found, [*words, "--root", str(ROOT), *(["--", *extra] if extra else [])]))
