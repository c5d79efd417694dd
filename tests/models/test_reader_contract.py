"""The contract of all models that read texts whole: translators, masked language models and classifiers."""

from typing import Any, Dict, List, NamedTuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.models.presets import preset_names
from fairseq_mega.modules.trunk import Trunk
from tests.support import tiny_classifier, tiny_masked_lm, tiny_mega
from tests.support.tiny_classifier import padded, texts
from tests.support.tiny_mega import PAD, lively

CLASSIFIERS = ("mega_lra", "megalodon_lra", "s4d_lra", "transformer_lra")
LENGTHS = (1, 2, 3, 4, 5, 11, 16, 17)  # shorter than, as long as and longer than a chunk


class Reader(NamedTuple):
    """A model with options of its own; ``kind`` is a classifier, or one of the two others."""

    kind: str
    options: Dict[str, Any] = {}

    def build(self, **options: Any) -> Any:
        if self.kind == "translator":
            return tiny_mega.build(**{**self.options, **options})
        if self.kind == "masked":
            return tiny_masked_lm.build(**{**self.options, **options})
        return tiny_classifier.build(self.kind, **{**self.options, **options})

    def outputs(self, model: Any, rows: List[Tensor], extra: int = 0) -> List[Tensor]:
        """Return the logits of each text, without those of padding, in a batch with ``extra`` columns of padding."""
        tokens = padded(rows, extra)
        if self.kind in CLASSIFIERS:
            return list(model(tokens))
        if self.kind == "masked":
            return [logits[: len(row)] for logits, row in zip(model(tokens)[0], rows)]
        # A translator's sources have their length, and the targets are the texts themselves.
        logits = model(tokens, None, tokens)[0]
        return [found[: len(row)] for found, row in zip(logits, rows)]


READERS = {
    "translator": Reader("translator"),
    "translator in chunks": Reader("translator", {"encoder_chunk_size": 4, "attention_activation_fn": "laplace"}),
    "masked": Reader("masked"),
    "masked, rotary": Reader("masked", tiny_masked_lm.ROTARY),
    "masked, token types": Reader("masked", tiny_masked_lm.TOKEN_TYPES),
    **{
        f"mega_lra, {function}, chunks of {chunk_size}, {pooling}": Reader(
            "mega_lra",
            {"attention_activation_fn": function, "encoder_chunk_size": chunk_size, "sen_rep_type": pooling},
        )
        for function, chunk_size, pooling in (
            *(("softmax", -1, "mp"), ("softmax", 4, "cls"), ("softmax", 16, "mp"), ("relu2", -1, "cls")),
            *(("relu2", 4, "mp"), ("relu2", 16, "cls"), ("laplace", -1, "mp"), ("laplace", 4, "cls")),
            ("laplace", 16, "mp"),
        )
    },
    **{
        f"megalodon_lra, chunks of {chunk_size}, {pooling}": Reader(
            "megalodon_lra", {"encoder_chunk_size": chunk_size, "sen_rep_type": pooling}
        )
        for chunk_size, pooling in ((-1, "mp"), (4, "cls"), (4, "mp"), (16, "cls"))
    },
    "s4d_lra": Reader("s4d_lra"),
    "transformer_lra": Reader("transformer_lra"),
    "transformer_lra, cls": Reader("transformer_lra", {"sen_rep_type": "cls", "normalize_before": False}),
}
ONE_OF_EACH = {name: reader for name, reader in READERS.items() if " of " not in name or " 4, mp" in name}


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


