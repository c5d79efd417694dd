"""The stages of the scripts prepare_*.sh: obtain, split, binarise, and a count of what came out."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional

from fairseq_mega.lab.prepare.checksums import sha256_of
from fairseq_mega.lab.prepare.language_modeling import gcide
from fairseq_mega.lab.prepare.language_modeling.binarising import binarise
from fairseq_mega.lab.prepare.language_modeling.command import main as language_modeling
from fairseq_mega.lab.prepare.language_modeling.splitting import tell_marks
from fairseq_mega.lab.prepare.text_scripts.options import ENWIK8, GCIDE, OWN, WIKITEXT, parse
from fairseq_mega.lab.runs.commands import StageError, call
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.script import run_script
from fairseq_mega.lab.runs.stages import say

ENWIK8_SIZES, SMOKE_SIZES = "90000000,5000000,5000000", "18000,1000,1000"


def settings_of(options: argparse.Namespace) -> List[str]:
    """What the stages done in the work folder belong to."""
    return [*SETTINGS[options.name](options), f"smoke: {'yes' if options.smoke else 'no'}"]


def sizes(options: argparse.Namespace) -> str:
    """Of the splits of enwik8."""
    return SMOKE_SIZES if options.smoke else ENWIK8_SIZES


def gcide_settings(options: argparse.Namespace) -> List[str]:
    blocks = [f"blocks: {options.blocks}", f"limit: {options.limit or 'none'}"]
    return [f"unit: {options.unit}", f"threshold: {options.threshold}", *blocks]


def own_settings(options: argparse.Namespace) -> List[str]:
    unit = f"subwords, {options.vocab_size}" if options.unit == "subwords" else options.unit
    texts = [sha256_of(Path(path)) if path else "none" for path in (options.train, options.valid, options.test)]
    held_out = f"held out: {options.held_out} in {options.blocks} blocks"
    return [f"unit: {unit}", f"threshold: {options.threshold}", held_out, f"texts: {', '.join(texts)}"]


SETTINGS: Dict[str, Callable[[argparse.Namespace], List[str]]] = {
    ENWIK8: lambda options: ["corpus: enwik8", f"sizes: {sizes(options)}"],
    GCIDE: gcide_settings,
    OWN: own_settings,
    WIKITEXT: lambda options: [f"corpus: wikitext-{options.version}"],
}


def given(**paths: Optional[str]) -> List[str]:
    """The options that have a value."""
    return [word for name, path in paths.items() if path is not None for word in (f"--{name}", path)]


def obtain_words(options: argparse.Namespace) -> List[str]:
    """Arguments of ``obtain``, or of ``dictionary``, that leave the text in ``raw``."""
    raw, smoke = options.out / "raw", ["--smoke"] * options.smoke
    if options.name == GCIDE:
        package = None if options.smoke else gcide.fetch(raw, raw, Path(options.deb) if options.deb else None)
        return gcide.dictionary_words(raw, package)
    corpus = "enwik8" if options.name == ENWIK8 else f"wikitext-{options.version}"
    output = ["--output", str(raw), "--record", str(options.out / "SOURCE.json")]
    source = given(archive=options.archive, text=getattr(options, "text", None))
    return ["obtain", "--corpus", corpus, *output, *source, *smoke]


def split_words(options: argparse.Namespace) -> List[str]:
    """Arguments of ``split``."""
    raw, words = options.out / "raw", ["split", "--output", str(options.out / "text")]
    if options.name == ENWIK8:
        return [*words, "--unit", "bytes", "--train", str(raw / "enwik8"), "--sizes", sizes(options)]
    if options.name == WIKITEXT:
        return [
            *words,
            "--unit",
            "words",
            *given(**{s: str(raw / f"wiki.{s}.tokens") for s in ("train", "valid", "test")}),
        ]
    words += ["--unit", options.unit, "--blocks", str(options.blocks)]
    if options.name == GCIDE:
        limit = ["--limit", str(options.limit)] if options.limit else []
        return [*words, "--train", str(raw / "gcide.txt"), *limit, "--replace-invalid"]
    words += ["--vocab-size", str(options.vocab_size), "--held-out", options.held_out]
    train = str(raw / "own.txt") if options.smoke else options.train
    return [*words, *given(train=train, valid=options.valid, test=options.test), *["--smoke"] * options.smoke]


def split(options: argparse.Namespace) -> None:
    """Write the splits of a text, one's own with notes on what it holds beside text."""
    call(language_modeling, split_words(options))
    if options.name == OWN and not options.smoke:
        tell_marks(*(Path(path) for path in (options.train, options.valid, options.test) if path))


def count_words(options: argparse.Namespace) -> List[str]:
    """Arguments of ``count``: nothing may be lost, and WikiText is to have its published counts."""
    folder = options.out
    words = ["count", "--data", str(folder / "data-bin"), "--text", str(folder / "text")]
    words += ["--json", str(folder / "counts.json")]
    if options.name == WIKITEXT:
        return words if options.smoke else [*words, "--corpus", f"wikitext-{options.version}"]
    return [*words, "--threshold", str(getattr(options, "threshold", 0))]


def prepare(options: argparse.Namespace) -> None:
    """Do all stages that are not done.

    Raises:
        StageError, OSError, ValueError: whose messages are for the user.
    """
    if shutil.which("fairseq-preprocess") is None:
        raise StageError("the command 'fairseq-preprocess' was not found: run 'bash scripts/setup.sh'")
    work = Work(options.out, settings_of(options), "--out")
    if options.name != OWN:
        work.stage("obtain", lambda: call(language_modeling, obtain_words(options)))
    work.stage("split", lambda: split(options))
    work.stage("binarise", lambda: binarise(work, options.workers, getattr(options, "threshold", 0)))
    call(language_modeling, count_words(options))
    say(f"done: {work.folder / 'data-bin'} (counts: {work.folder / 'counts.json'})")
    if options.smoke:
        say("SMOKE RUN on made-up text: the numbers mean nothing")


def main(arguments: Optional[List[str]] = None) -> int:
    """Prepare the text that the first word names; returns the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    return run_script(options.script, lambda: prepare(options))
