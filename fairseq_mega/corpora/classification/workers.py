"""The option --workers."""

import argparse
import os


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers, by default one process per usable core; the result does not depend on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--workers", type=_at_least_one, default=cores, metavar="N", help="processes (default: cores)")


def _at_least_one(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 is needed")
    return value
