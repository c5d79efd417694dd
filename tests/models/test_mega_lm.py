"""MEGA's language model: counts, checkpoints, options."""

import pytest
import torch

from tests.support.tiny_lm import ADAPTIVE, build, tokens
from tests.support.tiny_mega import lively


@pytest.mark.parametrize(
    "arch, symbols, count", [("mega_lm_adaptive_big", 267740, 252_237_824), ("mega_lm_enwik8_base", 204, 39_137_792)]
)
def test_parameter_counts_of_the_paper(arch, symbols, count):
    """MEGA, Table 9: 252M and 39M; the dictionary adds four symbols."""
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build(arch=arch, symbols=symbols).parameters()) == count


def test_checkpoints_of_simple_biases():
    """A shorter test chunk takes the middle of the bias, a longer one is refused."""
    trained = lively(build(rel_pos_bias="simple", decoder_chunk_size=6)).float()
    shorter = build(seed=1, rel_pos_bias="simple", decoder_chunk_size=4).eval()
    shorter.load_state_dict(trained.state_dict())
    read = tokens(2, 4)
    torch.testing.assert_close(shorter(read)[0], trained(read)[0])
    longer = build(rel_pos_bias="simple", decoder_chunk_size=7)
    with pytest.raises(ValueError, match="a chunk of 7 is longer than the 6 positions .* --rel-pos-bias rotary"):
        longer.load_state_dict(trained.state_dict())


def test_rotary_biases_take_any_chunk():
    trained = lively(build())
    longer = build(decoder_chunk_size=50).double().eval()
    longer.load_state_dict(trained.state_dict())
    read = tokens(1, 5)
    torch.testing.assert_close(longer(read)[0], trained(read)[0])
    assert longer(tokens(1, 40))[0].isfinite().all()


def test_an_old_checkpoint_may_hold_a_fingerprint_of_its_dictionary():
    """Among the tensors; it is compared before they are loaded, see compat.files.card."""
    given = build().state_dict()
    given["decoder.dictionary_fingerprint"] = torch.tensor([7])
    build().load_state_dict(given)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"adaptive_softmax_cutoff": "13,6", "share_decoder_input_output_embed": False},
            "13,6: give increasing numbers",
        ),
        ({"adaptive_softmax_cutoff": "6,x", "share_decoder_input_output_embed": False}, "6,x: give increasing numbers"),
        ({"adaptive_softmax_cutoff": "6,24", "share_decoder_input_output_embed": False}, "only 24 symbols"),
        ({"adaptive_softmax_cutoff": "6,13"}, "--share-decoder-input-output-embed shares one plain table"),
        ({"tie_adaptive_weights": True}, "--tie-adaptive-weights requires"),
        ({**ADAPTIVE, "tie_adaptive_weights": False}, "--tie-adaptive-proj requires"),
        ({**ADAPTIVE, "adaptive_input_factor": 4.0}, "--adaptive-input-factor is 4.0"),
        ({"adaptive_input": True, "share_decoder_input_output_embed": False}, "requires --adaptive-input-cutoff"),
        ({"decoder_input_dim": 4}, "--decoder-input-dim 4 .* --share-decoder-input-output-embed requires equal widths"),
        ({"normalize_before": False}, "--no-affine-final-norm requires --normalize-before"),
        ({"decoder_layers": 0}, "--decoder-layers 0"),
        ({"decoder_chunk_size": 0}, "--decoder-chunk-size 0"),
        ({"normalize_embedding": True}, "--normalize-embedding requires a post-norm"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_positions_are_limited_only_by_a_simple_bias_without_chunks():
    assert build(rel_pos_bias="simple", decoder_chunk_size=-1).max_positions() == 64
    assert build(decoder_chunk_size=-1).max_positions() > 10**8
    assert build(rel_pos_bias="simple").max_positions() > 10**8
