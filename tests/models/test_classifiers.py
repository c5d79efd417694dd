"""Classifiers: sizes, pooling and head, and each kind of layers against its formula or torch's own."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.models.presets import preset, preset_names
from fairseq_mega.modules.classifier_head import sentence_vector
from fairseq_mega.modules.classifier_inputs import sinusoids
from fairseq_mega.modules.errors import FieldError
from tests.support.layers import run
from tests.support.tiny_classifier import build, padded, parameters, texts
from tests.support.tiny_mega import lively


def test_mean_is_over_true_tokens():
    x = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[False, False, False], [False, True, True]])
    x[mask] = 0
    assert sentence_vector(x, mask, "mp").tolist() == [[2.0, 3.0], [6.0, 7.0]]
    assert sentence_vector(x, None, "cls").tolist() == [[0.0, 1.0], [6.0, 7.0]]
    half = torch.full((1, 5000, 1), 0.1, dtype=torch.float16)
    assert abs(sentence_vector(half, None, "mp").item() - 0.1) < 1e-3  # a float16 sum would stop at 256


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


def test_without_ema():
    """N = 0 (Figure 4): only attention and its relative bias see other positions."""
    model = build(encoder_n_dim=0)
    model(padded(texts((5, 9)))).sum().backward()
    layer = model.encoder.layers[0].attention
    assert layer.ema.omega.grad is not None and parameters(layer.ema) == 8
    assert parameters(build()) - parameters(model) == 2 * 4 * (2 * 8) * 3


@pytest.mark.parametrize(
    ("arch", "kind", "scale"),
    [
        ("mega_lra", "text", 1.0),
        ("mega_lra", "image", 1.0),
        ("megalodon_lra", "text", 8**0.5),
        ("megalodon_lra", "image", 1.0),
    ],
)
def test_scale_of_embeddings(arch, kind, scale):
    """Unlike translators, MEGA's classifiers read the table's rows themselves."""
    embedding = build(arch, kind, dropout=0.0).encoder.embedding
    rows = texts((4,))[0].unsqueeze(0) if kind == "text" else torch.randn(1, 4)
    torch.testing.assert_close(embedding(rows), scale * embedding.tokens(rows))


def test_the_future_of_megalodon_begins_with_the_next_step() -> None:
    """The part of the EMA that looks ahead begins with the next step."""
    model: Any = lively(build("megalodon_lra", "image"))
    ema = model.encoder.layers[0].attention.ema
    impulse = torch.zeros(1, 9, 8, dtype=torch.float64)
    impulse[0, 4] = 1.0
    y = ema(impulse)[0][0]
    past, future = ema.coefficients().expansion.chunk(2)
    weights = ema.coefficients().projection.chunk(2)
    present = (past * weights[0]).sum(1).real + ema.omega
    torch.testing.assert_close(y[4], present)  # of the future's kernel nothing
    torch.testing.assert_close(y[3], (future * weights[1]).sum(1).real)  # and its first value one step before


S4D_RATES = {  # of steps and modes, in the files of state-spaces/s4
    **dict.fromkeys(("listop", "imdb", "aan"), (0.01, 0.01, 0.001)),
    "cifar10": (0.01, 0.001, 0.001),
    "pf32": (0.004, 0.001, 0.001),
    "pf128": (0.001, 0.001, 0.001),
}
S4D_TASKS = {
    "listop": "listops",
    "imdb": "text",
    "aan": "retrieval",
    "cifar10": "image",
    "pf32": "pathfinder",
    "pf128": "pathx",
}


@pytest.mark.parametrize("arch", S4D_RATES)
def test_rates_of_the_published_files(arch):
    """Steps, modes and all others learn as there: in preset and recipe, and in the built layer."""
    recipe = catalogue()[f"mega/table2/{S4D_TASKS[arch]}/s4d"].config
    rate, (others, steps, modes) = recipe["optimization"]["lr"][0], S4D_RATES[arch]
    assert rate == others
    kind = "text" if arch in ("listop", "imdb", "aan") else "image"
    built = build(f"s4d_lra_{arch}", kind, 2 if arch == "aan" else 1, encoder_layers=1, encoder_embed_dim=8)
    system = built.encoder.layers[0].state_space
    assert system.log_step.rate * rate == pytest.approx(steps)
    assert system.log_decay.rate * rate == system.frequency.rate * rate == pytest.approx(modes)
    assert all(
        preset(f"s4d_lra_{arch}").get(key) == recipe["model"].get(key)
        for key in ("state_space_rate", "state_space_step_rate")
    )


MATCHED = [name for name in preset_names("transformer_lra") if "matched" in name or name.endswith("pf128")]


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
def test_transformer_layers_equal_torchs(normalize_before):
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


def test_a_model_compiles_into_one_graph():
    model = build(kind="image", encoder_chunk_size=8).eval()
    numbers = torch.randn(2, 24)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(numbers), model(numbers))
