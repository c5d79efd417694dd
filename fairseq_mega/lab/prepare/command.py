"""Prepare a data set: of the papers, a real stand-in for one, or your own.

The command generates, downloads or reads the raw data and checks them. It writes into --out the files that a task
reads, and card.json: origin, options, counts and checksums. Progress goes to stderr. The same command continues an
interrupted run, and does nothing where the data set is complete.
"""

import argparse
import shlex
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.cli.usage import Parser
from fairseq_mega.compat.files.full_disk import naming_a_full_disk
from fairseq_mega.lab.prepare.making import make
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.runs.environment import git_revision, installed_versions
from fairseq_mega.lab.runs.options import ROOT
from fairseq_mega.lab.runs.script import run_script

PROGRAM = "fairseq-mega-prepare"
PACKAGES = ("fairseq_mega", "fairseq", "fairseq-fixed", "numpy", "torch", "scikit-learn")


def listed_by_kind() -> str:
    """Return a line for each data set, below its kind."""
    lines: List[str] = []
    for kind in dict.fromkeys(dataset.kind for dataset in DATASETS.values()):
        lines += ["", f"{kind}:"]
        lines += [f"    {found.name:17}{found.summary}" for found in DATASETS.values() if found.kind == kind]
    return "\n".join(lines)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    description = f"{__doc__}{listed_by_kind()}"
    parser = Parser(
        prog=PROGRAM, description=description, formatter_class=form, epilog="sizes, times and options: DATASET --help"
    )
    commands = parser.add_subparsers(dest="dataset", required=True, metavar="DATASET", help="name of a data set above")
    for dataset in DATASETS.values():
        description = f"{dataset.name}: {dataset.summary}.\n\n{dataset.details}"
        command = commands.add_parser(dataset.name, description=description, formatter_class=form, allow_abbrev=False)
        dataset.add_all_options(command)
    return parser


def with_toy_data(words: Sequence[str], folder: Path) -> List[str]:
    """Return the words of a command line with options that read invented data, written to a folder.

    Raises:
        ValueError: where the words name data themselves.
    """
    toy = DATASETS[words[0]].toy
    assert toy is not None
    options = toy(folder)
    own = {word.partition("=")[0] for word in words}
    for option, value in zip(options, options[1:]):
        if option in own and value.startswith(str(folder)):
            raise ValueError(f"--smoke makes its own small data: omit {option}")
    return [words[0], *options, *words[1:]]


def prepare(given: Sequence[str], leaves: Tuple[str, ...] = ()) -> None:
    """Make the data set that the words of a command line describe, unless it is there.

    Args:
        leaves: names of all results, where the folder may contain other files; by default those of the data set.

    Raises:
        OSError, ValueError, StageError: with messages for the user.
    """
    smoke = "--smoke" in given and given[0] in DATASETS and DATASETS[given[0]].toy is not None

    def provenance() -> Dict[str, Any]:
        command = shlex.join([PROGRAM, *given])
        return {"command": command, "git_revision": git_revision(), "versions": installed_versions(PACKAGES)}

    with ExitStack() as stack:
        toy = Path(stack.enter_context(TemporaryDirectory())) if smoke else None
        args = build_parser().parse_args(given if toy is None else with_toy_data(given, toy))
        dataset = DATASETS[args.dataset]
        if args.out is None:
            assert dataset.usual_out is not None
            args.out = ROOT / "outputs" / (dataset.usual_out(args) + "-smoke" * smoke)
        if toy is None:  # else the folder of toy data may be full, too
            stack.enter_context(naming_a_full_disk(f"--out {args.out}"))
        try:
            make(replace(dataset, leaves=leaves) if leaves else dataset, args, provenance, toy)
        except BrokenProcessPool:
            raise ValueError("a process died, possibly for lack of memory; give fewer --workers") from None
        if smoke:
            print("SMOKE RUN on invented data: the numbers mean nothing", file=sys.stderr)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    return run_script(PROGRAM, lambda: prepare(given))


if __name__ == "__main__":
    sys.exit(main())
