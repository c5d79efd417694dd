"""Importing fairseq and the plugin: silent, explained where it fails, and no logging left behind."""

import os
import subprocess
import sys

import pytest

from tests.support import helpers

IMPORT = """
import logging, os, warnings
shown = []
warnings.showwarning = lambda message, category, filename, *more: shown.append((filename, str(message)))
warnings.simplefilter("always")
import fairseq_mega
ours = os.path.dirname(os.path.abspath(fairseq_mega.__file__)) + os.sep
found = [(file, text) for file, text in shown if os.path.abspath(file).startswith(ours) or "fairseq_mega" in text]
assert not found, found  # torch and hydra have theirs
root = logging.getLogger()
assert (root.handlers, root.level) == ([], 30)
"""


def test_import_is_silent_and_leaves_the_root_logger_alone() -> None:
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_statistics_of_other_tasks_are_imported_when_they_are_computed() -> None:
    code = """
import sys, fairseq_mega
slow = {"sklearn", "scipy.stats"}
assert not slow & set(sys.modules), slow & set(sys.modules)
import numpy as np
from fairseq.criterions import sentence_prediction as criterion
from fairseq.tasks import audio_classification as task
guesses, labels = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 0, 0, 1])
print(criterion.acc_and_f1(guesses, labels)["f1"], criterion.pearson_and_spearman(guesses, labels)["pearson"])
print(*task.sklearn_metrics.roc_curve(labels, guesses)[1])
"""
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    f1, pearson, *rates = map(float, done.stdout.split())
    assert f1 == pytest.approx(0.8) and pearson == pytest.approx(2 / 3)
    assert rates == [0.0, 1.0, 1.0]