@pytest.fixture(params=ONE_OF_EACH)
def one(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def test_padding_batch_and_order_change_nothing(reader: Reader) -> None:
    model, rows = lively(reader.build()), texts(LENGTHS)
    alone = [reader.outputs(model, [row])[0] for row in rows]
    for extra in (0, 1, 7):
        for found, want in zip(reader.outputs(model, rows, extra), alone):
            torch.testing.assert_close(found, want, atol=1e-10, rtol=0, msg=f"{extra} columns")
    for found, want in zip(reader.outputs(model, rows[::-1]), alone[::-1]):
        torch.testing.assert_close(found, want, atol=1e-10, rtol=0)
    scale = max(1.0, *(float(logits.abs().max()) for logits in alone))
    for found, want in zip(reader.outputs(model.float(), rows, 3), alone):
        assert (found - want).abs().max() < 1e-5 * scale


def test_recomputed_layers_give_the_same_gradients(one: Reader) -> None:
    """Dropout drops the same elements again, and every parameter learns."""
    gradients = []
    dropouts = {"dropout": 0.2} if one.kind == "s4d_lra" else {"dropout": 0.2, "attention_dropout": 0.1}
    for recompute in (False, True):
        model = lively(one.build(checkpoint_activations=recompute, **dropouts)).train()
        stacks = [part for part in model.modules() if isinstance(part, Trunk)]
        assert stacks and all(stack.checkpoint_activations == recompute for stack in stacks)
        torch.manual_seed(3)
        logits = torch.cat([found.flatten() for found in one.outputs(model, texts((5, 9)))])
        (logits * torch.randn_like(logits)).sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=f"gradient of {name}")
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(one: Reader, dtype: torch.dtype) -> None:
    model, rows = one.build().eval(), texts((7, 3, 5))
    want = torch.cat([found.flatten() for found in one.outputs(model, rows, 2)])
    if one.kind == "megalodon_lra" and dtype == torch.float16:
        with pytest.raises(ValueError, match="^--fp16 or --amp: "):
            one.outputs(model.to(dtype), rows, 2)
        return
    got = torch.cat([found.flatten() for found in one.outputs(model.to(dtype), rows, 2)])
    assert got.dtype == dtype and (got.float() - want).norm() / want.norm() < 0.03


@pytest.mark.parametrize("pooling", ["mp", "cls"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("arch", CLASSIFIERS)
def test_a_text_of_padding_alone_has_finite_logits(arch: str, pooling: str, training: bool) -> None:
    """And changes neither the other texts nor any gradient."""
    options = {"normalization_type": "layernorm"} if arch == "s4d_lra" else {}  # batch norm counts every row
    model = tiny_classifier.build(arch, sen_rep_type=pooling, dropout=0.0, **options).train(training)
    rows = padded(texts((5, 3)))
    found = []
    for tokens in (rows, torch.cat([rows, torch.full_like(rows[:1], PAD)])):
        logits = model(tokens)
        assert torch.isfinite(logits).all()
        found.append([logits[:2], *torch.autograd.grad(logits[:2].square().sum(), list(model.parameters()))])
    for got, want in zip(found[1], found[0]):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("arch", CLASSIFIERS)
def test_retrieval(arch: str) -> None:
    """The second document comes first in the features; each is read by the same encoder, with its own padding."""
    model = lively(tiny_classifier.build(arch, documents=2))
    first, second = padded(texts((5, 3), seed=1)), padded(texts((9, 2), seed=2))
    a, b = model.represent(second), model.represent(first)
    features = torch.cat([a, b, a * b, a - b] if arch == "megalodon_lra" else [a, b], dim=-1)
    torch.testing.assert_close(model(first, src1_tokens=second), model.head(features))
    assert not torch.allclose(model(first, src1_tokens=second), model(second, src1_tokens=first))
    with pytest.raises(ValueError, match=r"reads 2 document\(s\) in an example, the data have 1"):
        model(first)
    with pytest.raises(ValueError, match=r"reads 1 document\(s\) in an example, the data have 2"):
        tiny_classifier.build(arch)(first, src1_tokens=second)


@pytest.mark.parametrize(
    ("arch", "kind"),
    tiny_classifier.with_inputs([name for arch in CLASSIFIERS for name in preset_names(arch)])
    + [(arch, "text") for arch in ("mega_lra", "megalodon_lra")],
)
def test_every_architecture_runs(arch: str, kind: str) -> None:
    """Architectures run with their defaults and dropout, the longest ones with a short chunk; all parameters matter."""
    options = {"encoder_embed_dim": 8} if arch.startswith("s4d") else {}
    if kind == "image" and not arch.startswith(("s4d", "transformer")):
        options = {"encoder_chunk_size": 16}
    documents = 2 if arch.endswith("aan") else 1
    model = tiny_classifier.build(arch, kind, documents, encoder_layers=1, **options)
    given = [padded(texts((9, 16, 33))) if kind == "text" else torch.randn(3, 32)] * documents
    logits = model(given[0], src1_tokens=given[1] if documents == 2 else None)
    assert logits.shape == (3, model.classes) and logits.isfinite().all()
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
