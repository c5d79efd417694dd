"""Run fairseq-interactive, on a terminal as a dialogue, or read a text once: --read FILE --save-context CONTEXT."""

import argparse
import contextlib
import logging
import sys
from pathlib import Path
from typing import Any, Iterator, List, Optional

import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import interactive as fairseq_interactive

from fairseq_mega.compat.files.expressions import literal
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.streams.context import check_name
from fairseq_mega.models.streams.generator import TextGenerator

from .usage import UsageError

logger = logging.getLogger("fairseq_mega.cli.interactive")
BLOCK = 1 << 16  # characters per read
PROMPT = "> "


def build_parser() -> argparse.ArgumentParser:
    """Return fairseq's parser of the command with the options of this package added."""
    parser = options.get_interactive_generation_parser()
    parser.add_argument(
        "--fairseq-lines",
        action="store_true",
        help="print fairseq's log and lines S-, H-, D- and P- on a terminal, too; otherwise only the text of the best "
        "hypothesis is printed there for each line that is typed, or of the best --nbest",
    )
    group = parser.add_argument_group("reading a text once, with a language model of this package")
    group.add_argument("--read", type=Path, metavar="FILE", help="text file to read, to the end of its last line")
    group.add_argument(
        "--save-context",
        type=Path,
        metavar="CONTEXT",
        help="file (.safetensors) to which the state after --read is written; --context continues from this file",
    )
    return parser


def cli_main() -> None:
    """Run the command line of the process."""
    given = options.parse_args_and_arch(build_parser())
    cfg = convert_namespace_to_omegaconf(given)
    if given.read is None and given.save_context is None:
        if given.input == "-" and not given.fairseq_lines and sys.stdin.isatty() and sys.stdout.isatty():
            hold_dialogue()
        distributed_utils.call_main(cfg, fairseq_interactive.main)
        return
    check_files(given)
    distributed_utils.call_main(cfg, read, file=given.read, output=given.save_context)


def hold_dialogue() -> None:
    """Make fairseq-interactive prompt for each line, and print texts alone, in this process from now on."""
    logging.disable(logging.INFO)
    with contextlib.suppress(ImportError):  # of a Python without it
        import readline  # noqa: F401  # input() then edits lines, and reads more than the 4,095 bytes of a terminal
    vars(fairseq_interactive).update(buffered_read=typed_lines, print=print_text)
    print("Type a line and press return; Ctrl-D ends. Loading ...", flush=True)


def typed_lines(*unused: object) -> Iterator[List[str]]:
    """Yield each line that is typed; takes the place of fairseq's ``buffered_read``."""
    while True:
        try:
            yield [input(PROMPT)]
        except EOFError:
            print()
            return


def print_text(line: str) -> None:
    """Print the text of a line ``D-``, and no other line of fairseq's."""
    if line.startswith("D-"):
        print(line.split("\t", 2)[2])


def check_files(given: argparse.Namespace) -> None:
    """Check --read and --save-context before a long text is read.

    Raises:
        OSError: if the text cannot be found.
        ValueError: if one of the options is missing, the text is empty, or the context cannot be written to its file.
    """
    if None in (given.read, given.save_context):
        raise UsageError("--read and --save-context: give both, or neither")
    if not given.read.stat().st_size:
        raise UsageError(f"--read {given.read} is empty: give a text")
    check_name(given.save_context)
    if given.save_context.exists() or not given.save_context.parent.is_dir():
        raise UsageError(f"--save-context {given.save_context}: give a new name in a folder that exists")


def read(cfg: Any, file: Path, output: Path) -> None:
    """Read a text file to the end of its last line, and write the context.

    Args:
        cfg: configuration of fairseq-interactive.
        file: text in UTF-8, which follows the text of ``--context`` if ``--context`` is passed.
        output: file that :func:`fairseq_mega.models.streams.context.save_context` writes.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if the file is not text, or the model is not a language model of this package.
    """
    generator = load(cfg)
    before: Optional[str] = getattr(cfg.task, "context", None)
    context = None if before is None else generator.load_context(before)
    for part in parts(file, "\n" if generator.parts_lines else None):
        context = generator.read(part, context)
    assert context is not None
    generator.save_context(context, output)
    state = context.states[0]
    count = 0 if state is None else state.step  # counts the </s> before the text, not the last token of the text
    logger.info(f"{count:,} tokens in {output} ({output.stat().st_size:,} bytes)")


def parts(file: Path, line_end: Optional[str]) -> Iterator[str]:
    """Yield the text of a file in parts, the last one ended by a newline; raises ValueError unless it is UTF-8.

    Args:
        line_end: as for Python's open; None: CR LF and CR become line feeds, as own-documents reads files of text.
    """
    last = ""
    with file.open(encoding="utf-8", newline=line_end) as stream:
        for part in iter(lambda: stream.read(BLOCK), ""):
            yield part
            last = part[-1]
    if last != "\n":
        yield "\n"


def load(cfg: Any) -> TextGenerator:
    """Load the models of a configuration as fairseq-interactive does.

    Raises:
        OSError, ValueError: as fairseq does; ValueError also unless all are language models of this package.
    """
    utils.import_user_module(cfg.common)
    task = tasks.setup_task(cfg.task)
    models, _ = checkpoint_utils.load_model_ensemble(
        utils.split_paths(cfg.common_eval.path),
        arg_overrides=literal(cfg.common_eval.model_overrides),
        task=task,
    )
    if not all(isinstance(model, MegaLanguageModel) for model in models):
        raise UsageError(f"--read requires a language model of this package: --path {cfg.common_eval.path} is another")
    device = torch.device("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")
    for model in models:
        if cfg.common.fp16:
            model.half()
        model.to(device)
    return TextGenerator(cfg, task, models).to(device)
