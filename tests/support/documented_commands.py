"""The commands in the documents of the repository, and the options that their programs know."""

import contextlib
import io
import re
import runpy
import shlex
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Set, Tuple

from fairseq import options

from fairseq_mega.cli import interactive
from fairseq_mega.models.options.configurations import flag
from fairseq_mega.models.options.table import DEPTH, EMA, FFN, SHARED, VALUES, WIDTH
from fairseq_mega.models.presets import FOLDER, preset
from tests.support.helpers import REPOSITORY

DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((REPOSITORY / "examples").rglob("*.md")),
]
# Paragraphs and blocks of code, with the marks in the lines above.
BLOCK = re.compile(r"(?:^```.*?^```$\n?|^[^\n]+\n?)+", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"(?<!`)<!-- (run|tested|not run): ([^\n]*?) -->")
CODE = re.compile(r"^```(?P<kind>\w*)\n(?P<lines>.*?)^```|`(?P<span>[^`]+)`", re.DOTALL | re.MULTILINE)
OURS_IN_TEXT = re.compile(
    r"(sudo )?(\w+=\S+ )*((bash|python) (scripts/|setup\.py|-m (fairseq_mega|tests))|fairseq-mega-[\w-]+ )"
)
WHICH = re.compile(r"\$\(which ([\w-]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
VARIABLE = re.compile(r"[A-Za-z_]+=")
REDIRECTION = re.compile(r"(?:^|\s)[<>]\s*\S+")
ENTRIES = re.compile(r'"(fairseq-mega-[\w-]+) = ([\w.]+):main"')
# Of fairseq's commands: the parser of each, from fairseq itself.
PARSERS = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": interactive.build_parser,
    "eval-lm": options.get_eval_lm_parser,
    "validate": options.get_validation_parser,
    "preprocess": options.get_preprocessing_parser,
}
SETS = {  # options that a mark has by name; the name of a preset stands for its depths and widths
    "LISTOPS": "--count 60 --min-length 5 --max-length 20 --workers 1",
    "SHORT": "--cpu --num-workers 0 --max-update 2",
}
SIZES = [
    row.name.format(side=side) for side in ("encoder", "decoder") for row in (DEPTH, WIDTH, VALUES, FFN, SHARED, EMA)
]
SHELL = {"grep", "cut", "echo"}  # words of the shell, tested with the command beside them
OURS = ("--precision", "--compile", "--decode-weights")  # of every command, where fairseq's parsers do not know them


class Run(NamedTuple):
    """Mark of a command that a test runs: ``<!-- run: BEGINNING + OPTIONS; prints TEXT; stdin TEXT; DATA NAME -->``.

    It stands above the block or paragraph of the command, or within it; all but the beginning may be omitted.
    """

    beginning: str
    options: str = ""  # at its end; they make it small
    prints: str = ""  # among what it prints
    stdin: str = ""
    meanings: Tuple[Tuple[str, str], ...] = ()  # of words in capitals, such as DATA


class Mark(NamedTuple):
    """Mark of a block or paragraph: ``<!-- tested: FILE::TEST, ... -->`` or ``<!-- not run: REASON -->``.

    It speaks for the commands there that have no mark of their own.
    """

    word: str
    text: str


def options_of(name: str) -> str:
    """Return the options that a word of a mark stands for: a set, the sizes of a preset, or the word itself."""
    if not (FOLDER / f"{name}.yaml").is_file():
        return SETS.get(name, name)
    return " ".join(f"{flag(option)} {value}" for option, value in preset(name).items() if option in SIZES)


def mark_of(text: str) -> Run:
    """Read a mark of a run; raises ValueError for an unknown part."""
    command, *parts = text.split("; ")
    beginning, _, given = command.partition(" + ")
    found = dict(part.split(" ", 1) for part in parts)
    meanings = tuple((word, found.pop(word)) for word in [*found] if word.isupper())
    if not set(found) <= {"prints", "stdin"}:
        raise ValueError(f"<!-- run: {text} -->: give prints, stdin or words in capitals behind the semicolons")
    return Run(beginning, " ".join(map(options_of, given.split())), meanings=meanings, **found)


