"""The sizes of MEGALODON on paper: the weights of the formula are those of the model, and recomputation saves."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_mega.convert.building import stand_in
from fairseq_mega.lab.report.documents import sizes
from fairseq_mega.models.megalodon_lm import complete_megalodon
from fairseq_mega.models.presets import preset


@pytest.mark.parametrize("size", sizes.SIZES)
def test_operations_are_those_of_the_matrices(size: str) -> None:
    """Two for each weight of a layer's matrices and of the output, three times; the rest is the chunk's attention."""
    options = preset(f"megalodon_lm_{size}")
    with torch.device("meta"):
        model = MODEL_REGISTRY["megalodon_lm"].build_decoder(Namespace(**options), stand_in(1000))
    weights = sum(
        parameter.numel()
        for name, parameter in model.layers.named_parameters()
        if name.endswith("_proj.weight") and parameter.dim() == 2
    )
    cfg = complete_megalodon(Namespace(**options))
    assert cfg.decoder_layers * sizes.matrices(cfg) == weights
    attention = cfg.decoder_layers * cfg.decoder_chunk_size * (cfg.decoder_z_dim + cfg.decoder_hidden_dim)
    expected = 6 * (weights + 1000 * cfg.decoder_embed_dim) + 3 * attention
    assert sizes.operations(cfg, 1000) == pytest.approx(expected, rel=1e-12)


def test_table() -> None:
    """Rows grow with the model; recomputation keeps less than half."""
    rows = [sizes.row(size, symbols) for size, symbols in sizes.SIZES.items()]
    assert [row[0] for row in rows] == list(sizes.SIZES) and {len(row) for row in rows} == {len(sizes.COLUMNS)}
    assert rows[1][1] == "220,627,968" and rows[4][1] == "7,385,817,088"
    for row in rows:
        kept, less = (float(cell.split()[0].replace(",", "")) for cell in row[3:5])
        assert 0 < less < kept / 2
        assert float(row[5]) * 1e9 * float(row[6].replace(",", "")) == pytest.approx(sizes.DEVICE, rel=0.1)
