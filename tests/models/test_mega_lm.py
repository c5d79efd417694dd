"""The language model: counts, streams in pieces of any lengths, checkpoints, options."""

from argparse import Namespace
from typing import Any, Dict

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_mega.models.carry import Carry
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.presets import preset_names
from tests.support.tiny_lm import ADAPTIVE, Recomputing, advance, build, log_probs, task, tokens
from tests.support.tiny_mega import EOS, PAD, dictionary, lively

SOFTMAXES: Dict[str, Dict[str, Any]] = {
    "plain": {},
    "untied": {"share_decoder_input_output_embed": False},
    "adaptive": ADAPTIVE,
}


@pytest.fixture(scope="module", params=SOFTMAXES)
def model(request):
    return lively(build(**SOFTMAXES[request.param]))


@pytest.mark.parametrize(
    "arch, symbols, count", [("mega_lm_adaptive_big", 267740, 252_237_824), ("mega_lm_enwik8_base", 204, 39_137_792)]
)
def test_parameter_counts_of_the_paper(arch, symbols, count):
    """MEGA, Table 9: 252M and 39M; the dictionary adds four symbols."""
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build(arch=arch, symbols=symbols).parameters()) == count


@pytest.mark.parametrize("arch", ["mega_lm", *preset_names("mega_lm")])
def test_every_architecture_is_built_from_its_defaults(arch):
    options = Namespace(decoder_layers=1, adaptive_softmax_cutoff="6,13")
    if arch in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[arch](options)
    if not getattr(options, "adaptive_input", False):
        options.adaptive_softmax_cutoff = None
    assert MegaLanguageModel.build_model(options, task()).max_positions() > 0


@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 11, 20, 23])
def test_whole_equals_chunks_equals_tokens(model, length):
    read = tokens(2, length)
    whole = log_probs(model, read)
    by_token = advance(model, read.split(1, dim=1))
    torch.testing.assert_close(by_token, whole, atol=2e-6, rtol=0)
    by_chunk = advance(model, read.split(5, dim=1))
    ends = torch.tensor([min(end, length) - 1 for end in range(5, length + 5, 5)])
    torch.testing.assert_close(by_chunk, whole[:, ends], atol=2e-6, rtol=0)


@pytest.mark.parametrize("pieces", [(11, 12), (3, 8, 12), (1, 9, 13), (5, 5, 13), (22, 1)])
def test_pieces_may_cross_chunk_ends(model, pieces):
    read = tokens(2, 23)
    ends = torch.tensor(pieces).cumsum(0) - 1
    torch.testing.assert_close(
        advance(model, read.split(pieces, dim=1)), log_probs(model, read)[:, ends], atol=2e-6, rtol=0
    )


def test_future_and_padding_change_nothing(model):
    read = tokens(2, 17)
    changed = read.clone()
    changed[:, 12] = (changed[:, 12] - 1).clamp(min=2) + (changed[:, 12] == 2).long()
    before, after = log_probs(model, read), log_probs(model, changed)
    torch.testing.assert_close(before[:, :12], after[:, :12], atol=1e-7, rtol=0)
    assert (before[:, 12:] - after[:, 12:]).abs().amax(dim=-1).min() > 1e-6  # chunk ends do not stop the EMA
    padded = torch.cat([read, torch.full((2, 6), PAD)], dim=1)
    torch.testing.assert_close(log_probs(model, padded)[:, :17], before, atol=2e-6, rtol=0)
    torch.testing.assert_close(log_probs(model, read.flip(0)), before.flip(0), atol=2e-6, rtol=0)


@pytest.mark.parametrize("group", [1, 4, 5, 15, 40])
def test_carried_streams(model, group):
    """Three streams of different lengths side by side, the shorter ones dropping out, give the whole's results."""
    read, lengths = tokens(3, 33), (33, 20, 9)
    whole = log_probs(model, read)
    carry = Carry()
    for begin in range(0, 33, group):
        streams = [row for row in (1, 0, 2) if lengths[row] > begin]
        piece = read[streams, begin : begin + group].clone()
        for row, stream in enumerate(streams):
            piece[row, lengths[stream] - begin :] = PAD
        out = model(piece, carry=carry, streams=streams, position=begin)
        found = model.get_normalized_probs(out, log_probs=True).float()
        for row, stream in enumerate(streams):
            end = min(lengths[stream], begin + group)
            torch.testing.assert_close(found[row, : end - begin], whole[stream, begin:end], atol=2e-6, rtol=0)


