"""The commands of the documents, run as they stand there, but for options that make models and data small."""

import re
import shlex
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from fairseq_mega.lab.prepare import toy_data
from tests.support import documented_commands as documents
from tests.support import helpers, in_process, tiny_images
from tests.support.documented_commands import SETS, Command
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_processes")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|.*[/=][A-Z][A-Z_]+(,.*)?|.*\.\.\.")
LINES = ("the first words of a text", "a second line has other words", "and the last line is short")


def by_document() -> Dict[str, List[Command]]:
    found: Dict[str, List[Command]] = defaultdict(list)
    for command in documents.commands():
        found[command.document].append(command)
    return found


def is_there(test: str) -> bool:
    """Return whether a test, FILE::TEST below the folder of the tests, exists."""
    file, _, function = test.partition("::")
    path = REPOSITORY / "tests" / file
    return path.is_file() and re.search(rf"^def {function}\(", path.read_text(encoding="utf-8"), re.M) is not None


def test_every_command_is_tested_or_has_a_reason() -> None:
    """By a mark of a run, which is read elsewhere, of a test that exists, or of a reason; one may be abbreviated."""
    for command in documents.commands():
        if command.run is None and command.program not in documents.SHELL:
            assert command.marks, (command, "no mark above it")
            tests = [test for mark in command.marks if mark.word == "tested" for test in mark.text.split(", ")]
            assert all(map(is_there, tests)), command
            if not tests and any(mark.text == "abbreviated" for mark in command.marks):
                assert any(PLACEHOLDER.fullmatch(word) for word in command.words), command


def write_lines(count: int, *files: str) -> None:
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("".join(f"{LINES[number % 3]} {number % 7}\n" for number in range(count)))


def execute(line: str, stdin: str = "") -> str:
    """Run a command in this process and return what it printed."""
    words, errors = shlex.split(line), ""
    command = Command("", tuple(words))
    module = documents.module_of(command)[0]
    with helpers.captured_output(stdin) as output:
        if "--list" in words and documents.script_of(command):
            done = in_process.reproduce(documents.script_of(command), *words[2:])
            print(done.stdout)
            status, errors = done.returncode, done.stderr
        elif documents.fairseq_command(command.program):
            status = in_process.run_module(words)
        else:
            start = 3 if words[0] == "python" else 1
            status = in_process.run_module(["python", "-m", module, *words[start:]])
    assert status == 0, f"{line}\n{output.getvalue()[-3000:]}{errors}"
    return output.getvalue()


GOLDENS = REPOSITORY / "tests" / "goldens"


def before_the_readme() -> None:
    execute(f"fairseq-mega-prepare listops --out data {SETS['LISTOPS']}")
    options = "--task lra-text --arch mega_lra_listop --criterion lra_cross_entropy --optimizer adam --batch-size 20"
    small = f"{documents.options_of('mega_lra_miniature')} {SETS['SHORT']}"
    execute(f"fairseq-mega-train data {options} --save-dir checkpoints {small}")
    Path("OLD.pt").symlink_to(GOLDENS / "translator.official.pt")


def before_the_published_commands() -> None:
    execute(f"fairseq-mega-prepare listops --out listops {SETS['LISTOPS']}")
    execute("fairseq-mega-prepare speech-commands --out speech --smoke")
    write_lines(200, "train.txt", "valid.txt", "test.txt")
    splits = "--trainpref train.txt --validpref valid.txt --testpref test.txt"
    execute(f"fairseq-preprocess --only-source --destdir text {splits}")
    helpers.make_parallel_corpus(Path("corpus"), sentences=12, train=60, valid=8).rename("pairs")
    Path("text-save").mkdir()
    Path("text-save/model.pt").symlink_to(GOLDENS / "language_model.official.pt")


def before_images() -> None:
    shutil.copytree(tiny_images.write_files(Path("images")) / "train", "my_images")
    shutil.copy("images/valid/class1/001.JPEG", "new.jpg")
    toy_data.imagenet(Path("archives"))


def write_documents(file: str) -> None:
    """A text of twenty documents, parted by blank lines."""
    write_lines(30, "document.txt")
    Path(file).write_text("\n".join([Path("document.txt").read_text()] * 20))


