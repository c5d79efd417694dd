"""Prepare the data of the Long Range Arena and of raw speech, or real stand-ins for them, ImageNet, and PG-19's books.

Generates, fetches or takes the raw data, checks them, and leaves in --out the files that the tasks lra-text, lra-image,
speech_commands, image-classification and megalodon_pretrain read, and SOURCE.json: origin, seed, counts and checksums.
Progress goes to stderr. The same command given again goes on where it was interrupted, and does nothing where all is
done.
"""

import argparse
import shlex
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.cli.usage import Parser
from fairseq_mega.lab.prepare.making import make
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.runs.environment import git_revision, installed_versions

PROGRAM = "fairseq-mega-prepare"
PACKAGES = ("fairseq_mega", "fairseq", "fairseq-fixed", "numpy", "torch", "scikit-learn")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=PROGRAM, description=__doc__, formatter_class=form, epilog="sizes, times and options: DATASET --help"
    )
    commands = parser.add_subparsers(dest="dataset", required=True, metavar="DATASET")
    for dataset in DATASETS.values():
        description = f"{dataset.name}: {dataset.summary}.\n\n{dataset.details}"
        command = commands.add_parser(
            dataset.name, help=dataset.summary, description=description, formatter_class=form, allow_abbrev=False
        )
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for everything made")
        dataset.add_options(command)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(given)

    def provenance() -> Dict[str, Any]:
        command = shlex.join([PROGRAM, *given])
        return {"command": command, "git_revision": git_revision(), "versions": installed_versions(PACKAGES)}

    try:
        make(DATASETS[args.dataset], args, provenance)
    except (OSError, ValueError) as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    except BrokenProcessPool:
        print(f"{PROGRAM}: error: a process died, for want of memory perhaps; give fewer --workers", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