def test_streams_out_of_order_are_refused(model):
    carry = Carry()
    model(tokens(2, 5), carry=carry, streams=[0, 1], position=0)
    with pytest.raises(ValueError, match=r"streams \[0, 2\] are to go on at token 5, but streams \[0, 1\]"):
        model(tokens(2, 5), carry=carry, streams=[0, 2], position=5)
    with pytest.raises(ValueError, match="go on at token 10.* were read up to 5"):
        model(tokens(2, 5), carry=carry, streams=[0, 1], position=10)
    model(tokens(1, 5), carry=carry, streams=[7], position=0)  # a new stream may begin any time


def test_state_has_constant_size():
    model = lively(build())
    state, sizes = None, []
    for _ in range(23):
        _, state = model.decoder.advance(tokens(1, 1), state)
        sizes.append(sum(len(part.attention.keys) for part in state.cache))
    assert sizes == [2 * ((step + 1) % 5) for step in range(23)]


@pytest.mark.parametrize(
    "prompt", [[[4, 5, 6], [7, 8, PAD]], [[4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, PAD, PAD, PAD, PAD]]]
)
def test_beam_search_equals_recomputation(model, prompt):
    model = model.float()
    prompt = torch.tensor(prompt)
    results = []
    for candidate in (model, Recomputing(model)):
        incremental = candidate is model
        generator = SequenceGenerator([candidate], dictionary(), beam_size=4, max_len_a=1, max_len_b=9, min_len=2)
        assert generator.model.has_incremental_states() == incremental
        sample = {"net_input": {"src_tokens": prompt, "src_lengths": prompt.ne(PAD).sum(1)}}
        results.append(generator.generate([candidate], sample, prefix_tokens=prompt, bos_token=EOS))
    model.double()
    for row in (0, 1):
        for found, expected in zip(results[0][row], results[1][row]):
            assert found["tokens"].tolist() == expected["tokens"].tolist()
            torch.testing.assert_close(found["positional_scores"], expected["positional_scores"], atol=1e-4, rtol=0)
        start = prompt[row][prompt[row] != PAD].tolist()
        assert results[0][row][0]["tokens"].tolist()[: len(start)] == start


def test_recomputed_layers_give_the_same_gradients():
    read, gradients = tokens(2, 23), []
    for recompute in (False, True):
        model = lively(build(checkpoint_activations=recompute)).train()
        log_probs(model, read).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=f"gradient of {name}")


def test_half_precision_and_autocast():
    for options in SOFTMAXES.values():
        model = build(**options)
        read = tokens(2, 12)
        exact = log_probs(model.eval(), read)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = log_probs(model, read)
        assert cast.isfinite().all() and (cast.float() - exact).abs().max() < 0.1


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
    """Among the tensors; it is compared before they are loaded, see compat.names."""
    given = build().state_dict()
    given["decoder.dictionary_fingerprint"] = torch.tensor([7])
    build().load_state_dict(given)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"adaptive_softmax_cutoff": "13,6", "share_decoder_input_output_embed": False}, "13,6: rising numbers"),
        ({"adaptive_softmax_cutoff": "6,x", "share_decoder_input_output_embed": False}, "6,x: rising numbers"),
        ({"adaptive_softmax_cutoff": "6,24", "share_decoder_input_output_embed": False}, "only 24 symbols"),
        ({"adaptive_softmax_cutoff": "6,13"}, "--share-decoder-input-output-embed shares one plain table"),
        ({"tie_adaptive_weights": True}, "--tie-adaptive-weights ties"),
        ({**ADAPTIVE, "tie_adaptive_weights": False}, "--tie-adaptive-proj needs"),
        ({**ADAPTIVE, "adaptive_input_factor": 4.0}, "--adaptive-input-factor is 4.0"),
        ({"adaptive_input": True, "share_decoder_input_output_embed": False}, "needs --adaptive-input-cutoff"),
        ({"decoder_input_dim": 4}, "--decoder-input-dim 4: --share-decoder-input-output-embed needs a table as wide"),
        ({"normalize_before": False}, "--no-affine-final-norm: only --normalize-before"),
        ({"decoder_layers": 0}, "--decoder-layers 0"),
        ({"decoder_chunk_size": 0}, "--decoder-chunk-size 0"),
        ({"normalize_embedding": True}, "--normalize-embedding is for post-norm"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_positions_are_limited_only_by_a_simple_bias_without_chunks():
    assert build(rel_pos_bias="simple", decoder_chunk_size=-1).max_positions() == 64
    assert build(decoder_chunk_size=-1).max_positions() > 10**8
    assert build(rel_pos_bias="simple").max_positions() > 10**8
