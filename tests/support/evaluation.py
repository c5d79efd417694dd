"""Scores of a language model by fairseq-eval-lm."""

import re
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import fairseq_cli.eval_lm
import pytest

from tests.support.helpers import run_fairseq


def evaluate(data: Path, checkpoint: Path, device_flags: List[str], *options: object) -> Tuple[float, int, int]:
    """Loss in bits per token, number of scored tokens and of segments of the test split."""
    given = [data, "--task", "mega_language_modeling", "--path", checkpoint, "--no-progress-bar", *device_flags]
    output = run_fairseq("eval-lm", [*given, "--gen-subset", "test", *options])
    scored = re.search(r"scored ([\d,]+) of ([\d,]+) tokens, each once, in (\d+) segments?\b", output)
    assert scored is not None and scored.group(1) == scored.group(2)
    loss = re.search(r"Loss \(base 2\): ([\d.]+)", output)
    assert loss is not None
    return float(loss.group(1)), int(scored.group(1).replace(",", "")), int(scored.group(3))


def exact_bits(arguments: Sequence[object]) -> float:
    """Return the bits per token that fairseq-eval-lm finds, with all digits."""
    found: List[Any] = []
    score = fairseq_cli.eval_lm.eval_lm

    def kept(*given: Any, **options: Any) -> Any:
        found.append(score(*given, **options))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fairseq_cli.eval_lm, "eval_lm", kept)
        run_fairseq("eval-lm", [*arguments, "--no-progress-bar"])
    return float(found[0]["loss"])
