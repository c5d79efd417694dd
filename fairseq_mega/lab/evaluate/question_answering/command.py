"""Answer questions about long documents with a language model, and score the answers.

    fairseq-mega-qa narrative_qa --questions narrative_qa/validation.jsonl --path CHECKPOINT --data DATA --output FILE
    fairseq-mega-qa qasper --questions qasper/validation.jsonl --examples qasper/train.jsonl ...
    fairseq-mega-qa qmsum --questions qmsum/validation.jsonl --examples qmsum/train.jsonl ...

The data sets are SCROLLS's (tau/scrolls), as .jsonl files that you provide. The model reads DOCUMENT, "Q: QUESTION" and
"A:", a line each, and decodes greedily to the end of the line. With --shots N, N answered questions from --examples
come first. A document is read chunk by chunk, in constant memory, and is never shortened. NarrativeQA and Qasper are
scored by the F1 of words, QMSum by the geometric mean of ROUGE-1, 2 and L, against the best of the references, in
percent. The scores are written to --output as JSON, and each answer at once to a file beside it: the same command
continues an interrupted run.
"""

import argparse
import logging
import shlex
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.cli.commands import exit_status

PROGRAM = "fairseq-mega-qa"
logger = logging.getLogger("fairseq_mega.question_answering")


class DataSet(NamedTuple):
    """Metric and limits of the answers to a data set of SCROLLS."""

    metric: str  # a key of scores.METRICS
    shots: int  # of MEGALODON's table
    answer_tokens: int  # at most


DATA_SETS: Dict[str, DataSet] = {
    "narrative_qa": DataSet("f1", 0, 64),
    "qasper": DataSet("f1", 2, 128),
    "qmsum": DataSet("rouge", 1, 256),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    add = parser.add_argument
    add("data_set", choices=list(DATA_SETS), help="data set, which determines prompt and score")
    add("--questions", type=Path, required=True, metavar="FILE", help="questions: validation.jsonl of SCROLLS")
    add("--examples", type=Path, metavar="FILE", help="answered questions for --shots: train.jsonl of SCROLLS")
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help="checkpoint of a language model of this package")
    add("--data", type=Path, required=True, help="data folder of the training, for the dictionary")
    add("--output", type=Path, required=True, metavar="FILE", help="result file to write (JSON)")
    shots = ", ".join(f"{name} {data_set.shots}" for name, data_set in DATA_SETS.items())
    shots = f"number of answered questions in front (default: the paper's, {shots})"
    add("--shots", type=int, choices=[0, 1, 2], help=shots)
    lengths = ", ".join(f"{name} {data_set.answer_tokens}" for name, data_set in DATA_SETS.items())
    add("--answer-tokens", type=int, metavar="N", help=f"maximum tokens of an answer (default: {lengths})")
    add("--seed", type=int, default=1, help="seed that draws the --shots (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="use the first N questions only")
    add("--label", help="name of the model in the result (default: the file name of --path)")
    add("--cpu", action="store_true", help="use no GPU")
    add("--precision", default="fp32", help="as of fairseq-mega-train (default: %(default)s)")
    return parser


def run(args: argparse.Namespace, command: str) -> None:
    """Answer and score the questions; raise OSError and ValueError."""
    from . import answering  # with torch and fairseq it needs seconds

    data_set = DATA_SETS[args.data_set]
    args.metric = data_set.metric
    args.shots = data_set.shots if args.shots is None else args.shots
    args.answer_tokens = data_set.answer_tokens if args.answer_tokens is None else args.answer_tokens
    answering.run(args, command)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    args = build_parser().parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    given: List[str] = list(sys.argv[1:] if argv is None else argv)
    try:
        return exit_status(PROGRAM, lambda: run(args, shlex.join([PROGRAM, *given])))
    except KeyboardInterrupt:
        return 130
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
