"""The options of scripts/quickstart.sh, checked before anything is fetched or installed.

The module requires the standard library only.
"""

import argparse
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from fairseq_mega.lab.runs.options import ROOT, Parser, add_environment, at_least, for_script

TRANSLATION, LM = "translation", "lm"
PROGRAM = "quickstart.sh"
DESCRIPTION = """\
Sets up a virtual environment, downloads real text, trains a MEGA model for some minutes, scores it on held-out text and
prints examples. Without a GPU it runs on the CPU, in bfloat16 where that is fast. When started again it skips finished
stages and continues a training.

  --task translation   English to German, from the help of LibreOffice: BLEU, examples, and the command for
                       interactive translation; 15 minutes of training, about 20 in all on 2 idle CPU cores
  --task lm            a language model of bytes, from a dictionary of English: bits per byte, and a generated text;
                       within 10 minutes"""
LEAST_MINUTES = 0.01  # the last digit of the plan
TRAIN_MINUTES = {TRANSLATION: 15, LM: 5}  # as in their recipes
OF_TRANSLATION = {"valid": None, "test": None, "source_lang": "en", "target_lang": "de"}  # to their defaults


def minutes(text: str) -> str:
    """Check a number of minutes, which stays as it is written."""
    if not LEAST_MINUTES <= float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}': a number of at least {LEAST_MINUTES} is needed")
    return text


def build_parser() -> Parser:
    """Describe the command line."""
    parser = Parser(PROGRAM, f"bash scripts/{PROGRAM} [OPTION]...", DESCRIPTION)
    add = parser.add_argument
    add("--task", default=TRANSLATION, choices=(TRANSLATION, LM), help="(default: translation)")
    add("--work-dir", type=Path, metavar="DIR", help="folder to write (default: outputs/quickstart of the checkout)")
    about = "a file for --task lm; else the prefix of two files, TEXT.SOURCE and TEXT.TARGET, one sentence per line"
    add("--text", metavar="TEXT", help=f"train on your own text: {about}")
    for part, name in (("valid", "validation"), ("test", "test")):
        add(f"--{part}", metavar="PREFIX", help=f"your {name} text (default: held out from the end of --text)")
    for side in ("source", "target"):
        default = OF_TRANSLATION[f"{side}_lang"]
        add(f"--{side}-lang", default=default, metavar="LANG", help=f"ending of the {side} files (default: {default})")
    defaults = "; ".join(f"{task}: {value}" for task, value in TRAIN_MINUTES.items())
    about = (
        f"time of the training (default: {defaults}); the learning rate falls to 0 over this time, so a longer "
        "training starts from the beginning, in another --work-dir"
    )
    add("--train-minutes", type=minutes, metavar="N", help=about)
    add("--updates", type=at_least(1), metavar="N", help="train N updates, within 1 hour or --train-minutes")
    about = "(default: auto, bf16 where it is fast)"
    add("--precision", default="auto", choices=("auto", "fp32", "bf16"), help=about)
    add_environment(parser)
    add("--cpu", action="store_true", help="use no GPU")
    add("--smoke", action="store_true", help="run every stage with little text and a toy model, in under two minutes")
    return parser


def texts_of(options: argparse.Namespace) -> List[Tuple[str, Path]]:
    """Return the user's files, each with the name of its option."""
    if options.task == LM:
        return [("text", Path(options.text))] if options.text else []
    prefixes = {name: getattr(options, name) for name in ("text", "valid", "test")}
    languages = (options.source_lang, options.target_lang)
    return [
        (name, Path(f"{prefix}.{language}")) for name, prefix in prefixes.items() if prefix for language in languages
    ]


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Read and check the command line; ends with exit status 1 after a message."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    changed = [name for name, default in OF_TRANSLATION.items() if getattr(options, name) != default]
    if changed and (options.text is None or options.task == LM):
        option = f"--{changed[0].replace('_', '-')}"
        parser.error(f"{option} is an option of --task translation with --text PREFIX, the text to learn from: omit it")
    for use, path in texts_of(options):
        if not path.is_file():
            parser.error(f"--{use}: {path} is no file")
    folder = "quickstart" if options.task == TRANSLATION else "quickstart-lm"
    options.work_dir = (options.work_dir or ROOT / "outputs" / folder).absolute()
    return options


def main(arguments: Optional[List[str]] = None) -> None:
    """Check the command line, and print the options that the script reads."""
    print(for_script(parse(arguments)))
