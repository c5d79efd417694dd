"""The contract of all language models: streams in pieces, causality, padding, rows, search, gradients."""

from argparse import Namespace
from functools import partial
from typing import Any, Dict

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_mega.models.presets import preset_names
from fairseq_mega.models.streams.scoring import Carry
from tests.support import tiny_llama, tiny_lm, tiny_megalodon, tiny_s4d
from tests.support.tiny_lm import ADAPTIVE, Recomputing, advance, log_probs, tokens
from tests.support.tiny_mega import EOS, PAD, dictionary, lively

PLAIN: Dict[str, Any] = {
    "mega": tiny_lm.build,
    "megalodon": tiny_megalodon.build,
    "llama": tiny_llama.build,
    "s4d": tiny_s4d.build,
}
DOCUMENTS = {f"{kind}, documents": partial(PLAIN[kind], reset_at_document_ends=True) for kind in ("mega", "megalodon")}
BUILDERS = {**PLAIN, **DOCUMENTS}
SOFTMAXES: Dict[str, Dict[str, Any]] = {
    "plain": {},
    "untied": {"share_decoder_input_output_embed": False},
    "adaptive": ADAPTIVE,
}
OTHERS: Dict[Any, Dict[str, Any]] = {
    ("megalodon", "plain"): {"scale_embedding": True},
    ("megalodon", "untied"): {"layer_scale": True},
}
CHUNK, LENGTH = 5, 23  # of the tiny models; llama and s4d have no chunks


@pytest.fixture(scope="module", params=BUILDERS)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(
    scope="module",
    params=[*((kind, softmax) for kind in PLAIN for softmax in SOFTMAXES), *((kind, "plain") for kind in DOCUMENTS)],
    ids=str,
)
def model(request: pytest.FixtureRequest) -> Any:
    return lively(build(*request.param))


def build(kind: str, softmax: str = "plain", **options: Any) -> Any:
    return BUILDERS[kind](**SOFTMAXES[softmax], **OTHERS.get((kind, softmax), {}), **options)


@pytest.mark.parametrize("arch", [arch for name in PLAIN for arch in (f"{name}_lm", *preset_names(f"{name}_lm"))])
def test_every_architecture_is_built_from_its_defaults(arch: str) -> None:
    options = Namespace(decoder_layers=1, adaptive_softmax_cutoff="6,13")
    if arch in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[arch](options)
    if not getattr(options, "adaptive_input", False):
        options.adaptive_softmax_cutoff = None
    with torch.device("meta"):
        positions = ARCH_MODEL_REGISTRY[arch].build_model(options, tiny_lm.task()).max_positions()
    assert positions > 10**8 or arch.startswith("mega_")  # whose simple bias may limit them


@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 11, 20, LENGTH])
def test_whole_equals_chunks_equals_tokens(model: Any, length: int) -> None:
    read = tokens(2, length)
    whole = log_probs(model, read)
    by_token = advance(model, read.split(1, dim=1))
    torch.testing.assert_close(by_token, whole, atol=2e-6, rtol=0)
    by_chunk = advance(model, read.split(CHUNK, dim=1))
    ends = torch.tensor([min(end, length) - 1 for end in range(CHUNK, length + CHUNK, CHUNK)])
    torch.testing.assert_close(by_chunk, whole[:, ends], atol=2e-6, rtol=0)


def test_future_padding_and_order_change_nothing(model: Any) -> None:
    read = tokens(2, 17).clamp(min=EOS + 1)
    read[:, 4] = EOS
    changed = read.clone()
    changed[:, 12] = (changed[:, 12] - 1).clamp(min=2) + (changed[:, 12] == 2).long()
    before, after = log_probs(model, read), log_probs(model, changed)
    torch.testing.assert_close(before[:, :12], after[:, :12], atol=1e-7, rtol=0)
    assert (before[:, 12:] - after[:, 12:]).abs().amax(dim=-1).min() > 1e-6  # chunk ends do not stop what is carried
    right = torch.cat([read, torch.full((2, 6), PAD)], dim=1)
    torch.testing.assert_close(log_probs(model, right)[:, :17], before, atol=2e-6, rtol=0)
    left = torch.cat([torch.full((2, 2 * CHUNK), PAD), read], dim=1)
    torch.testing.assert_close(log_probs(model, left)[:, 2 * CHUNK :], before, atol=2e-6, rtol=0)
    torch.testing.assert_close(log_probs(model, read.flip(0)), before.flip(0), atol=2e-6, rtol=0)


