"""Layout of the texts of a padded batch in one row."""

from typing import List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.dropout import Dropout, StochasticDepth
from fairseq_mega.modules.norm import NORMS, build_norm
from fairseq_mega.modules.packing import RATIO, PackedTexts, Packing, depends_on_rows, packing_of
from fairseq_mega.ops.common.parts import alike

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


def test_padding_within_a_text_stays() -> None:
    mask = mask_of((3, 12), inside=(1, 5))
    packing = packed(mask, -1)
    assert packing.padding_mask is not None
    assert packing.padding_mask.nonzero().tolist() == [[0, 3 + 5]]


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


def test_texts_within_one_chunk_are_laid_without_gaps() -> None:
    assert packed(mask_of((5, 8)), 8).padding_mask is None


@pytest.mark.parametrize("least", [1, 3])
def test_texts_of_similar_length_share_a_call(least: int) -> None:
    lengths = torch.tensor([100, 7, 95, 50, 7, 90, 86, 1, 49])
    groups: List[Tensor] = alike(lengths, RATIO, least)
    assert torch.equal(torch.cat(groups).sort().values, torch.arange(len(lengths)))
    for group in groups:
        found = lengths[group]
        assert found[0] == found.max()
        assert len(group) <= least or found[0] <= RATIO * found[least:].min()
    assert all(len(group) >= least for group in groups[:-1])
    assert len(groups) == {1: 5, 3: 3}[least]


def test_totals_are_those_of_each_text() -> None:
    texts = PackedTexts(torch.tensor([[True, False, True, False, False]]), aligned=False)
    x = torch.tensor([[[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0]]])
    assert texts.totals(x)[0, :, 1].tolist() == [30.0, 30.0, 280.0, 280.0, 280.0]


def test_modules_that_need_rows() -> None:
    for kind in NORMS:
        assert (depends_on_rows(build_norm(kind, 4)) is not None) == ("batch" in kind), kind
    assert depends_on_rows(Dropout(0.1)) is None
    assert depends_on_rows(Dropout(0.0, feature=True)) is None
    assert depends_on_rows(Dropout(0.1, feature=True)) is not None
    assert depends_on_rows(StochasticDepth(0.1)) is not None and depends_on_rows(StochasticDepth(0.0)) is None
