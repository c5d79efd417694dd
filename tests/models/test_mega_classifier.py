"""MEGA classifiers: sizes, chunks, pooling, norms."""

from argparse import Namespace

import pytest
import torch

from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.modules.classifier_head import sentence_vector
from tests.support.tiny_classifier import build, padded, parameters, texts
from tests.support.tiny_mega import dictionary, lively

TEXT_ARCHS = ("mega_lra_listop", "mega_lra_imdb", "mega_lra_aan")


# Long Range Arena: (per layer, total) with full attention, the same in chunks of 128 (Path-X: 4096); rows of the text
# embedding beyond those counted, times d, are omitted except for ListOps, whose dictionary is known.
SIZES = {
    "mega_lra_listop": ((97_683, 602_658), (93_935, 580_170)),
    "mega_lra_imdb": ((230_917, 957_204), (223_169, 926_212)),
    "mega_lra_aan": ((230_917, 1_451_806), (223_169, 1_405_318)),
    "mega_lra_cifar10": ((347_967, 2_839_096), (346_175, 2_824_760)),
    "mega_lra_pf32": ((225_471, 1_386_874), (223_679, 1_376_122)),
    "mega_lra_pf128": ((93_279, 381_948), (68_703, 283_644)),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("arch", SIZES)
def test_parameter_counts_of_the_long_range_arena(arch, chunked):
    options = {"encoder_chunk_size": 4096 if arch.endswith("pf128") else 128} if chunked else {}
    kind, documents = "text" if arch in TEXT_ARCHS else "image", 2 if arch.endswith("aan") else 1
    with torch.device("meta"):
        model = build(arch, kind, documents, symbols=21, **options)  # 25 rows with the four specials
    per_layer, total = SIZES[arch][chunked]
    rows = 25 * 128 if arch in TEXT_ARCHS[1:] else 0
    assert [parameters(layer) for layer in model.encoder.layers] == [per_layer] * len(model.encoder.layers)
    assert parameters(model) == total + rows


def test_mean_is_over_true_tokens():
    x = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[False, False, False], [False, True, True]])
    x[mask] = 0
    assert sentence_vector(x, mask, "mp").tolist() == [[2.0, 3.0], [6.0, 7.0]]
    assert sentence_vector(x, None, "cls").tolist() == [[0.0, 1.0], [6.0, 7.0]]
    half = torch.full((1, 5000, 1), 0.1, dtype=torch.float16)
    assert abs(sentence_vector(half, None, "mp").item() - 0.1) < 1e-3  # a float16 sum would stop at 256


def test_a_mean_over_nothing_is_zero():
    empty = torch.zeros(2, 0, 3)
    assert sentence_vector(empty, None, "mp").eq(0).all() and sentence_vector(empty, None, "mp").shape == (2, 3)
    assert sentence_vector(empty, torch.zeros(2, 0, dtype=torch.bool), "mp").eq(0).all()


@pytest.mark.parametrize("norm", ["layernorm", "scalenorm", "rmsnorm", "batchnorm", "syncbatchnorm"])
@pytest.mark.parametrize("normalize_before", [False, True])
def test_norms(norm, normalize_before):
    model = build(kind="image", normalization_type=norm, normalize_before=normalize_before, encoder_chunk_size=8)
    assert (model.encoder.final_norm is not None) == normalize_before
    logits = model(torch.randn(4, 16))
    assert logits.shape == (4, 3) and torch.isfinite(logits).all()


def test_real_numbers():
    """Both layouts are alike; in training as in evaluation a length is whole chunks or an error names both numbers."""
    model = lively(build(kind="image", encoder_chunk_size=8))
    numbers = torch.randn(3, 24, dtype=torch.float64)
    torch.testing.assert_close(model(numbers), model(numbers.unsqueeze(-1)))
    assert not torch.allclose(model(numbers), model(numbers.flip(1)))
    for length in (1, 7, 9, 23):
        with pytest.raises(
            ValueError, match=rf"{length} real numbers is not a multiple of --encoder-chunk-size 8: give"
        ):
            model(numbers[:, :length])


def test_chunks_and_truncation_matter():
    rows = padded(texts((32,)))
    whole = lively(build(seed=3))
    for changed in ({"encoder_chunk_size": 8}, {"truncation_length": 2}):
        model = build(seed=3, **changed).double().eval()
        state = whole.state_dict()
        for name, value in model.state_dict().items():
            if "relative_bias" not in name:
                value.copy_(state[name])
        assert not torch.allclose(model(rows), whole(rows))
    longer = build(seed=3, truncation_length=32).double().eval()
    longer.load_state_dict(whole.state_dict())
    torch.testing.assert_close(longer(rows), whole(rows), atol=1e-10, rtol=0)


def test_without_ema():
    """N = 0 (Figure 4): only attention and its relative bias see other positions."""
    model = build(encoder_n_dim=0)
    model(padded(texts((5, 9)))).sum().backward()
    layer = model.encoder.layers[0].attention
    assert layer.ema.omega.grad is not None and parameters(layer.ema) == 8
    assert parameters(build()) - parameters(model) == 2 * 4 * (2 * 8) * 3


def test_head():
    model = build(classifier_layers=3, classifier_out_dim=5)
    assert [tuple(layer.weight.shape) for layer in model.head.hidden] == [(5, 8), (5, 5), (5, 5)]
    assert model.head.output.bias is None and model.head.output.weight.shape == (3, 5)
    assert build(classifier_layers=0).head.output.weight.shape == (3, 8)


def test_one_option_sets_both_dropouts():
    layer = build(act_dropout=0.2).encoder.layers[0]
    assert layer.attention.hidden_dropout.p == layer.feed_forward.hidden_dropout.p == 0.2
    layer = build(activation_dropout=0.2).encoder.layers[0]
    assert layer.attention.hidden_dropout.p == 0.0 and layer.feed_forward.hidden_dropout.p == 0.2


def test_no_scale_of_embeddings():
    """Unlike translators: the first layer sees the table's rows themselves."""
    model = build(dropout=0.0)
    rows = texts((4,))[0].unsqueeze(0)
    assert model.encoder.embedding(rows).equal(model.encoder.embedding.tokens.weight[rows])


def test_other_tasks_are_refused():
    with pytest.raises(ValueError, match="give --task lra-text, lra-image or speech_commands"):
        MegaClassifier.build_model(Namespace(), Namespace(source_dictionary=dictionary()))
