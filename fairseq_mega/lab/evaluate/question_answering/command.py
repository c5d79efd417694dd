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
from typing import Any, List, Optional, Sequence

import torch

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.compat.features import precision
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.families import LANGUAGE_MODEL, check_model_and_data

from .evaluation import DATA_SETS, Evaluation, evaluate, logger, settings_of

PROGRAM = "fairseq-mega-qa"
MOST_TOKENS = 100_000  # of an answer; the data sets' answers have some hundred


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
    paper = ", ".join(f"{name} {data_set.shots}" for name, data_set in DATA_SETS.items())
    add(
        "--shots",
        type=int,
        choices=[0, 1, 2],
        help=f"number of answered questions in front (default: the paper's, {paper})",
    )
    lengths = ", ".join(f"{name} {data_set.answer_tokens}" for name, data_set in DATA_SETS.items())
    add("--answer-tokens", type=int, metavar="N", help=f"maximum tokens of an answer (default: {lengths})")
    add("--seed", type=int, default=1, help="seed that draws the --shots (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="use the first N questions only")
    add("--label", help="name of the model in the result (default: the file name of --path)")
    add("--cpu", action="store_true", help="use no GPU")
    add("--precision", choices=precision.PRECISIONS, default="fp32", help=precision.MEANING)
    return parser


def run(args: argparse.Namespace, command: str) -> None:
    """Answer the questions, score, write the result and print its scores; raise OSError and ValueError."""
    for option in ("answer_tokens", "limit"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} {value}: must be at least 1")
    if args.answer_tokens is not None and args.answer_tokens > MOST_TOKENS:
        raise ValueError(f"--answer-tokens {args.answer_tokens}: must be at most {MOST_TOKENS}")
    if args.output.is_dir():
        raise ValueError(f"--output {args.output} is a folder: name the file of the result, such as scores.json")
    answers = args.output.with_suffix(".answers.jsonl")
    for name in ("questions", "examples", "path"):
        read = getattr(args, name)
        if read is not None and read.resolve() in (args.output.resolve(), answers.resolve()):
            raise ValueError(f"--output {args.output} would overwrite --{name} {read}: give another name")
    data_set = DATA_SETS[args.data_set]
    evaluation = Evaluation(
        args.data_set,
        args.questions,
        args.examples,
        data_set.shots if args.shots is None else args.shots,
        data_set.answer_tokens if args.answer_tokens is None else args.answer_tokens,
        args.seed,
        args.limit,
    )
    if args.examples is not None and not evaluation.shots:
        raise ValueError(f"--examples {args.examples}: with --shots 0 no example is shown; omit --examples")
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")

    def load() -> Any:
        check_model_and_data(args.path, args.data, LANGUAGE_MODEL)
        folder, name = str(args.path.parent), args.path.name
        return MegaLanguageModel.from_pretrained(folder, name, str(args.data.resolve())).to(device).eval()

    settings = {**settings_of(evaluation, args.path), "precision": args.precision}
    with precision.evaluating(args.precision, device.type):
        scores = evaluate(evaluation, load, answers, settings)
    questions = scores.pop("questions")
    label = args.label or args.path.stem
    result = make_result("question-answering", label, scores, questions, command, args.seed, settings)
    write_result(args.output, result)
    print(", ".join(f"{name} {value:.2f}" for name, value in scores.items()), f"({questions} questions)")


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
