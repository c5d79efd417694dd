"""Importing fairseq and the plugin: silent, explained where it fails, and no logging left behind."""

import os
import subprocess
import sys

from tests.support import helpers

IMPORT = """
import logging, os, sys, warnings
shown = []
warnings.showwarning = lambda message, category, filename, *more: shown.append((filename, str(message)))
warnings.simplefilter("always")
import fairseq_mega
ours = os.path.dirname(os.path.abspath(fairseq_mega.__file__)) + os.sep
found = [(file, text) for file, text in shown if os.path.abspath(file).startswith(ours) or "fairseq_mega" in text]
assert not found, found  # torch and hydra have theirs
root = logging.getLogger()
assert (root.handlers, root.level) == ([], 30)
import fairseq_mega.models.mega  # and fairseq
slow = {"sklearn", "scipy.stats"}  # for statistics of fairseq's other tasks
assert not slow & set(sys.modules), slow & set(sys.modules)
"""


def test_import_is_silent_and_leaves_the_root_logger_alone() -> None:
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
