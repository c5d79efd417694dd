"""Prepare the data of the Long Range Arena and of raw speech, or real stand-ins for them.

Generates, fetches or takes what a data set is made of, checks it, and leaves in --out what the tasks lra-text,
lra-image and speech_commands read, and SOURCE.json: origin, seed, counts and checksums. Progress goes to stderr. The
same command given again goes on where it was interrupted, and does nothing where all is done.
"""

import argparse
import shlex
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.cli.usage import Parser
from fairseq_mega.corpora.checksums import record_of
from fairseq_mega.corpora.classification import (
    aan,
    cifar10,
    fashion_mnist,
    help_pages,
    imdb,
    listops,
    own_texts,
    pathfinder,
    recordings,
    speech_commands,
)
from fairseq_mega.corpora.classification.dataset import Dataset, Report
from fairseq_mega.corpora.classification.work_folder import WorkFolder
from fairseq_mega.corpora.progress import say
from fairseq_mega.reports.environment import git_revision, installed_versions

PROGRAM = "fairseq-mega-prepare"
DATASETS: Dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        listops.DATASET,
        imdb.DATASET,
        aan.DATASET,
        cifar10.DATASET,
        pathfinder.PATHFINDER,
        pathfinder.PATHX,
        speech_commands.DATASET,
        fashion_mnist.DATASET,
        help_pages.DATASET,
        own_texts.DATASET,
        recordings.DATASET,
    )
}
NO_SETTINGS = {"dataset", "out", "workers"}  # what the result does not depend on


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


def settings_of(args: argparse.Namespace) -> Dict[str, Any]:
    """Return what the result depends on as JSON values: a file by name and size, a folder by its path."""
    settings: Dict[str, Any] = {"dataset": args.dataset}
    for name, value in sorted(vars(args).items()):
        if name not in NO_SETTINGS and value is not None:
            settings[name] = [_setting(entry) for entry in value] if isinstance(value, list) else _setting(value)
    return settings


def _setting(value: Any) -> Any:
    if not isinstance(value, Path):
        return value
    if value.is_dir():
        return {"folder": str(value.resolve())}
    return {"file": value.name, "bytes": value.stat().st_size if value.exists() else None}


def run(args: argparse.Namespace, command: str) -> None:
    """Make one data set; raises OSError and ValueError, whose messages are for the user."""
    dataset = DATASETS[args.dataset]
    with WorkFolder(args.out, settings_of(args)) as work:
        if work.finished:
            say(f"{args.out}: {dataset.name} is there already, made with these settings; nothing to do")
        elif work.built:
            work.publish()
        else:
            dataset.check(args)
            work.publish(describe(dataset, dataset.make(args, work), work.output, command))


def describe(dataset: Dataset, report: Report, output: Path, command: str) -> Dict[str, Any]:
    """Return the content of SOURCE.json but for the settings; reads every file made for its checksum."""
    files = sorted(path for path in output.rglob("*") if path.is_file())
    return {
        "dataset": dataset.name,
        "origin": report.origin,
        "notes": report.notes,
        "splits": report.splits,
        "inputs": report.inputs,
        "files": {path.relative_to(output).as_posix(): record_of(path) for path in files},
        "command": command,
        "git_revision": git_revision(),
        "versions": installed_versions(("fairseq_mega", "fairseq", "fairseq-fixed", "numpy", "torch", "scikit-learn")),
    }


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = list(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(given)
    try:
        run(args, shlex.join([PROGRAM, *given]))
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
