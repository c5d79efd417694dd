"""The options of the scripts compare_*.sh, refused before anything is made where they cannot work.

Needs the standard library only.
"""

import argparse
import re
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.runs.options import Parser, for_script

CLASSIFIERS, LANGUAGE_MODELS = "classifiers", "language_models"  # of the scripts' names
TASKS = {"text": 16, "image": 16, "listops": 64}  # with the usual examples per update
CLASSIFIER_MODELS = ("mega", "mega-n0", "transformer", "megalodon")
PRECISIONS = ("fp32", "bf16")
LANGUAGE_MODEL_MODELS = ("transformer", "llama", "mega", "megalodon", "megalodon_one_hop")

CLASSIFIERS_HELP = """\
The Long Range Arena in miniature, for a CPU: MEGA with attention in chunks, MEGA without its moving average (N = 0), a
Transformer with full attention and MEGALODON in chunks, four layers of width 64 with equally many parameters in the
layers (N = 0 has fewer), are trained for the same number of updates on the same examples in the same order, with the
same optimiser. Then the checkpoint of best validation accuracy is scored on the test set. Results go to DIR/results as
JSON, one file per model, and are printed as a table."""

LANGUAGE_MODELS_HELP = """\
Trains fairseq's transformer_lm and llama_lm (RMS norms, rotary positions, SwiGLU), mega_lm and megalodon_lm (also with
--residual-hops 1), four layers of width 128 with equally many parameters, for the same number of updates on the same
number of tokens, with the same optimiser; then scores the test text: the Transformers with and without a sliding
context, MEGA and MEGALODON over contexts of 1, 2, 8 and 32 chunks and over the whole text at once. Results go to
DIR/results as JSON, one file per number, and are printed as a table."""


def add_classifiers(parser: Parser) -> None:
    add = parser.add_argument
    add("--task", metavar="NAME", help="text, image or listops: what the data are")
    data = "folder made by fairseq-mega-prepare (imdb, help-pages; cifar10, fashion-mnist; listops)"
    add("--data", metavar="DIR", help=data)
    models = f"of {', '.join(CLASSIFIER_MODELS)} (default: the first three)"
    add("--models", metavar="LIST", default=",".join(CLASSIFIER_MODELS[:3]), help=models)
    add("--chunk", metavar="C", default=128, help="attention chunk of MEGA and MEGALODON (default: 128)")
    add("--updates", metavar="N", default=1000, help="updates of each model (default: 1000)")
    add("--batch", metavar="N", help="examples per update (default: 64 for listops, 16 else)")


def check_classifiers(parser: Parser, options: argparse.Namespace) -> None:
    parser.one_of("task", options.task or "", TASKS)
    check_shared(parser, options, CLASSIFIER_MODELS)
    options.batch = TASKS[options.task] if options.batch is None else options.batch
    parser.whole_numbers(options, 1, "chunk", "batch")
    needed = "input/train.src" if options.task == "image" else "src-bin/train.bin"
    remedy = f"--data is a folder of fairseq-mega-prepare for --task {options.task}"
    parser.file(f"{options.data}/{needed}", remedy)


def add_language_models(parser: Parser) -> None:
    add = parser.add_argument
    data = "folder of fairseq-preprocess with train, valid and test (scripts/prepare_*.sh make one)"
    add("--data", metavar="DIR", help=data)
    units = "words: adaptive tables (default); bytes: plain tied tables, for texts of decimal bytes"
    add("--unit", metavar="KIND", default="words", help=units)
    models = f"of {', '.join(LANGUAGE_MODEL_MODELS)} (default: transformer,mega)"
    add("--models", metavar="LIST", default="transformer,mega", help=models)
    add("--updates", metavar="N", default=1500, help="updates of each model (default: 1500)")
    exact = "contexts that end anywhere, not with a line: they differ in nothing but the memory"
    add("--exact", action="store_true", help=exact)


def check_language_models(parser: Parser, options: argparse.Namespace) -> None:
    parser.one_of("unit", options.unit, ("words", "bytes"))
    check_shared(parser, options, LANGUAGE_MODEL_MODELS)
    prepared = "--data is a folder of fairseq-preprocess (scripts/prepare_wikitext103.sh --help)"
    parser.file(f"{options.data}/dict.txt", prepared)
    parser.file(f"{options.data}/test.bin", "--data needs train, valid and test (fairseq-preprocess --testpref)")


def add_shared(parser: Parser) -> None:
    """Add the options that both have."""
    add = parser.add_argument
    add("--out", metavar="DIR", help="checkpoints, logs and results; the same command goes on where it was stopped")
    add("--lr", metavar="RATE", default="0.002", help="peak of the learning rate of all models (default: 0.002)")
    add("--seed", metavar="N", default=1, help="(default: 1)")
    add("--precision", metavar="P", default="fp32", help="of the trainings: fp32 or bf16 (default: fp32)")
    add("--threads", metavar="N", help="CPU threads (default: all cores)")
    add("--gpu", action="store_true", help="train and score on the GPU")
    add("--smoke", action="store_true", help="a few updates of tiny models, to see that it works")
    parser.set_defaults(venv=None, skip_setup=True)  # the environment is taken as it is


def check_shared(parser: Parser, options: argparse.Namespace, models: Sequence[str]) -> None:
    """Check them."""
    if options.data is None or options.out is None:
        parser.die("--data and --out are needed; see --help")
    options.models = parser.list_of("models", options.models, models)
    parser.whole_numbers(options, 1, "updates", "threads")
    parser.whole_numbers(options, 0, "seed")
    parser.one_of("precision", options.precision, PRECISIONS)
    if not re.fullmatch(r"[0-9]*\.?[0-9]+([eE]-?[0-9]+)?", options.lr):
        parser.die(f"--lr is '{options.lr}': a positive number is needed, for instance 0.002")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read and check the command line of ``compare_KIND.sh``; ends with exit status 1 after a message.

    Args:
        arguments: KIND and the words after the script's.
    """
    kind, *words = arguments
    script, needed = f"compare_{kind}.sh", "--data DIR --out DIR [OPTION]..."
    if kind == CLASSIFIERS:
        parser = Parser(script, f"--task NAME {needed}", CLASSIFIERS_HELP)
        add_classifiers(parser)
    else:
        parser = Parser(script, needed, LANGUAGE_MODELS_HELP)
        add_language_models(parser)
    add_shared(parser)
    options = parser.read(words)
    (check_classifiers if kind == CLASSIFIERS else check_language_models)(parser, options)
    options.kind, options.script, options.out = kind, script, Path(options.out)
    return options


def main(arguments: List[str]) -> None:
    """Check the command line, and print what the script needs of it."""
    print(for_script(parse(arguments)))
