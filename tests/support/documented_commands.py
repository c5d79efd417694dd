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
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

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
MARK = r"<!-- (?P<word>run|tested|not run): (?P<mark>[^\n]*?) -->"
PLACES = re.compile(  # marks, blocks and spans of code
    rf"(?<!`){MARK}|^```(?P<kind>\w*)\n(?P<block>.*?)^```|`(?P<span>[^`]+)`", re.DOTALL | re.MULTILINE
)
LINES_OF_MARKS = re.compile(r"\n(?:<!--[^\n]*-->\n)*")
END_OF_CODE = re.compile(r"^```$", re.MULTILINE)
END_OF_BLOCK = re.compile(r"\n[^\S\n]*\n|\Z")
OURS_IN_TEXT = re.compile(
    r"(sudo )?(\w+=\S+ )*((bash|python) (scripts/|setup\.py|-m (fairseq_mega|tests))|fairseq-mega-[\w-]+ )"
)
WHICH = re.compile(r"\$\(which ([\w-]+)\)")
SUBSTITUTION = re.compile(r"\$\([^)]*\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
PLACEHOLDERS = re.compile(r"[A-Za-z_]+=.*$", re.DOTALL)
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
SHELL = {"grep", "cut", "echo", "for", "done;"}  # words of the shell, tested with the command beside them
OURS = ("--precision", "--decode-weights")  # of every command, where fairseq's parsers do not know them


class Run(NamedTuple):
    """Mark of a command that a test runs: ``<!-- run: BEGINNING + OPTIONS; prints TEXT; stdin TEXT; DATA NAME -->``.

    It stands before the command, the next that begins so; all but the beginning may be left out.
    """

    beginning: str
    options: str = ""  # at its end; they make it small
    prints: str = ""  # among what it prints
    stdin: str = ""
    meanings: Tuple[Tuple[str, str], ...] = ()  # of words in capitals, such as DATA


class Mark(NamedTuple):
    """Mark above a block or a paragraph: ``<!-- tested: FILE::TEST, ... -->`` or ``<!-- not run: REASON -->``.

    It speaks for the commands below, up to the next empty line, that have no mark of their own.
    """

    word: str
    text: str
    end: int  # place in the document


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
    """Yield every command of the documents; raises ValueError as :func:`commands_of`."""
    for document in DOCUMENTS:
        yield from commands_of(document.relative_to(REPOSITORY).as_posix(), document.read_text(encoding="utf-8"))


def commands_of(name: str, text: str) -> Iterator[Command]:
    """Yield the commands of a document: those in bash blocks, and ours in running text, which count once.

    Raises:
        ValueError: for a mark that no command follows.
    """
    runs: List[Run] = []
    marks: List[Mark] = []
    seen: Set[Tuple[str, ...]] = set()
    used: Set[Mark] = set()
    for found in PLACES.finditer(text):
        words: List[Tuple[str, ...]] = []
        if found["word"] == "run":
            runs.append(mark_of(found["mark"]))
        elif found["word"]:
            marks.append(Mark(found["word"], found["mark"], end_of_block(text, found.end())))
        elif found["kind"] == "bash":
            words = list(words_of(found["block"]))
        elif found["span"] and OURS_IN_TEXT.match(found["span"]):
            words = [line for line in words_of(found["span"].replace("\n", " ")) if line not in seen]
        seen.update(words)
        for line in words:
            run = next((mark for mark in runs if " ".join(line).startswith(mark.beginning)), None)
            speaking = tuple(mark for mark in marks if found.start() < mark.end and not run and line[0] not in SHELL)
            used.update(speaking)
            if run is not None:
                runs.remove(run)
            yield Command(name, line, run, speaking)
    for mark in [*runs, *(mark for mark in marks if mark not in used)]:
        raise ValueError(f"{name}: no command follows the mark of {mark[0]!r}, {mark[1]!r}")


def end_of_block(text: str, start: int) -> int:
    """Return the place where the block or the paragraph ends that marks at a place are above, or within."""
    lines = LINES_OF_MARKS.match(text, start)
    begin = start if lines is None else lines.end()
    if text.startswith("```", begin):
        found = END_OF_CODE.search(text, begin)
    else:
        found = END_OF_BLOCK.search(text, max(start, begin - 1))
    return len(text) if found is None else found.start()


def words_of(block: str) -> Iterator[Tuple[str, ...]]:
    """The commands of a block, comments and redirections left out, variables put in."""
    variables: Dict[str, str] = {}
    for line in whole_lines(block):
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        for part in SUBSTITUTION.sub("1", WHICH.sub(r"\1", line)).split(" | "):
            words = shlex.split(REDIRECTION.sub(" ", part), comments=True)
            if words and words[0] == "sudo":
                words.pop(0)
            if words and words[0] == "torchrun":  # launches the program that it names
                words = words[next(at for at, word in enumerate(words) if word.startswith("fairseq-")) :]
            while words and PLACEHOLDERS.match(words[0]):
                name, value = words.pop(0).split("=", 1)
                variables[name] = value
            if words and words != ["..."]:
                yield tuple(words)


def whole_lines(block: str) -> Iterator[str]:
    """The lines of a block, those in one that a backslash or a quotation mark joins."""
    begun = ""
    for line in block.replace("\\\n", " ").splitlines():
        begun = f"{begun} {line}" if begun else line
        if begun.count('"') % 2 == 0:
            yield begun
            begun = ""


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
