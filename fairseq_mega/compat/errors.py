"""Print any error of a user's in one line, in its own words."""

import os
import pickle
import re
import textwrap
import traceback
from typing import Optional

OF_FILES = (OSError, EOFError)
OF_VALUES = (ValueError, ImportError, FloatingPointError, pickle.UnpicklingError)
IN_WORDS = (OSError, ValueError, ImportError)  # errors whose text is a sentence, without the name of the class
OF_LIBRARIES = (AssertionError, KeyError, RuntimeError)  # fairseq's and torch's for wrong options and lost workers
OF_MEMORY = re.compile("out of memory|allocate memory|bad_alloc")  # RuntimeErrors of CUDA; of a CPU; of C++
LONGEST = 700  # torch names each tensor of another model, argparse each of hundreds of architectures
SOURCES = ("fairseq", "fairseq_cli", os.path.join("torch", "utils", "data"))


def is_of_a_file(error: BaseException) -> bool:
    """Return whether `error` is about a file, not about a value."""
    from fairseq_mega.compat.files.loading import RefusedContents, UnreadableFile  # slow, as they import torch

    return isinstance(error, (*OF_FILES, UnreadableFile, RefusedContents))


def is_users_error(error: BaseException) -> bool:
    """Return whether `error` is about the user's input, for which fairseq often raises a plain Exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if type(error) is Exception or isinstance(error, (*OF_VALUES, OmegaConfBaseException, HydraException)):
        return True
    if is_of_a_file(error) or isinstance(error, MemoryError) or OF_MEMORY.search(str(error)):
        return True
    return isinstance(error, OF_LIBRARIES) and _is_raised_by_a_library(error)


def _is_raised_by_a_library(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return False
    folder = f"{os.path.dirname(frames[-1].filename)}{os.sep}"
    return frames[-1].name == "load_state_dict" or any(f"{os.sep}{source}{os.sep}" in folder for source in SOURCES)


def describe(error: BaseException) -> str:
    """Put the error and its first cause in one line of at most LONGEST characters."""
    text, cause = str(error), error.__cause__ or error.__context__
    if not text or not (isinstance(error, IN_WORDS) or type(error) is Exception):
        text = f"{type(error).__name__}: {text}"
    if type(error) is Exception and cause is not None:
        text = f"{text} ({cause})"
    return textwrap.shorten(text, LONGEST)


def in_one_line(program: str, error: BaseException) -> Optional[str]:
    """Return one line about a user's error; None for other errors, and with FAIRSEQ_MEGA_TRACEBACK=1."""
    if os.environ.get("FAIRSEQ_MEGA_TRACEBACK", "0") != "0" or not is_users_error(error):
        return None
    return f"{program}: error: {describe(error)} (traceback: FAIRSEQ_MEGA_TRACEBACK=1)"
