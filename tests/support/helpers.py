"""fairseq's commands called in process, and tiny corpora for them."""

import contextlib
import importlib
import io
import logging
import random
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from fairseq_mega.cli import console
from tests.support.processes import REPOSITORY as REPOSITORY
from tests.support.processes import free_port as free_port
from tests.support.processes import start_trainings

LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"

# A model that trains in seconds; the options every test of a command needs.
TINY_MODEL = [
    *("--arch", "mega_tiny", "--encoder-layers", "1", "--decoder-layers", "1"),
    *("--encoder-embed-dim", "16", "--encoder-hidden-dim", "32", "--encoder-ffn-embed-dim", "32"),
    *("--decoder-embed-dim", "16", "--decoder-hidden-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--encoder-z-dim", "8", "--decoder-z-dim", "8", "--encoder-n-dim", "4", "--decoder-n-dim", "4"),
]
TINY_TRAINING = [
    *TINY_MODEL,
    *("--share-all-embeddings", "--optimizer", "adam", "--lr", "0.005", "--dropout", "0.1"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--max-tokens", "200"),
    *("--num-workers", "0", "--no-progress-bar", "--log-format", "json", "--log-interval", "1"),
]


def forget_earlier_runs() -> None:
    """Clear what fairseq keeps in function attributes and globals from one run of a process to the next."""
    from fairseq import checkpoint_utils
    from fairseq.logging import metrics

    metrics.reset()
    functions: List[object] = [checkpoint_utils.save_checkpoint]
    if "fairseq_cli.train" in sys.modules:
        functions.append(sys.modules["fairseq_cli.train"].should_stop_early)
    for function in functions:
        for attribute in ("best", "num_runs"):
            if hasattr(function, attribute):
                delattr(function, attribute)


@contextlib.contextmanager
def captured_output(stdin: str = "") -> Iterator[io.StringIO]:
    """Collect stdout, stderr and fairseq's log in the buffer that is yielded; `stdin` is what can be read."""
    root = logging.getLogger()
    handlers, level, streams = root.handlers[:], root.level, (sys.stdin, sys.stdout, sys.stderr)
    buffer = io.StringIO()
    handler = logging.StreamHandler(buffer)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(stdin), buffer, buffer
    try:
        yield buffer
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        root.handlers[:] = handlers
        root.setLevel(level)


def run_fairseq(command: str, argv: Sequence[object], stdin: str = "") -> str:
    """Run a fairseq command in this process and return what it wrote to stdout, stderr and its log.

    `command` is train, generate, interactive, eval-lm, validate (with this plugin) or preprocess. Errors pass
    through unchanged; the output until then is printed, so that pytest shows it.
    """
    arguments = [str(argument) for argument in argv]
    if command == "preprocess":
        module = "fairseq_cli.preprocess"
    else:
        module = console.COMMANDS[command]
        arguments = console.with_user_dir(arguments)
    saved = sys.argv
    forget_earlier_runs()
    with captured_output(stdin) as buffer:
        try:
            sys.argv = [f"fairseq-{command}", *arguments]
            importlib.import_module(module).cli_main()
        except BaseException:
            print(buffer.getvalue(), file=sys.__stdout__)
            raise
        finally:
            sys.argv = saved
            forget_earlier_runs()
    return buffer.getvalue()


def train_with_two_processes(argv: Sequence[object], ddp_backend: str = "legacy_ddp") -> str:
    """Run fairseq-mega-train on the CPU as two processes that share the work; returns what the first one printed."""
    processes = start_trainings(argv, 2, ddp_backend)
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    return printed[0]


def hypotheses(output: str, kind: str = "H") -> Dict[int, str]:
    """Read the H- (D-, S-, T-) lines of fairseq-generate or -interactive, in the order of the output."""
    found: Dict[int, str] = {}
    for number, text in re.findall(rf"^{kind}-(\d+)\t(?:[^\t\n]*\t)?(.*)$", output, re.M):
        assert int(number) not in found, f"two lines {kind}-{number}"
        found[int(number)] = text
    return found


def random_sentences(count: int, seed: int, words: int = 20, longest: int = 9) -> List[str]:
    """Sentences of 1 to `longest` words w0, w1, ... of a vocabulary of `words`."""
    draw = random.Random(seed)
    return [" ".join(f"w{draw.randrange(words)}" for _ in range(draw.randint(1, longest))) for _ in range(count)]


def make_parallel_corpus(
    folder: Path,
    sentences: int = 461,
    train: int = 200,
    valid: int = 20,
    seed: int = 1,
    joined: bool = True,
    test_source: Optional[Sequence[str]] = None,
) -> Path:
    """Write and binarise a tiny corpus en-de, whose target is the source reversed; returns the data folder.

    `sentences` is the size of the test set, whose source lines `test_source` replaces. Without `joined` the
    languages have dictionaries of their own, which share no word.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for offset, (split, count) in enumerate((("train", train), ("valid", valid), ("test", sentences))):
        source = random_sentences(count, seed + offset)
        if split == "test" and test_source is not None:
            source = list(test_source)
        target = [" ".join(reversed(line.split())) for line in source]
        if not joined:
            target = [line.replace("w", "v") for line in target]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in source))
        (folder / f"{split}.de").write_text("".join(f"{line}\n" for line in target))
    data = folder / "data-bin"
    arguments: List[object] = ["--source-lang", "en", "--target-lang", "de", "--destdir", data]
    for split in ("train", "valid", "test"):
        arguments += [f"--{split}pref", folder / split]
    run_fairseq("preprocess", arguments + (["--joined-dictionary"] if joined else []))
    return data
