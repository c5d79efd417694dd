"""The Transformer classifiers: sizes like MEGA's, torch's own layer as reference, positions."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.models.presets import preset_names
from fairseq_mega.modules.classifier_inputs import sinusoids
from fairseq_mega.modules.errors import FieldError
from tests.support.layers import run
from tests.support.tiny_classifier import build, padded, parameters, texts
from tests.support.tiny_mega import lively

MATCHED = [name for name in preset_names("transformer_lra") if "matched" in name or name.endswith("pf128")]


def size(table, d, ffn, layers, head, classes, documents=1):
    """Parameters: the input's table or line; attention, FFN and two norms a layer; the final norm; the head."""
    layer = 4 * d * (d + 1) + (2 * d * ffn + ffn + d) + 4 * d
    return table + layers * layer + 2 * d + head * (documents * d + 1) + head * classes


PUBLISHED = {  # the published shapes with a dictionary of 24 tokens; the layers of ListOps are one
    "transformer_lra_listop": size(24 * 512, 512, 2048, 1, 2048, 10),
    "transformer_lra_imdb": size(24 * 256, 256, 1024, 4, 1024, 2),
    "transformer_lra_aan": size(24 * 128, 128, 512, 4, 512, 2, documents=2),
    "transformer_lra_cifar10": size(2 * 64, 64, 128, 1, 128, 10),
    "transformer_lra_pf32": size(2 * 128, 128, 128, 1, 256, 2),
}


@pytest.mark.parametrize("arch", PUBLISHED)
def test_published_shapes(arch):
    values = Namespace()
    ARCH_CONFIG_REGISTRY[arch](values)
    with torch.device("meta"):
        model = build(arch, values.input_type, 2 if arch.endswith("aan") else 1)
    assert parameters(model) == PUBLISHED[arch]
    shared = {id(layer) for layer in model.encoder.layers}
    assert len(shared) == (1 if arch.endswith("listop") else len(model.encoder.layers))


def test_sinusoids():
    """Position 0 is sines of 0 and cosines of 0; a shift turns each pair by the same angle everywhere."""
    rows = sinusoids(50, 8)
    assert rows.shape == (50, 8) and rows[0].tolist() == [0.0] * 4 + [1.0] * 4
    pairs = torch.complex(rows[:, 4:], rows[:, :4])
    torch.testing.assert_close(pairs[1:] / pairs[:-1], pairs[1:2].expand(49, 4))
    torch.testing.assert_close(pairs[1].angle(), 10000.0 ** (-torch.arange(4) / 4))
    with pytest.raises(FieldError, match="odd"):
        sinusoids(3, 5)


@pytest.mark.parametrize("arch", MATCHED)
def test_sizes_are_like_megas(arch):
    values = Namespace()
    ARCH_CONFIG_REGISTRY[arch](values)
    documents = 2 if arch.endswith("aan") else 1
    with torch.device("meta"):
        transformer, mega = (
            build(name, values.input_type, documents)
            for name in (arch, arch.replace("transformer", "mega").replace("_matched", ""))
        )
    size = parameters(transformer)
    if arch.endswith("pf128"):  # 16,384 learned positions are more than all of MEGA
        size -= transformer.encoder.embedding.positions.numel()
    assert 0.89 < size / parameters(mega) < 1.11
    assert len(transformer.encoder.layers) == len(mega.encoder.layers)
    assert str(transformer.head) == str(mega.head) and transformer.longest == mega.longest


@pytest.mark.parametrize("normalize_before", [False, True])
def test_layers_equal_torchs(normalize_before):
    model = lively(build("transformer_lra", normalize_before=normalize_before, activation_fn="gelu"))
    rows = padded(texts((7, 4)))
    mask = rows.eq(1)
    x = model.encoder.embedding(rows, mask)
    for layer in model.encoder.layers:
        theirs = torch.nn.TransformerEncoderLayer(
            8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=normalize_before, dtype=torch.float64
        )
        for mine, other in (
            (layer.input_proj.weight, theirs.self_attn.in_proj_weight),
            (layer.input_proj.bias, theirs.self_attn.in_proj_bias),
            *(
                (getattr(mine, name), getattr(other, name))
                for mine, other in (
                    (layer.output_proj, theirs.self_attn.out_proj),
                    (layer.fc1, theirs.linear1),
                    (layer.fc2, theirs.linear2),
                    (layer.attention_norm, theirs.norm1),
                    (layer.feed_forward_norm, theirs.norm2),
                )
                for name in ("weight", "bias")
            ),
        ):
            other.data.copy_(mine.data)
        want, got = theirs(x, src_key_padding_mask=mask), run(layer, x, padding_mask=mask).hidden
        torch.testing.assert_close(got[~mask], want[~mask], atol=1e-10, rtol=0)
        spoilt = run(layer, x.masked_fill(mask.unsqueeze(-1), float("nan")), padding_mask=mask).hidden
        torch.testing.assert_close(spoilt[~mask], got[~mask])
        x = got


def test_positions_are_seen_and_limited():
    model = lively(build("transformer_lra", "image", max_positions=12))
    numbers = torch.randn(2, 12, dtype=torch.float64)
    assert not torch.allclose(model(numbers), model(numbers.flip(1)))
    with torch.no_grad():
        model.encoder.embedding.positions.zero_()
    torch.testing.assert_close(model(numbers), model(numbers.flip(1)))
    with pytest.raises(ValueError, match=r"13 positions is longer than the 12 that have a vector \(--max-positions\)"):
        model(torch.randn(1, 13, dtype=torch.float64))
