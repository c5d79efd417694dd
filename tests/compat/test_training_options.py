"""Options of an optimizer whose state comes from a checkpoint."""

from typing import Any, Dict, Optional

import pytest
import torch
from fairseq.optim import FairseqOptimizer

import fairseq_mega  # noqa: F401


@pytest.mark.parametrize(
    ("overrides", "change", "told"),
    [
        (None, {"weight_decay": 0.5}, "weight_decay"),
        (None, {"betas": (0.5, 0.6)}, "betas"),
        ({"weight_decay": 0.5}, {"weight_decay": 0.5}, None),
        (None, {"lr": 0.5}, None),
        (None, {}, None),
    ],
)
def test_options_of_a_checkpoints_optimizer(
    overrides: Any, change: Dict[str, Any], told: Optional[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Tell which are kept, as fairseq replaces the given ones by them."""
    usual = {"lr": 0.1, "betas": (0.9, 0.98), "weight_decay": 0.0}
    saved, now = (
        torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], **options) for options in (usual, {**usual, **change})
    )
    optimizer = FairseqOptimizer(None)
    optimizer._optimizer = now
    with caplog.at_level("WARNING", "fairseq_mega.compat.features.training_options"):
        optimizer.load_state_dict(saved.state_dict(), overrides)
    assert len(caplog.records) == (told is not None) and (told or "") in caplog.text
