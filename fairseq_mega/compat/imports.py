"""Import fairseq quietly, and give its commands the logging that they ask for."""

import logging
import os
import sys

CLI_LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
CLI_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


def import_fairseq() -> None:
    """Import fairseq without its import-time messages and the root handler that one of its models adds."""
    if "fairseq" in sys.modules:
        return
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    try:
        import fairseq  # noqa: F401
    except ValueError as error:
        if "mutable default" not in str(error):
            raise
        raise ImportError(
            f"the installed fairseq cannot be imported by Python {sys.version_info[0]}.{sys.version_info[1]} "
            f"({error}): uninstall it and install fairseq-fixed, the one repaired for Python 3.11 and later"
        ) from error
    finally:
        logging.disable(disabled)
    added = [handler for handler in root.handlers if handler not in handlers]
    for handler in added:
        root.removeHandler(handler)
    if added:
        root.setLevel(level)


def undo_leaked_logging() -> None:
    """Give fairseq-generate, -interactive and -eval-lm back the log format and stream that they ask for.

    These commands import fairseq first, whose wav2vec2_classification calls logging.basicConfig(level=DEBUG);
    the commands' own basicConfig is then ignored, and their results ("Loss (base 2): ...") go to stderr.
    """
    root = logging.getLogger()
    late = {"fairseq_cli.interactive", "fairseq_cli.eval_lm"} & set(sys.modules)
    if not late and "fairseq_cli.generate" not in sys.modules:
        return
    if len(root.handlers) != 1 or root.level != logging.DEBUG:
        return
    (handler,) = root.handlers
    template = getattr(handler.formatter, "_fmt", None)
    if type(handler) is not logging.StreamHandler or template != logging.BASIC_FORMAT:
        return
    root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    if late:  # fairseq-generate configures logging after this, once it knows its output file
        level = os.environ.get("LOGLEVEL", "INFO").upper()
        logging.basicConfig(format=CLI_LOG_FORMAT, datefmt=CLI_DATE_FORMAT, level=level, stream=sys.stdout)
