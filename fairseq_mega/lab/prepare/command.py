"""Prepare a data set: of the papers, a real stand-in for one, or your own.

The command generates, downloads or reads the raw data and checks them. It writes into --out the files that a task
reads, and card.json: origin, options, counts and checksums. Progress goes to stderr. The same command continues an
interrupted run, and does nothing where the data set is complete.
"""

import argparse
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Optional, Sequence, Tuple

from fairseq_mega.cli.usage import Parser
from fairseq_mega.lab.prepare.registry import DATASETS, LISTED, listed_by_kind
from fairseq_mega.lab.runs.environment import git_revision, installed_versions
from fairseq_mega.lab.runs.script import run_script

PROGRAM = "fairseq-mega-prepare"
PACKAGES = ("fairseq_mega", "fairseq", "fairseq-fixed", "numpy", "torch", "scikit-learn")


def parse(given: Sequence[str], toy: Optional[Path] = None) -> argparse.Namespace:
    """Parse a command line; the file of the data set is imported only after the name.

    Args:
        toy: folder for invented data that are read, for --smoke.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [-h] DATASET ...",
        description=f"{__doc__}{listed_by_kind()}",
        formatter_class=form,
        epilog="sizes, times and options: DATASET --help",
    )
    parser.add_argument("dataset", choices=DATASETS, metavar="DATASET", help="name of a data set above")
    name = parser.parse_args(given[:1]).dataset
    dataset, words = DATASETS[name], list(given[1:])
    description = f"{name}: {LISTED[name].summary}.\n\n{dataset.details}" if name in LISTED else dataset.details
    parser = Parser(prog=f"{PROGRAM} {name}", description=description, formatter_class=form, allow_abbrev=False)
    dataset.add_all_options(parser)
    if toy is not None:
        words = [*dataset.toy(toy), *words]  # type: ignore[misc]
    return parser.parse_args(words, argparse.Namespace(dataset=name))


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
        args = parse(given, toy)
        from fairseq_mega.lab.prepare.dataset import make  # imports fairseq, which --help does without

        dataset = DATASETS[args.dataset]
        make(replace(dataset, leaves=leaves) if leaves else dataset, args, provenance, toy)
        if smoke:
            print("SMOKE RUN on invented data: the numbers mean nothing", file=sys.stderr)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    return run_script(PROGRAM, lambda: prepare(given))


if __name__ == "__main__":
    sys.exit(main())
