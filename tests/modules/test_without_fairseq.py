"""The modules in a plain PyTorch loop: fairseq is not imported, and registers all the same where it comes later."""

import os
import subprocess
import sys

import pytest

from tests.support import grids
from tests.support.helpers import REPOSITORY

STACK = "{'fairseq', 'fairseq_cli', 'hydra', 'omegaconf'}"
NO_FAIRSEQ = f"found = {STACK} & {{name.split('.')[0] for name in sys.modules}}; assert not found, found"
REGISTERED = """
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.criterions import CRITERION_REGISTRY
assert {"mega", "mega_lm", "mega_lra"} <= set(MODEL_REGISTRY) and "mega_tiny" in ARCH_MODEL_REGISTRY
assert "mega_language_modeling" in TASK_REGISTRY and "linear_decay" in LR_SCHEDULER_REGISTRY
assert "lra_cross_entropy" in CRITERION_REGISTRY
assert not [finder for finder in sys.meta_path if getattr(finder, "name", "") == "fairseq"]
"""


def run(program: str, *arguments: str) -> str:
    folders = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]  # the user's may hold fairseq
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONWARNINGS": "ignore"}
    environment.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0")
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_trains_without_fairseq() -> None:
    program = "import sys, runpy\nsys.argv[0] = sys.argv.pop(1)\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    printed = run(program + NO_FAIRSEQ, "examples/plain_pytorch/train.py", "--smoke")
    first, *_, last = (float(line.split()[-1]) for line in printed.splitlines() if line.startswith("step"))
    assert last < 0.7 * first, printed


@pytest.mark.parametrize(
    "imports",
    grids.mostly_exhaustive(
        [
            "import fairseq, fairseq_mega",
            "from fairseq_mega.data import sized",
            "import fairseq_mega, fairseq",
            "from fairseq_mega.models.mega_lm import MegaLanguageModel",
        ],
        kept=2,
    ),
)
def test_registration_comes_with_fairseq(imports: str) -> None:
    """Whatever is imported first, all is registered once, and quietly."""
    assert run(f"import sys\n{imports}\n{REGISTERED}") == ""
