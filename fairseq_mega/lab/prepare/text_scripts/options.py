"""The options of the scripts prepare_*.sh, refused before anything is made where they cannot work.

Needs the standard library only.
"""

import argparse
import os
import re
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.lab.prepare.text_scripts import help as texts
from fairseq_mega.lab.runs.options import ROOT, Parser, add_environment, for_script

ENWIK8, GCIDE, OWN, WIKITEXT = "enwik8", "gcide", "text_lm", "wikitext103"  # of the scripts' names


class Script(NamedTuple):
    """A script: its texts, and functions that add and check its own options."""

    usage: str
    folders: str  # usual ones of --out
    description: str
    epilog: Optional[str]
    add: Callable[[Parser], None]
    check: Callable[[Parser, argparse.Namespace], str]  # returns the usual folder below outputs


def add_enwik8(parser: Parser) -> None:
    parser.add_argument(
        "--archive", metavar="FILE", help="an own copy of enwik8.zip, or of enwik8 itself; its checksums are checked"
    )


def check_enwik8(parser: Parser, options: argparse.Namespace) -> str:
    without_smoke(parser, options, "archive")
    parser.file(options.archive, "give a copy of enwik8.zip, or of enwik8 itself")
    return "enwik8"


def add_gcide(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--unit", metavar="U", default="bytes", help="bytes (like enwik8: every byte a token) or words (default: bytes)"
    )
    add("--threshold", metavar="N", help="words: those seen fewer than N times in train become <unk> (default: 5)")
    add("--blocks", metavar="N", default=20, help="number of blocks (default: 20)")
    add("--limit", metavar="BYTES", help="use so many bytes only, in equal parts from all blocks (default: all)")
    add("--deb", metavar="FILE", help="an own copy of the package (default: fetched with apt-get download)")


def check_gcide(parser: Parser, options: argparse.Namespace) -> str:
    parser.one_of("unit", options.unit, ("bytes", "words"))
    check_threshold(parser, options, 5)
    parser.whole_numbers(options, 1, "blocks", "limit")
    without_smoke(parser, options, "deb")
    parser.file(options.deb, "give a copy of dict-gcide_VERSION_all.deb")
    return f"gcide-{options.unit}"


def add_own(parser: Parser) -> None:
    add = parser.add_argument
    add("--train", metavar="FILE", help="the text to learn from")
    add("--valid", metavar="FILE", help="validation text (default: evenly spaced blocks of lines held out of --train)")
    add("--test", metavar="FILE", help="test text (default: the same)")
    units = "words (UTF-8, cut at white space), subwords (pieces of words, learnt from train) or bytes (any file)"
    add("--unit", metavar="U", default="words", help=f"{units} (default: words)")
    add("--vocab-size", metavar="N", help="subwords: how many to learn (default: 8000)")
    add("--threshold", metavar="N", help="words: those seen fewer than N times in train become <unk> (default: 2)")
    add("--held-out", metavar="SHARE", default="0.05", help="of --train for valid and for test (default: 0.05)")
    blocks = "number of blocks that give a part of each (default: 20; 1: the end of the text)"
    add("--blocks", metavar="N", default=20, help=blocks)


def check_own(parser: Parser, options: argparse.Namespace) -> str:
    parser.one_of("unit", options.unit, ("words", "subwords", "bytes"))
    size = options.vocab_size
    if size is not None and options.unit != "subwords":
        parser.die(f"--vocab-size is '{size}', but only subwords are learnt: give --unit subwords")
    check_threshold(parser, options, 2)
    options.vocab_size = 8000 if size is None else size
    parser.whole_numbers(options, 1, "blocks", "vocab_size")
    if not re.fullmatch(r"0?\.[0-9]+", options.held_out):
        held_out = f"--held-out is '{options.held_out}'"
        parser.die(f"{held_out}: a share between 0 and 1 is needed, for instance 0.05")
    without_smoke(parser, options, "train", "valid", "test")
    if options.train is None and not options.smoke:
        parser.die("--train is missing: give the text to learn from; see --help")
    for path in (options.train, options.valid, options.test):
        parser.file(path, "give a text file")
    return "text"