class Command(NamedTuple):
    """One command of a document, and the marks that say how it is tested."""

    document: str
    words: Tuple[str, ...]
    run: Optional[Run] = None
    marks: Tuple[Mark, ...] = ()  # without a mark of its own

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def options(self) -> List[str]:
        """Its options by name; what follows -- goes to another program."""
        words = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return [word.split("=")[0] for word in words if OPTION.match(word)]


def commands() -> Iterator[Command]:
    """Yield the commands of the documents: those in bash blocks, and ours in running text, which count once.

    Raises:
        ValueError: for a mark without a command in its block or paragraph.
    """
    for document in DOCUMENTS:
        name = document.relative_to(REPOSITORY).as_posix()
        seen: Set[Tuple[str, ...]] = set()
        for block in BLOCK.findall(document.read_text(encoding="utf-8")):
            marks = [Mark(*found) for found in MARK.findall(block)]
            runs = [mark_of(mark.text) for mark in marks if mark.word == "run"]
            others = tuple(mark for mark in marks if mark.word != "run")
            heard = not others
            for words in words_in(block, seen):
                run = next((mark for mark in runs if " ".join(words).startswith(mark.beginning)), None)
                if run is not None:
                    runs.remove(run)
                speaking = others if run is None and words[0] not in SHELL else ()
                heard = heard or bool(speaking)
                yield Command(name, words, run, speaking)
            if runs or not heard:
                raise ValueError(f"{name}: no command in the block of the mark {(runs or others)[0]}")


def words_in(block: str, seen: Set[Tuple[str, ...]]) -> Iterator[Tuple[str, ...]]:
    """Yield the commands of a block or paragraph, and add them to those that were seen."""
    for found in CODE.finditer(block):
        words: List[Tuple[str, ...]] = []
        if found["kind"] == "bash":
            words = list(words_of(found["lines"]))
        elif found["span"] and OURS_IN_TEXT.match(found["span"]):
            words = [line for line in words_of(found["span"].replace("\n", " ")) if line not in seen]
        seen.update(words)
        yield from words


def words_of(block: str) -> Iterator[Tuple[str, ...]]:
    """Yield the commands of a block, without comments, redirections, variables and launchers."""
    for line in WHICH.sub(r"\1", block.replace("\\\n", " ")).splitlines():
        for part in line.split(" | "):
            words = shlex.split(REDIRECTION.sub(" ", part), comments=True)
            while words and (words[0] == "sudo" or VARIABLE.match(words[0])):
                words.pop(0)
            if words and words[0] == "torchrun":  # launches the program that it names
                words = words[next(at for at, word in enumerate(words) if word.startswith("fairseq-")) :]
            if words:
                yield tuple(words)


def fairseq_command(program: str) -> str:
    """The key of PARSERS for a command of fairseq, or of ours for it; else nothing."""
    match = re.fullmatch(r"fairseq(?:-mega)?-(train|generate|interactive|eval-lm|validate|preprocess)", program)
    return match[1] if match else ""


def module_of(command: Command) -> Tuple[str, List[str]]:
    """The module that a command runs, and its sub-command if it has one; nothing for other programs."""
    entries = dict(ENTRIES.findall((REPOSITORY / "setup.py").read_text(encoding="utf-8")))
    if command.program in entries:
        module, rest = entries[command.program], list(command.words[1:])
    elif command.words[:2] == ("python", "-m") and command.words[2].startswith(("fairseq_mega", "tests.")):
        module, rest = command.words[2], list(command.words[3:])
    else:
        return "", []
    sub = rest[0] if rest and re.fullmatch(r"[a-z][a-z0-9-]*", rest[0]) else ""
    return module, [sub] if sub else []


@lru_cache(maxsize=None)
def help_of(module: str, sub: Tuple[str, ...]) -> str:
    """Return the output of a module for --help."""
    output, before = io.StringIO(), sys.argv
    sys.argv = [module, *sub, "--help"]
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            runpy.run_module(module, run_name="__main__", alter_sys=False)
    finally:
        sys.argv = before
    return output.getvalue()


@lru_cache(maxsize=None)
def help_of_script(script: str) -> str:
    """Return the output of a script of this repository for --help, which requires no environment."""
    command = [sys.executable if script.endswith(".py") else "bash", str(REPOSITORY / "scripts" / script), "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def script_of(command: Command) -> str:
    """The name of the script of this repository that a command runs, or nothing."""
    path = next((word for word in command.words[:2] if word.startswith("scripts/")), "")
    return Path(path).name
