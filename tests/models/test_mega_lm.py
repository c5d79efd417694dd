"""MEGA's language model: checkpoints and limits of its biases."""

import pytest
import torch

from tests.support.tiny_lm import build, tokens
from tests.support.tiny_mega import lively


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
    """Among the tensors, from which it is removed."""
    given = build().state_dict()
    given["decoder.dictionary_fingerprint"] = torch.tensor([7])
    build().load_state_dict(given)


def test_positions_are_limited_only_by_a_simple_bias_without_chunks():
    assert build(rel_pos_bias="simple", decoder_chunk_size=-1).max_positions() == 64
    assert build(decoder_chunk_size=-1).max_positions() > 10**8
    assert build(rel_pos_bias="simple").max_positions() > 10**8
