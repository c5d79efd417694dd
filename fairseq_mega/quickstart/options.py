"""The options of scripts/quickstart.sh, refused before anything is fetched or installed where they cannot work.

Run by its path, it needs the standard library only. It prints what the script has to know before the environment
stands, as assignments of the shell.
"""

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import List, NoReturn, Optional, Sequence

TRANSLATION, LM = "translation", "lm"
PROGRAM = "quickstart.sh"
DESCRIPTION = """\
Sets up a virtual environment, fetches real text, trains a MEGA model for some minutes, scores it on held-out text and
shows what it can do. Without a GPU it takes the CPU, in bfloat16 where that is fast. Finished stages are skipped when
it is started again, and a training goes on.

  --task translation   English to German, from the help of LibreOffice: BLEU, examples, and the line to type for
                       interactive translation; within 20 minutes on 2 idle CPU cores, 25 on busy ones, installation
                       included
  --task lm            a language model of bytes, from a dictionary of English: bits per byte, and a text of its own;
                       within 10 minutes"""
TRAIN_MINUTES = {TRANSLATION: "15, or what is left of 25 after setting up", LM: "5"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with exit status 1."""

    def error(self, message: str) -> NoReturn:
        """Print the error and end."""
        found = re.match(r"argument (--\S+): expected one argument", message)
        die(f"{found[1]} needs a value; see --help" if found else f"{message}; see --help")


def die(message: str) -> NoReturn:
    """End with an error."""
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    raise SystemExit(1)


def build_parser() -> Parser:
    """Describe the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="bash scripts/quickstart.sh", description=DESCRIPTION, formatter_class=form, allow_abbrev=False
    )
    root = Path(__file__).resolve().parents[2]
    add = parser.add_argument
    add("--task", default=TRANSLATION, metavar="TASK", help="translation or lm (default: translation)")
    add("--work-dir", metavar="DIR", help="folder for everything made (default: outputs/quickstart of the checkout)")
    add(
        "--text",
        metavar="TEXT",
        help="learn from your own text: a file for --task lm; else the prefix of two files, TEXT.SOURCE and "
        "TEXT.TARGET, one sentence per line",
    )
    add("--valid", metavar="PREFIX", help="your validation text (default: held out from the end of --text)")
    add("--test", metavar="PREFIX", help="your test text (default: held out from the end of --text)")
    add("--source-lang", default="en", metavar="LANG", help="ending of the source files (default: en)")
    add("--target-lang", default="de", metavar="LANG", help="ending of the target files (default: de)")
    add("--packages", metavar="DIR", help="folder that holds, or gets, the packages of Debian with the text")
    minutes = "; ".join(f"{task}: {value}" for task, value in TRAIN_MINUTES.items())
    add("--train-minutes", metavar="N", help=f"time of the training (default: {minutes})")
    add("--updates", metavar="N", help="train N updates, however long that takes within 1 hour or --train-minutes")
    add("--precision", default="auto", metavar="P", help="auto, fp32 or bf16 (default: auto, bf16 where it is fast)")
    add("--venv", metavar="DIR", help="virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)")
    add("--skip-setup", action="store_true", help="take that environment as it is: do not run scripts/setup.sh")
    add("--cpu", action="store_true", help="use no GPU")
    add("--smoke", action="store_true", help="every stage with a little text and a toy model, in under two minutes")
    parser.set_defaults(root=root)
    return parser


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Read and check the command line; ends with exit status 1 after a message."""
    options, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        die(f"unknown option '{unknown[0]}'; see --help")
    if options.task not in (TRANSLATION, LM):
        die(f"--task is '{options.task}': choose from {TRANSLATION}, {LM}")
    if options.precision not in ("auto", "fp32", "bf16"):
        die(f"--precision is '{options.precision}': choose from auto, fp32, bf16")
    minutes, updates = options.train_minutes, options.updates
    if minutes is not None and not (re.fullmatch(r"\d+(\.\d+)?", minutes) and float(minutes) > 0):
        die(f"--train-minutes is '{minutes}'; give a number of minutes above 0")
    if updates is not None and not re.fullmatch(r"[1-9]\d*", updates):
        die(f"--updates is '{updates}'; give a whole number above 0")
    (check_translation if options.task == TRANSLATION else check_lm)(options)
    folder = "quickstart" if options.task == TRANSLATION else "quickstart-lm"
    options.work_dir = Path(options.work_dir or options.root / "outputs" / folder).absolute()
    options.packages = Path(options.packages or options.work_dir / "packages").absolute()
    return options


def check_translation(options: argparse.Namespace) -> None:
    """Check the languages, and that the text is there."""
    source, target = options.source_lang, options.target_lang
    if source == target:
        die(f"--source-lang and --target-lang are both '{source}'; they must differ")
    if options.text is None:
        if options.valid or options.test:
            die("--valid and --test need --text PREFIX, the text to learn from")
        if (source, target) != ("en", "de"):
            die(
                f"the LibreOffice help is read as en to de, not {source} to {target}; "
                f"give your own text with --text PREFIX"
            )
    remedy = f"a text prefix P stands for the files P.{source} and P.{target}, one sentence per line"
    for prefix in filter(None, (options.text, options.valid, options.test)):
        for language in (source, target):
            check_file(f"{prefix}.{language}", remedy)


def check_lm(options: argparse.Namespace) -> None:
    """Check that the text is there, and that nothing of a translation is asked for."""
    if options.valid or options.test:
        die("--valid and --test belong to --task translation: of the text of --task lm parts are held out")
    if options.text is not None:
        check_file(options.text, "give --text FILE, a text to learn from")


def check_file(path: str, remedy: str) -> None:
    """End where a file is missing or empty."""
    if not os.path.exists(path):
        die(f"{path} does not exist: {remedy}")
    if os.path.isdir(path):
        die(f"{path} is a folder where a file is needed: {remedy}")
    if os.path.getsize(path) == 0:
        die(f"{path} is empty: {remedy}")


def main(arguments: Optional[List[str]] = None) -> None:
    """Check the command line, and print what the script needs of it."""
    options = parse(arguments)
    print(f"venv={shlex.quote(options.venv or '')} skip_setup={'yes' if options.skip_setup else ''}")


if __name__ == "__main__":
    main()
