"""examples/megalodon/norms.py: the sizes of hidden states, against a layer taken apart by hand."""

import runpy

import pytest
import torch

from tests.support import tiny_megalodon
from tests.support.helpers import REPOSITORY


@pytest.mark.parametrize("hops", [1, 2])
def test_sizes_are_those_of_the_sub_layers(hops: int) -> None:
    program = runpy.run_path(str(REPOSITORY / "examples" / "megalodon" / "norms.py"))
    (layer, *_) = tiny_megalodon.build(residual_hops=hops).eval().decoder.layers
    sizes = program["Sizes"](layer)
    pieces = [torch.randn(2, 5, 8), torch.randn(1, 3, 8)]
    with torch.no_grad():
        out = torch.cat([layer(piece).hidden.flatten(0, 1) for piece in pieces])
        found = sizes.means()
        attended = torch.cat([layer.attention(piece).hidden.flatten(0, 1) for piece in pieces])
    x = torch.cat([piece.flatten(0, 1) for piece in pieces])
    expected = [part.square().mean().sqrt() for part in (x, attended - x, out - (attended if hops == 1 else x))]
    cosine = torch.nn.functional.cosine_similarity(x, out, dim=-1).mean()
    torch.testing.assert_close(torch.tensor(found), torch.stack([*expected, cosine]), atol=1e-6, rtol=1e-5)