def before_language_models() -> None:
    write_lines(600, "my_text.txt")
    write_documents("documents.txt")


def before_megalodon() -> None:
    write_documents("my_text.txt")
    write_lines(60, "wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")


def before_the_long_range_arena() -> None:
    rows = [f"{number % 2}\t{LINES[number % 3]} {number}\n" for number in range(60)]
    Path("my_table.tsv").write_text("".join(["label\ttext\n", *rows]))


def before_speech() -> None:
    toy_data.speech_commands(Path("words"))
    with tarfile.open("words/speech_commands_v0.02.tar.gz") as archive:
        archive.extractall("words")
    for word in ("yes", "no"):
        shutil.copytree(f"words/{word}", f"my_recordings/{word}")
    for name in ("word.wav", "new.wav"):
        shutil.copy("words/yes/0.wav", name)


def before_translation() -> None:
    """Text of one's own, two checkpoints and a translated test set."""
    for language, words in (("en", "the {} sees the {} cat ."), ("de", "der {} sieht die {} Katze .")):
        lines = "".join(f"{words.format(LINES[number % 3], number)}\n" for number in range(300))
        Path("corpus").mkdir(exist_ok=True)
        Path(f"corpus/train.{language}").write_text(lines)
    write_lines(2, "new.en")
    data = helpers.make_parallel_corpus(Path("toy"), sentences=12, train=60, valid=8)
    training = shlex.join([*helpers.TINY_TRAINING, "--cpu", "--max-epoch", "5", "--save-dir", "checkpoints"])
    execute(f"fairseq-mega-train {data} {training} --source-lang en --target-lang de")
    Path("test.de").write_text("ein Satz .\n" * 3003)
    Path("generate.txt").write_text("".join(f"H-{n}\t-0.1\tein Satz .\nD-{n}\t-0.1\tein Satz .\n" for n in range(3003)))


def before_contributing() -> None:
    Path("FILE.yaml").write_text(execute("fairseq-mega-reproduce mega/table2/text/mega_chunk --yaml"))


BEFORE: Dict[str, Callable[[], None]] = {  # what the commands of a document need
    "README.md": before_the_readme,
    "CONTRIBUTING.md": before_contributing,
    "examples/from_the_published_code.md": before_the_published_commands,
    "examples/imagenet/README.md": before_images,
    "examples/language_modeling/README.md": before_language_models,
    "examples/long_range_arena/README.md": before_the_long_range_arena,
    "examples/megalodon/README.md": before_megalodon,
    "examples/published_defaults.md": before_speech,
    "examples/speech_commands/README.md": before_speech,
    "examples/translation/README.md": before_translation,
}


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted(name for name, found in by_document().items() if any(c.run for c in found)))
def test_the_commands_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the marked commands one after the other in an empty folder, each with what those before have made."""
    monkeypatch.chdir(tmp_path)
    BEFORE.get(document, lambda: None)()
    for command in by_document()[document]:
        run = command.run
        if run is not None:
            line = f"{shlex.join(command.words)} {run.options}"
            for word, meaning in run.meanings:
                line = re.sub(rf"\b{word}\b", meaning, line)
            assert run.prints in execute(line, f"{run.stdin}\n" if run.stdin else ""), line
    if document == "examples/language_modeling/README.md":
        complete_a_text(document)
    elif document == "examples/translation/README.md":
        (code,) = python_of(document)
        exec(code, {})


def python_of(document: str) -> List[str]:
    """Return the Python of a document."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / document).read_text(encoding="utf-8"), re.DOTALL)


def complete_a_text(document: str) -> None:
    """The Python beside these commands; what the first part prints without end is cut off."""
    first, scored, second = python_of(document)
    pieces: List[object] = []

    def keep(piece: object, end: str = "\n", flush: bool = False) -> None:
        pieces.append(piece)
        if len(pieces) == 4:
            raise StopIteration

    names = {"print": keep}
    with pytest.raises(StopIteration):
        exec(first, names)
    assert len(pieces) == 4 and pieces[0]
    write_lines(4, "new_text.txt")
    for code in (scored, second):
        exec(code, names)
    assert len(pieces) == 6 and "bits_per_byte=" in str(pieces[4]) and pieces[5]
