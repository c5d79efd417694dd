"""The options of scripts/quickstart.sh, checked before anything is fetched or installed.

The module requires the standard library only.
"""

import argparse
import re
from pathlib import Path
from typing import List, Optional, Sequence

from fairseq_mega.lab.runs.options import ROOT, Parser, add_environment, for_script

TRANSLATION, LM = "translation", "lm"
PROGRAM = "quickstart.sh"
DESCRIPTION = """\
Sets up a virtual environment, downloads real text, trains a MEGA model for some minutes, scores it on held-out text and
prints examples. Without a GPU it runs on the CPU, in bfloat16 where that is fast. When started again it skips finished
stages and continues a training.

  --task translation   English to German, from the help of LibreOffice: BLEU, examples, and the command for
                       interactive translation; within 20 minutes on 2 idle CPU cores, 25 on busy ones, installation
                       included
  --task lm            a language model of bytes, from a dictionary of English: bits per byte, and a generated text;
                       within 10 minutes"""
LEAST_MINUTES = 0.01  # the last digit of the plan
TRAIN_MINUTES = {TRANSLATION: "15, or the rest of 25 after setting up", LM: "5"}


def build_parser() -> Parser:
    """Describe the command line."""
    parser = Parser(PROGRAM, "[OPTION]...", DESCRIPTION)
    add = parser.add_argument
    add("--task", default=TRANSLATION, metavar="TASK", help="translation or lm (default: translation)")
    add("--work-dir", metavar="DIR", help="folder to write (default: outputs/quickstart of the checkout)")
    add(
        "--text",
        metavar="TEXT",
        help="train on your own text: a file for --task lm; else the prefix of two files, TEXT.SOURCE and "
        "TEXT.TARGET, one sentence per line",
    )
    add("--valid", metavar="PREFIX", help="your validation text (default: held out from the end of --text)")
    add("--test", metavar="PREFIX", help="your test text (default: held out from the end of --text)")
    add("--source-lang", default="en", metavar="LANG", help="ending of the source files (default: en)")
    add("--target-lang", default="de", metavar="LANG", help="ending of the target files (default: de)")
    add(
        "--packages",
        metavar="DIR",
        help="folder of the Debian packages with the text; missing packages are downloaded into it",
    )
    minutes = "; ".join(f"{task}: {value}" for task, value in TRAIN_MINUTES.items())
    add(
        "--train-minutes",
        metavar="N",
        help=f"time of the training (default: {minutes}); the learning rate falls to 0 over this time, so a longer "
        "training starts from the beginning, in another --work-dir",
    )
    add("--updates", metavar="N", help="train N updates, within 1 hour or --train-minutes")
    add("--precision", default="auto", metavar="P", help="auto, fp32 or bf16 (default: auto, bf16 where it is fast)")
    add_environment(parser)
    add("--cpu", action="store_true", help="use no GPU")
    add("--smoke", action="store_true", help="run every stage with little text and a toy model, in under two minutes")
    return parser


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Read and check the command line; ends with exit status 1 after a message."""
    parser = build_parser()
    options = parser.read(arguments)
    parser.one_of("task", options.task, (TRANSLATION, LM))
    parser.one_of("precision", options.precision, ("auto", "fp32", "bf16"))
    minutes, updates = options.train_minutes, options.updates
    if minutes is not None and not (re.fullmatch(r"\d+(\.\d+)?", minutes) and float(minutes) >= LEAST_MINUTES):
        parser.die(f"--train-minutes is '{minutes}'; give a number of minutes, {LEAST_MINUTES} or more")
    if updates is not None and not re.fullmatch(r"[1-9]\d*", updates):
        parser.die(f"--updates is '{updates}'; give a whole number above 0")
    (check_translation if options.task == TRANSLATION else check_lm)(parser, options)
    folder = "quickstart" if options.task == TRANSLATION else "quickstart-lm"
    options.work_dir = Path(options.work_dir or ROOT / "outputs" / folder).absolute()
    options.packages = Path(options.packages or options.work_dir / "packages").absolute()
    return options


def check_translation(parser: Parser, options: argparse.Namespace) -> None:
    """Check the languages, and that the text exists."""
    source, target = options.source_lang, options.target_lang
    if source == target:
        parser.die(f"--source-lang and --target-lang are both '{source}'; they must differ")
    if options.text is None:
        if options.valid or options.test:
            parser.die("--valid and --test require --text PREFIX, the text to learn from")
        if (source, target) != ("en", "de"):
            parser.die(
                f"the LibreOffice help is for en to de, not {source} to {target}; give your own text with --text PREFIX"
            )
    remedy = f"a prefix P names the files P.{source} and P.{target}, one sentence per line"
    for prefix in filter(None, (options.text, options.valid, options.test)):
        for language in (source, target):
            parser.file(f"{prefix}.{language}", remedy)


def check_lm(parser: Parser, options: argparse.Namespace) -> None:
    """Check that the text exists, and that no option of translation is passed."""
    if options.valid or options.test:
        parser.die("--valid and --test are options of --task translation: --task lm holds out parts of its text")
    if options.text is not None:
        parser.file(options.text, "give --text FILE, a text to learn from")


def main(arguments: Optional[List[str]] = None) -> None:
    """Check the command line, and print the options that the script reads."""
    print(for_script(parse(arguments)))
