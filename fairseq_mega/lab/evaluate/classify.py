"""Classify new texts, recordings or images with a trained classifier.

    fairseq-mega-classify DATA --path CHECKPOINT <TEXTS        # a text per line
    fairseq-mega-classify DATA --path CHECKPOINT FILE...       # a text, a recording or a colour image per file

DATA is the folder that the classifier was trained on; its dictionaries, labels and scales are read. For each example
one line is printed: the likeliest label, its probability, and the line or the name of the file. With --all the line has
every label.
"""

import argparse
import io
import sys
from pathlib import Path
from typing import Optional, Sequence

import torch
from fairseq import checkpoint_utils

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.compat import checks
from fairseq_mega.compat.features import precision
from fairseq_mega.lab.evaluate.new_examples import answers_to, reader_of
from fairseq_mega.models.classifier import SequenceClassifier
from fairseq_mega.models.image_classifier import ImageClassifier
from fairseq_mega.tasks.families import CLASSIFIER, IMAGE_CLASSIFIER, check_model_and_data

PROGRAM = "fairseq-mega-classify"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("data", type=Path, metavar="DATA", help="data folder of the training")
    parser.add_argument(
        "files",
        type=Path,
        nargs="*",
        metavar="FILE",
        help="texts, recordings or images to classify (default: the lines of stdin)",
    )
    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--precision", choices=precision.PRECISIONS, default="fp32", help=precision.MEANING)
    parser.add_argument("--all", action="store_true", help="print every label with its probability, likeliest first")
    return parser


def run(args: argparse.Namespace) -> None:
    """Load the classifier, and print a line for every example; raises OSError and ValueError."""
    check_model_and_data(args.path, args.data, CLASSIFIER, IMAGE_CLASSIFIER)
    for path in args.files:
        path.open("rb").close()  # raises before the first answer
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(args.path)], {"data": str(args.data)})
    checks.require_models([model], SequenceClassifier, ImageClassifier)
    reader = reader_of(task)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    model.to(device).eval()
    for stream in (sys.stdin, sys.stdout):  # the same in any locale, with bytes that are not text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    items = map(reader.read_file, args.files) if args.files else reader.read_lines(sys.stdin)
    for name, inputs in items:
        with precision.evaluating(args.precision, device.type):
            shares = answers_to(model, inputs, reader.labels)
        answers = [f"{label}\t{share:.4f}" for label, share in shares]
        print("\t".join([*(answers if args.all else answers[:1]), name]), flush=True)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    args = build_parser().parse_intermixed_args(argv)  # files may follow options
    try:
        return exit_status(PROGRAM, lambda: run(args))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
