"""Helpers that the commands share: sub-commands, and errors in one line."""

import argparse
import atexit
import codecs
import contextlib
import io
import logging
import os
import select
import sys
import warnings
from typing import Callable, Iterator, Optional

from fairseq_mega.compat.errors import in_one_line


def add_described(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add a sub-command with its options; the first line of its description is its help."""
    form = argparse.RawDescriptionHelpFormatter
    first = description.splitlines()[0]
    add_options(commands.add_parser(name, help=first, description=description, formatter_class=form))


def reader_is_gone() -> bool:
    """Return whether standard output has no reader any more, as after ``| head``.

    Standard output is redirected to ``os.devnull`` then, so that Python prints no error about it.
    """
    try:
        output, poll = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return False
    poll.register(output, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone


def lost_output() -> Optional[str]:
    """Write what standard output still holds; return why it cannot be written, or None, also if nobody reads it.

    Standard output is redirected to ``os.devnull`` then, as in :func:`reader_is_gone`.
    """
    if reader_is_gone():
        return None
    try:
        sys.stdout.flush()
    except (AttributeError, ValueError):  # closed, or no file
        return None
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"standard output cannot be written ({error.strerror}): what was printed is not complete"
    return None


def end_output() -> None:
    """End the process with exit status 1 and a message if its last output cannot be written, to a full disk for one.

    Python prints an error of its own otherwise; and where the error was caught before, the exit status is 0.
    """
    problem = lost_output()
    if problem is not None:
        print(f"{os.path.basename(sys.argv[0])}: error: {problem}", file=sys.stderr, flush=True)
        os._exit(1)


atexit.register(end_output)  # before Python flushes standard output


def print_utf8() -> None:
    """Print in UTF-8 in every locale: results contain symbols that other encodings lack, such as U+2581 of subwords."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8")


print_utf8()  # before a command prints its first line


@contextlib.contextmanager
def logged_output() -> Iterator[None]:
    """Raise the OSError of a line that is logged to standard output; logging prints a traceback and continues."""
    original = logging.Handler.handleError

    def handle(self: logging.Handler, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], OSError) and getattr(self, "stream", None) in (sys.stdout, sys.__stdout__):
            raise  # noqa: PLE0704
        original(self, record)

    logging.Handler.handleError = handle  # type: ignore[method-assign]
    try:
        yield
    finally:
        logging.Handler.handleError = original  # type: ignore[method-assign]


def quiet_libraries() -> None:
    """Hide deprecation warnings of fairseq, hydra and torch, unless -W is given, and fairseq's log of its iterators."""
    logging.getLogger("fairseq.tasks.fairseq_task").setLevel(logging.WARNING)  # four lines for each text that is read
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=r"(fairseq|hydra|omegaconf|torch)\b")
        warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")


def failure(program: str, error: Exception) -> int:
    """Print the message of an error, unless nobody reads the output, and return the exit status 1."""
    if not (isinstance(error, BrokenPipeError) and reader_is_gone()):
        problem = lost_output() if isinstance(error, OSError) else None
        print(f"{program}: error: {problem or error}", file=sys.stderr)
    return 1


def exit_status(program: str, run: Callable[[], None]) -> int:
    """Call ``run`` and return 0; after an error of the user's print its message and return 1."""
    quiet_libraries()
    try:
        run()
    except (OSError, ValueError) as error:
        return failure(program, error)
    except Exception as error:
        line = in_one_line(program, error)
        if line is None:
            raise
        print(line, file=sys.stderr)
        return 1
    return 0
