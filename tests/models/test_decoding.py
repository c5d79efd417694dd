"""Incremental decoding against full recomputation: beam search, prefixes, padding, ensembles."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from tests.support.tiny_mega import PAD, batch, build, dictionary, lively


class Recomputing(nn.Module):
    """The same model without memory: every step runs the whole decoder and keeps the last position."""

    def __init__(self, model):
        super().__init__()
        self.encoder = model.encoder
        self.decoder = PlainDecoder(model.decoder)
        self.get_normalized_probs = model.get_normalized_probs

    def max_decoder_positions(self):
        return self.decoder.decoder.max_positions()


class PlainDecoder(nn.Module):
    """A decoder that fairseq does not take for an incremental one."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens, encoder_out=None, **unused):
        return self.decoder(tokens, encoder_out=encoder_out)

    def max_positions(self):
        return self.decoder.max_positions()


def decode(models, source, prefix=None):
    generator = SequenceGenerator(
        models, dictionary(), beam_size=5, max_len_a=0, max_len_b=14, min_len=3, len_penalty=0.5
    )
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    return generator.generate(models, sample, prefix_tokens=prefix)


def same(got, want):
    assert len(got) == len(want) == 3
    for sentence, expected in zip(got, want):
        assert len(sentence) == len(expected) == 5
        for hypothesis, other in zip(sentence, expected):
            assert hypothesis["tokens"].tolist() == other["tokens"].tolist()
            torch.testing.assert_close(hypothesis["score"], other["score"], atol=1e-4, rtol=0)
            torch.testing.assert_close(hypothesis["positional_scores"], other["positional_scores"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("function", ["softmax", "relu2", "laplace"])
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize("published", [False, True])
def test_beam_search(function, chunk_size, published):
    options = {"encoder_chunk_size": chunk_size, "attention_activation_fn": function}
    model = lively(build(published_source_padding=published, **options)).float()
    source = batch(left=True, extra=1)
    prefix = torch.tensor([[7, 9], [8, PAD], [5, 6]])  # of unequal lengths
    for given in (None, prefix):
        got = decode([model], source, given)
        same(got, decode([Recomputing(model)], source, given))
        lengths = {len(hypothesis["tokens"]) for sentence in got for hypothesis in sentence}
        assert max(lengths) > 5, "hypotheses must cross the end of a chunk"
        if given is not None:
            assert all(hypothesis["tokens"][:2].tolist() == [7, 9] for hypothesis in got[0])


@pytest.mark.parametrize("share_all_embeddings", [False, True])
def test_beam_search_with_an_adaptive_softmax(share_all_embeddings):
    options = {"adaptive_softmax_cutoff": "6,13", "adaptive_softmax_factor": 2.0}
    model = lively(build(share_all_embeddings=share_all_embeddings, **options)).float()
    same(decode([model], batch(left=True)), decode([Recomputing(model)], batch(left=True)))


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_ensembles(chunk_size):
    models = [lively(build(seed, decoder_chunk_size=chunk_size)).float() for seed in (1, 2)]
    source = batch(left=True)
    same(decode(models, source), decode([Recomputing(model) for model in models], source))


def test_hypotheses_do_not_depend_on_the_batch():
    """Each sentence alone gives what it gives in a left-padded batch."""
    model = lively(build(encoder_chunk_size=4)).float()
    together = decode([model], batch(left=True, extra=3))
    for row, length in enumerate((7, 3, 5)):
        alone = decode([model], batch(left=True)[row : row + 1, -length:])
        for hypothesis, other in zip(together[row], alone[0]):
            assert hypothesis["tokens"].tolist() == other["tokens"].tolist()
            torch.testing.assert_close(hypothesis["score"], other["score"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_a_decoder_takes_tokens_in_any_portions(chunk_size):
    model = lively(build(decoder_chunk_size=chunk_size))
    tokens = batch((11, 11, 11), seed=6)
    encoder_out = model.encoder(batch(left=True))
    whole, _ = model.decoder(tokens, encoder_out=encoder_out)
    for ends in ([*range(1, 12)], [3, 11], [5, 6, 9, 11], [11]):
        memory: dict = {}
        outputs = []
        for end in ends:
            outputs.append(model.decoder(tokens[:, :end], encoder_out=encoder_out, incremental_state=memory)[0])
        torch.testing.assert_close(torch.cat(outputs, dim=1), whole, msg=f"portions ending at {ends}")


@pytest.mark.parametrize("again", [3, 2, 0])
def test_tokens_that_were_read_before_are_refused(again):
    model = lively(build(decoder_chunk_size=4))
    tokens, encoder_out = batch((11, 11, 11), seed=6), model.encoder(batch(left=True))
    memory: dict = {}
    model.decoder(tokens[:, :3], encoder_out=encoder_out, incremental_state=memory)
    with pytest.raises(ValueError, match=f"has {again} tokens, but the incremental state has already read 3: .*empty"):
        model.decoder(tokens[:, :again], encoder_out=encoder_out, incremental_state=memory)
    whole, _ = model.decoder(tokens, encoder_out=encoder_out)
    rest, _ = model.decoder(tokens, encoder_out=encoder_out, incremental_state=memory)  # the memory is as it was
    torch.testing.assert_close(rest, whole[:, 3:])


@pytest.mark.parametrize(("batch_size", "source", "target"), [(0, 5, 4), (2, 5, 0), (2, 0, 4), (0, 0, 0)])
@pytest.mark.parametrize("training", [False, True])
def test_nothing_to_read_gives_an_empty_result(batch_size, source, target, training):
    model = lively(build(encoder_chunk_size=4, decoder_chunk_size=4)).train(training)
    src_tokens, prev_output_tokens = (torch.full((batch_size, size), 7) for size in (source, target))
    logits, extra = model(src_tokens, None, prev_output_tokens)
    assert logits.shape == (batch_size, target, 24) and torch.isfinite(logits).all()
    assert training or extra["attn"][0].shape == (batch_size, target, source)
    logits.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