def add_wikitext(parser: Parser) -> None:
    add = parser.add_argument
    add("--version", metavar="V", default="103", help="103 or 2 (default: 103)")
    archives = "wikitext-103-v1.zip or wikitext-2-v1.zip"
    add("--archive", metavar="FILE", help=f"an own copy of {archives}; its MD5 is checked")
    files = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"
    add("--text", metavar="DIR", help=f"instead: a folder with {files}, plain or .gz")


def check_wikitext(parser: Parser, options: argparse.Namespace) -> str:
    parser.one_of("version", options.version, ("103", "2"))
    corpus = f"wikitext-{options.version}"
    without_smoke(parser, options, "archive", "text")
    if options.archive and options.text:
        parser.die("--archive and --text are two sources of the same text: give one of them")
    parser.file(options.archive, f"give a copy of {corpus}-v1.zip")
    if options.text and not os.path.isdir(options.text):
        files = "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"
        parser.die(f"--text is '{options.text}': a folder with {files} is needed")
    return corpus


SCRIPTS: Dict[str, Script] = {
    ENWIK8: Script("[OPTION]...", "outputs/enwik8", texts.ENWIK8, None, add_enwik8, check_enwik8),
    GCIDE: Script("[OPTION]...", "outputs/gcide-UNIT", texts.GCIDE, None, add_gcide, check_gcide),
    OWN: Script("--train FILE [OPTION]...", "outputs/text", texts.OWN, None, add_own, check_own),
    WIKITEXT: Script(
        "[OPTION]...", "outputs/wikitext-VERSION", texts.WIKITEXT, texts.WIKITEXT_MIRROR, add_wikitext, check_wikitext
    ),
}


def without_smoke(parser: Parser, options: argparse.Namespace, *names: str) -> None:
    """Refuse sources of a text where one is made up."""
    if options.smoke and any(getattr(options, name) for name in names):
        flags = [f"--{name}" for name in names]
        listed = " and ".join(filter(None, [", ".join(flags[:-1]), flags[-1]]))
        parser.die(f"--smoke makes a text of its own: leave {listed} out")


def check_threshold(parser: Parser, options: argparse.Namespace, usual: int) -> None:
    """Fill the threshold in; bytes and subwords are all kept."""
    unit, given = options.unit, options.threshold
    if unit != "words" and given is not None:
        kept = f"--unit {unit} keeps every {unit[:-1]}"
        parser.die(f"--threshold is '{given}', but {kept}: leave it out, or give --unit words")
    options.threshold = given if given is not None else usual if unit == "words" else 0
    parser.whole_numbers(options, 0, "threshold")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read and check the command line of ``prepare_NAME.sh``; ends with exit status 1 after a message.

    Args:
        arguments: NAME and the words after the script's.
    """
    name, *words = arguments
    script = SCRIPTS[name]
    parser = Parser(f"prepare_{name}.sh", script.usage, script.description, script.epilog)
    where = f"folder for everything made (default: {script.folders} in the checkout)"
    parser.add_argument("--out", metavar="DIR", help=where)
    script.add(parser)
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", metavar="N", default=cores, help="processes (default: the number of cores)")
    add_environment(parser)
    parser.add_argument("--smoke", action="store_true", help="a little made-up text instead, in seconds")
    options = parser.read(words)
    usual = script.check(parser, options)
    parser.whole_numbers(options, 1, "workers")
    options.name, options.script = name, parser.prog
    options.out = Path(options.out or ROOT / "outputs" / (usual + "-smoke" * options.smoke)).absolute()
    return options


def main(arguments: List[str]) -> None:
    """Check the command line, and print what the script needs of it."""
    print(for_script(parse(arguments)))
