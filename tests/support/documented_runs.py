"""The marks of commands without a run: the test that runs the command, or the reason why none does."""

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Set

from tests.support.documented_commands import SHELL, Command, Mark, module_of, script_of
from tests.support.helpers import REPOSITORY

TESTS = REPOSITORY / "tests"
REASONS = {
    "abbreviated": "leaves out options, or has words in capitals that the reader replaces",
    "installs": "installs an environment or a system: minutes, and a network",
}
INSTALLING = {"setup.sh", "test_lowest.sh", "try_debian.sh"}
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|.*[/=][A-Z][A-Z_]+(,.*)?|.*\.\.\.")
STARTED = re.compile(r"^(?:\S+=\S+ )?(?:reproduce|start) (.*)$", re.MULTILINE)


def problems(command: Command) -> List[str]:
    """Return what is wrong with the marks of a command; those of a run are read elsewhere."""
    if command.run is not None or command.program in SHELL:
        return []
    if not command.marks:
        return ["no mark above it: <!-- run: ... -->, <!-- tested: FILE::TEST --> or <!-- not run: REASON -->"]
    tests = [test for mark in command.marks for test in named_tests(mark)]
    missing = [f"{test} is no test" for test in tests if not is_there(test)]
    if missing:
        return missing
    if any(mentions(test, command) for test in tests):
        return []
    reasons = [mark.text for mark in command.marks if mark.word == "not run"]
    if not reasons:
        return [f"no test of its marks mentions {' or '.join(names_of(command))}"]
    return [problem for reason in reasons for problem in problems_of(reason, command)]


def problems_of(reason: str, command: Command) -> List[str]:
    """Return what is wrong with a reason: one of REASONS, or at least three words of its own."""
    if reason == "abbreviated" and not any(PLACEHOLDER.fullmatch(word) for word in command.words):
        return ["it is not abbreviated: it has neither '...' nor a word in capitals"]
    if reason == "installs" and script_of(command) not in INSTALLING and command.program != "pip":
        return ["it installs nothing: INSTALLING lacks its script"]
    if reason not in REASONS and len(reason.split()) < 3:
        return [f"'{reason}' is no reason: give {', '.join(REASONS)} or a phrase"]
    return []


def named_tests(mark: Mark) -> List[str]:
    """Return the tests that a mark names, as FILE::TEST below the folder of the tests; none for a reason."""
    return mark.text.split(", ") if mark.word == "tested" else []


def is_there(test: str) -> bool:
    """Return whether a test exists."""
    file, _, function = test.partition("::")
    return (TESTS / file).is_file() and function.startswith("test_") and function in definitions(TESTS / file)


def mentions(test: str, command: Command) -> bool:
    """Return whether a test, with what it uses of its file, has a name of a command or reads its document."""
    source, path = source_of(test), " / ".join(f'"{part}"' for part in command.document.split("/"))
    if "/" in path and path in source:
        return True
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", source) for name in names_of(command))


def names_of(command: Command) -> List[str]:
    """Return names by which a test calls a command: script, recipe, data set, report, benchmark, program or module."""
    script = script_of(command)
    if script:
        lines = STARTED.findall((REPOSITORY / "scripts" / script).read_text(encoding="utf-8"))
        started = [word for line in lines for word in line.split()]
        recipes, stem = [name for name in started if "/" in name], Path(script).stem
        is_name = "_" in stem or any(name.endswith(f".{stem}") for name in started)  # "test" is a word of every test
        return [script, *([stem] if is_name else []), *recipes, *map(short, recipes)]
    module, sub = module_of(command)
    if sub and sub != ["run"]:  # a word of many tests
        return sub
    if command.program == "fairseq-mega-lm-eval":  # a test calls the harness, in which it registers our models
        return [command.words[command.words.index("--tasks") + 1], "simple_evaluate"]
    if command.program == "fairseq-mega-qa":
        return [command.words[1]]
    recipes = [
        word
        for word in command.words[1:]
        if re.fullmatch(r"(mega|megalodon|comparison|miniature|quickstart)/[\w/]+", word)
    ]
    if recipes:
        tables = [short(recipe).partition("/")[0] for recipe in recipes if command.program == "fairseq-mega-reproduce"]
        return [*recipes, *map(short, recipes), *tables]
    if command.program in ("fairseq-mega-inspect", "fairseq-mega-report", "fairseq-mega-reproduce"):
        return command.options[:1]
    if command.program == "python":
        return [module.split(".")[-1] if module else command.words[1]]
    return [command.program]


def short(recipe: str) -> str:
    """Return the name of a recipe without its paper."""
    return recipe.partition("/")[2]


@lru_cache(maxsize=None)
def source_of(test: str) -> str:
    """Return the source of a test and of the definitions and imports of its file that it uses, directly or not."""
    file, _, function = test.partition("::")
    known, found, missing = definitions(TESTS / file), [], {function}
    seen: Set[str] = set()
    while missing:
        seen |= missing
        texts = [known[name] for name in sorted(missing)]
        found += texts
        used = {word for text in texts for word in re.findall(r"\w+", text)}
        missing = (used & set(known)) - seen
    return "\n".join(found)


@lru_cache(maxsize=None)
def definitions(file: Path) -> Dict[str, str]:
    """Return the source of every function, variable and import at the top of a file, by name."""
    text = file.read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        source = "\n".join(lines[first - 1 : node.end_lineno])
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = source
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update({alias.asname or alias.name: source for alias in node.names})
        else:
            names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            found.update({name.id: source for name in names if isinstance(name.ctx, ast.Store)})
    return found
