"""Images as patches with a vector for their places, and the head above them."""

import pytest
import torch

from fairseq_mega.modules.images import ImageHead, PatchEmbedding


def images(count, size):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_patches_are_read_row_by_row():
    torch.manual_seed(0)
    embedding = PatchEmbedding(8, 12, 4)
    x = images(1, 12)
    vectors = embedding(x) - embedding.positions
    weight = embedding.patches.weight.flatten(1)
    assert embedding.patches.bias is not None
    for place, (row, column) in enumerate((row, column) for row in range(3) for column in range(3)):
        patch = x[0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten()
        torch.testing.assert_close(vectors[0, place], weight @ patch + embedding.patches.bias, atol=1e-5, rtol=1e-5)


def test_vectors_of_places_are_drawn_by_the_width():
    assert PatchEmbedding(768, 224, 16).positions.std().item() == pytest.approx(768**-0.5, rel=0.02)


def test_the_head_has_its_layer_before_the_mean():
    torch.manual_seed(0)
    head, x = ImageHead(8, 5).double(), torch.randn(2, 7, 8, dtype=torch.float64)
    torch.nn.init.normal_(head.output.bias)
    hidden = x @ head.hidden.weight.T + head.hidden.bias
    want = (hidden * torch.sigmoid(hidden)).mean(1) @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(head(x), want)
