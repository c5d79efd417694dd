"""Scores of a language model by fairseq-eval-lm."""

import re
from pathlib import Path
from typing import List, Tuple

from tests.support.helpers import run_fairseq


def evaluate(data: Path, checkpoint: Path, device_flags: List[str], *options: object) -> Tuple[float, int, int]:
    """Loss in bits per token, number of scored tokens and of segments of the test split."""
    output = run_fairseq(
        "eval-lm",
        [
            data,
            "--task",
            "mega_language_modeling",
            "--path",
            checkpoint,
            "--no-progress-bar",
            *device_flags,
            "--gen-subset",
            "test",
            *options,
        ],
    )
    scored = re.search(r"scored ([\d,]+) of ([\d,]+) tokens, each once, in (\d+) segments?\b", output)
    assert scored is not None and scored.group(1) == scored.group(2)
    loss = re.search(r"Loss \(base 2\): ([\d.]+)", output)
    assert loss is not None
    return float(loss.group(1)), int(scored.group(1).replace(",", "")), int(scored.group(3))
