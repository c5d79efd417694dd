"""The MEGA encoder-decoder: sizes, defaults, padding on the left, checkpoints."""

import pytest
import torch

from fairseq_mega.models.presets import preset_names
from tests.support.tiny_mega import PAD, batch, build, lively


@pytest.mark.parametrize("arch", ["mega", *preset_names("mega")])
def test_every_arch_builds_from_its_defaults(arch):
    model = build(arch=None if arch == "mega" else arch).eval()
    logits, extra = model(batch(), None, batch(seed=2))
    assert logits.shape == (3, 7, 24) and torch.isfinite(logits).all()
    assert extra["attn"][0].shape == (3, 7, 7)


def test_decoder_options_default_to_the_encoders():
    model = build(encoder_chunk_size=4, decoder_z_dim=6)
    decoder = model.decoder.layers[0].attention
    assert decoder.chunk_size == 4 and decoder.widths == (8, 6, 12)


@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
def test_left_padding_changes_nothing(chunk_size, function):
    """A sentence's logits depend neither on the side of the padding nor on its amount."""
    model = lively(build(encoder_chunk_size=chunk_size, attention_activation_fn=function))
    target = batch((6, 6, 6), seed=3)
    want, want_extra = model(batch(), None, target)
    for extra in (0, 1, 6):
        logits, more = model(batch(left=True, extra=extra), None, target)
        torch.testing.assert_close(logits, want, msg=f"{extra} columns more")
        for row, length in enumerate((7, 3, 5)):  # weights stay with the columns they belong to
            torch.testing.assert_close(more["attn"][0][row, :, -length:], want_extra["attn"][0][row, :, :length])


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_published_source_padding_keeps_published_positions(chunk_size):
    """The encoder is still invariant with the switch; only the cross attention's bias depends on padded positions."""
    model = lively(build(encoder_chunk_size=chunk_size, published_source_padding=True))
    right, left = batch(), batch(left=True)
    a, b = model.encoder(right), model.encoder(left)
    for row, length in enumerate((7, 3, 5)):
        torch.testing.assert_close(a["encoder_out"][0][:length, row], b["encoder_out"][0][-length:, row])
    assert b["source_order"] == [] and b["encoder_padding_mask"][0].equal(left.eq(PAD))
    target = batch((6, 6, 6), seed=3)
    with_right, with_left = model(right, None, target)[0], model(left, None, target)[0]
    torch.testing.assert_close(with_right[0], with_left[0])
    assert (with_right[1] - with_left[1]).abs().max() > 1e-6
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.cross_attention.relative_bias.weight)
    torch.testing.assert_close(model(right, None, target)[0], model(left, None, target)[0])


def test_embeddings_are_shared_as_requested():
    none, output, everything = (
        build(),
        build(share_decoder_input_output_embed=True),
        build(share_all_embeddings=True),
    )
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in (none, output, everything)]
    assert sizes[0] - sizes[1] == sizes[1] - sizes[2] == 24 * 8
    assert everything.encoder.embedding.tokens is everything.decoder.embedding.tokens
    assert everything.encoder.embedding.tokens.weight[PAD].eq(0).all()


def test_sequences_beyond_the_bias_name_the_option():
    model = build(max_source_positions=6, max_target_positions=6)
    for source, target in ((7, 3), (3, 7)):
        option = "source" if source == 7 else "target"
        with pytest.raises(ValueError, match=f"7 positions is longer than the 6 .*--max-{option}-positions"):
            model(batch((source,) * 3), None, batch((target,) * 3))
