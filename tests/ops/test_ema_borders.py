"""Borders of documents at the first, the second and the last step, where a scan's loops begin and end."""

import pytest
import torch

from tests.ops.ema_cases import BATCH, case, compare

PLACES = ((0,), (1,), (-1,), (0, 1), (-2, -1), (0, 1, 32, -1))


@pytest.mark.parametrize("mode", ["documents", "two-way documents", "shifted documents"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_borders(kernel_device, kind, mode):
    for places in PLACES:
        tensors, options = case(mode, 34, kind)
        mask = torch.zeros(BATCH, 34, dtype=torch.bool)
        mask[0, list(places)] = True  # the other sequence is one document
        compare(tensors, torch.float32, "native", kernel_device, **{**options, "reset_mask": mask})
