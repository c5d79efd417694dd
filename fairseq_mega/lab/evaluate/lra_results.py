"""Train and test a classifier of the Long Range Arena or of speech, and write its measurements to a result file.

python -m fairseq_mega.lab.evaluate.lra_results train FAIRSEQ_TRAIN_ARGUMENT...
python -m fairseq_mega.lab.evaluate.lra_results test DATA --task TASK --path CHECKPOINT --log TRAIN_LOG --json FILE ...
"""

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.cli import console
from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks.measuring import resident_mib
from fairseq_mega.lab.evaluate.classifier_scores import add_options, write_scores
from fairseq_mega.lab.runs.training_log import RESIDENT


def train(arguments: Sequence[str]) -> int:
    """Run fairseq-mega-train, and print the peak memory of the process as the last line."""
    configure_process()
    status = console.run("train", arguments)
    if Path("/proc/self/status").exists():
        print(json.dumps({RESIDENT: round(resident_mib("VmHWM") / 1024, 3)}), flush=True)
    return status


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["train"]:
        return train(given[1:])
    parser = argparse.ArgumentParser(prog="lra_results", description=__doc__)
    commands = parser.add_subparsers(dest="step", required=True)
    commands.add_parser("train", help="train, with the arguments of fairseq-mega-train", add_help=False)
    add_options(commands.add_parser("test", help="score the best checkpoint and write the result"))
    try:
        write_scores(parser.parse_args(given), functools.partial(console.run, "validate"))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"lra_results: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
