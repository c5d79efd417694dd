"""Layout of the texts of a padded batch in one row."""

from typing import Optional, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.dropout import Dropout, StochasticDepth
from fairseq_mega.modules.norm import NORMS, build_norm
from fairseq_mega.modules.packing import Packing, depends_on_rows, packing_of

CHUNK = 4
BATCHES = [(1, 9), (CHUNK - 1, CHUNK, CHUNK + 1, 13), (0, 12, 3), (1, 1, 1, 40), (2 * CHUNK, 17)]


def mask_of(lengths: Tuple[int, ...], inside: Optional[Tuple[int, int]] = None) -> Tensor:
    mask = torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1)
    if inside is not None:
        mask[inside] = True
    return mask


def packed(mask: Tensor, chunk_size: int) -> Packing:
    packing = packing_of(mask, chunk_size)
    assert packing is not None
    return packing


@pytest.mark.parametrize("chunk_size", [-1, CHUNK])
@pytest.mark.parametrize("lengths", BATCHES)
def test_a_row_holds_every_step_once(lengths: Tuple[int, ...], chunk_size: int) -> None:
    mask = mask_of(lengths)
    packing = packed(mask, chunk_size)
    steps = torch.arange(1, mask.numel() + 1).view_as(mask)
    row = packing.lay(steps, fill=0)
    assert torch.equal(row[row > 0], steps[~mask])
    assert torch.equal(packing.spread(row), steps.masked_fill(mask, 0))
    if packing.padding_mask is None:
        assert not (row == 0).any()
    else:
        assert torch.equal(packing.padding_mask, row == 0)
    places = torch.arange(mask.size(1)).expand_as(mask)
    assert torch.equal(packing.positions[row > 0], places[~mask])
    begins = packing.texts.begins.nonzero()[:, 1]
    assert len(begins) == sum(length > 0 for length in lengths)
    assert chunk_size < 0 or not (begins % chunk_size).any()


@pytest.mark.parametrize(
    ("mask", "chunk_size"),
    [
        (None, -1),
        (mask_of((9, 9)), -1),
        (mask_of((9, 8)), -1),  # less than a tenth is padding
        (mask_of((9, 1)), 8),  # in whole chunks as long as before
        (torch.ones(2, 5, dtype=torch.bool), -1),
    ],
)
def test_batches_with_little_to_lose_stay(mask: Optional[Tensor], chunk_size: int) -> None:
    assert packing_of(mask, chunk_size) is None


def test_modules_that_need_rows() -> None:
    for kind in NORMS:
        assert (depends_on_rows(build_norm(kind, 4)) is not None) == ("batch" in kind), kind
    assert depends_on_rows(Dropout(0.1)) is None
    assert depends_on_rows(Dropout(0.0, feature=True)) is None
    assert depends_on_rows(Dropout(0.1, feature=True)) is not None
    assert depends_on_rows(StochasticDepth(0.1)) is not None and depends_on_rows(StochasticDepth(0.0)) is None
