"""``--reset-at-document-ends``: documents that share a row are read as if alone; pieces are in the contract."""

import pytest
import torch

from fairseq_mega.modules.documents import documents_of
from tests.support import tiny_lm, tiny_megalodon
from tests.support.tiny_lm import advance, log_probs
from tests.support.tiny_mega import EOS, PAD, lively

BUILD = {"mega": tiny_lm.build, "megalodon": tiny_megalodon.build}
CHUNK = 5
ROWS = ((1, 7, 3, 12), (9, 1, 1, 5, 7), (23,))  # lengths of the documents of each row, </s> in front included


def build(kind, reset=True, **options):
    return lively(BUILD[kind](reset_at_document_ends=reset, dropout=0.0, **options))


def close(name, found, expected, atol=2e-6, rtol=0.0):
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol, msg=lambda message: f"{name}: {message}")


def texts(rows=ROWS, seed=1):
    """Tokens (B, L) of documents of those lengths, side by side; </s> stands at the beginning of each alone."""
    read = tiny_lm.tokens(len(rows), sum(rows[0]), seed).clamp(min=EOS + 1)
    for row, lengths in enumerate(rows):
        read[row, [sum(lengths[:number]) for number in range(len(lengths))]] = EOS
    return read


def each_alone(model, read, rows=ROWS, chunk=CHUNK):
    """Log probabilities (B, L, V) with each document in a call of its own, padded to where it stands in its chunk."""
    found = []
    for row, lengths in enumerate(rows):
        begin = 0
        for length in lengths:
            before = read.new_full((1, begin % chunk if chunk > 0 else 0), PAD)
            alone = torch.cat([before, read[row : row + 1, begin : begin + length]], dim=1)
            found.append(log_probs(model, alone)[0, before.size(1) :])
            begin += length
    return torch.cat(found).view(*read.shape, -1)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", BUILD)
@pytest.mark.parametrize("options", [{}, {"decoder_chunk_size": -1}, {"checkpoint_activations": True}], ids=str)
def test_each_document_is_read_as_if_alone(kind, options):
    """All gradients too; a model without the option lets the documents before through."""
    chunk = options.get("decoder_chunk_size", CHUNK)
    model, read = build(kind, **options).train(), texts()
    whole, alone = log_probs(model, read), each_alone(model, read, chunk=chunk)
    close("log probabilities", whole, alone)
    weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    expected = gradients(model, (alone * weights).mean())
    for name, found in gradients(model, (whole * weights).mean()).items():
        close(f"gradient of {name}", found, expected[name], atol=2e-6, rtol=1e-5)
        assert found.abs().max() > 0, name
    linked = build(kind, reset=False, **options)
    linked.load_state_dict(model.state_dict())
    later = torch.stack([read[row].eq(EOS).cumsum(0) > 1 for row in range(2)])
    assert ((log_probs(linked, read) - alone)[:2].abs().amax(-1)[later] > 1e-6).all()


@pytest.mark.parametrize("function", ["relu2", "laplace"])
@pytest.mark.parametrize("bias", ["simple", "rotary"])
def test_every_attention_of_mega(function, bias):
    model, read = build("mega", attention_activation_fn=function, rel_pos_bias=bias), texts()
    close("log probabilities", log_probs(model, read), each_alone(model, read))


@pytest.mark.parametrize("kind", BUILD)
def test_gradients_through_pieces(kind):
    """Memory and cache of one piece reach the parameters through the next one, within documents."""
    model, read = build(kind).train(), texts()
    expected = gradients(model, log_probs(model, read)[:, [3, 12, 22]].square().mean())
    for name, found in gradients(model, advance(model, read.split([4, 9, 10], 1)).square().mean()).items():
        close(f"gradient of {name}", found, expected[name], atol=1e-7, rtol=1e-5)


def test_window_of_statistics_ends_with_the_document():
    """Statistics taken anew from the last chunks are those of the present document."""
    model, read = build("megalodon", statistics_window=2), texts(((31, 29), (60,)))
    alone = each_alone(model, read, ((31, 29), (60,)))
    found = advance(model, read[:, :45].split(1, dim=1))
    close("second document", found[0, 31:], alone[0, 31:45])  # shorter than the window


def test_rows_of_one_document_take_the_usual_way():
    """</s> in front of a row, as in every training block, is no border."""
    read = texts()
    assert documents_of(read[2:], EOS, fresh=True) is None
    assert documents_of(read, None, fresh=True) is None
    going_on = documents_of(read[2:], EOS, fresh=False)
    assert going_on is not None and going_on.begins.sum() == 1
    assert documents_of(read[:, :0], EOS, fresh=True) is None