@pytest.mark.parametrize("group", [1, 4, 5, 15, 40])
def test_carried_streams(model: Any, group: int) -> None:
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


def test_a_new_stream_in_the_place_of_another_is_read_as_alone(model: Any) -> None:
    carry, first, second = Carry(), tokens(2, 10), tokens(1, 12, seed=5)
    model(first, carry=carry, streams=[0, 1], position=0)
    out = model(second, carry=carry, streams=[7], position=0)
    alone = log_probs(model, second)
    torch.testing.assert_close(model.get_normalized_probs(out, log_probs=True).float(), alone, atol=2e-6, rtol=0)


def test_streams_out_of_order_are_refused(model: Any) -> None:
    carry = Carry()
    model(tokens(2, 5), carry=carry, streams=[0, 1], position=0)
    with pytest.raises(ValueError, match=r"streams \[0, 2\] must continue at token 5, but streams \[0, 1\]"):
        model(tokens(2, 5), carry=carry, streams=[0, 2], position=5)
    with pytest.raises(ValueError, match="continue at token 10.* were read up to token 5"):
        model(tokens(2, 5), carry=carry, streams=[0, 1], position=10)
    model(tokens(1, 5), carry=carry, streams=[7], position=0)  # a new stream may begin any time


@pytest.mark.parametrize(
    "prompt", [[[4, 5, 6], [7, 8, PAD]], [[4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, PAD, PAD, PAD, PAD]]]
)
def test_beam_search_equals_recomputation(model: Any, prompt: Any) -> None:
    model = model.float()
    prompt = torch.tensor(prompt)
    results = []
    for candidate in (model, Recomputing(model)):
        generator = SequenceGenerator([candidate], dictionary(), beam_size=4, max_len_a=1, max_len_b=9, min_len=2)
        assert generator.model.has_incremental_states() == (candidate is model)
        sample = {"net_input": {"src_tokens": prompt, "src_lengths": prompt.ne(PAD).sum(1)}}
        results.append(generator.generate([candidate], sample, prefix_tokens=prompt, bos_token=EOS))
    model.double()
    for row in (0, 1):
        for found, expected in zip(results[0][row], results[1][row]):
            assert found["tokens"].tolist() == expected["tokens"].tolist()
            torch.testing.assert_close(found["positional_scores"], expected["positional_scores"], atol=1e-4, rtol=0)
        start = prompt[row][prompt[row] != PAD].tolist()
        assert results[0][row][0]["tokens"].tolist()[: len(start)] == start


def test_recomputed_layers_give_the_same_gradients(kind: str) -> None:
    """Dropout drops the same elements again, and every parameter learns."""
    read, gradients = tokens(2, LENGTH), []
    for recompute in (False, True):
        model = lively(build(kind, checkpoint_activations=recompute, dropout=0.2, attention_dropout=0.1)).train()
        assert model.decoder.checkpoint_activations == recompute
        torch.manual_seed(3)
        log_probs(model, read).square().mean().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=f"gradient of {name}")
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_bfloat16_and_autocast(kind: str, softmax: str) -> None:
    model = build(kind, softmax).eval()
    read = tokens(2, 12)
    exact = log_probs(model, read)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = log_probs(model, read)
    for found in (cast, log_probs(model.bfloat16(), read)):
        assert found.isfinite().all() and (found.float() - exact).abs().max() < 0.1
