"""MEGALODON classifiers: sizes, padding, chunks, two documents, training, bad options."""

from typing import Any, List

import pytest
import torch

from fairseq_mega.models.presets import preset, preset_names
from tests.support.helpers import run_fairseq
from tests.support.tiny_classifier import build, padded, parameters, texts
from tests.support.tiny_mega import lively
from tests.support.tiny_trainings import Trainings, numbers

ARCH = "megalodon_lra"


def test_raw_speech_has_the_size_of_the_paper() -> None:
    """MEGALODON, Table 7: 300K. The Long Range Arena's sizes are not published."""
    with torch.device("meta"):
        assert parameters(build("megalodon_sc_raw", "image")) == 304_560


@pytest.mark.parametrize("arch", [ARCH, *preset_names(ARCH)])
def test_every_architecture_runs(arch: str) -> None:
    """From its defaults; the longest ones are cut down to a short chunk. Every parameter matters."""
    kind = "text" if arch == ARCH else preset(arch).get("input_type", "text")
    documents = 2 if arch.endswith("aan") else 1
    chunk = {"encoder_chunk_size": 16} if kind == "image" else {}
    model = build(arch, kind, documents, encoder_layers=1, **chunk)
    batches = [padded(texts((9, 16, 33))) if kind == "text" else torch.randn(3, 32)] * documents
    logits = model(*batches[:1], src1_tokens=batches[1] if documents == 2 else None)
    assert logits.shape == (3, model.classes)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None and gradient.isfinite().all() and gradient.abs().max() > 0, name


@pytest.mark.parametrize("chunk_size", [-1, 4, 16])
@pytest.mark.parametrize("pooling", ["mp", "cls"])
def test_padding_and_order_change_nothing(chunk_size: int, pooling: str) -> None:
    model = lively(build(ARCH, encoder_chunk_size=chunk_size, sen_rep_type=pooling))
    rows = texts((5, 11, 16))
    together = model(padded(rows, extra=3))
    for row, found in zip(rows, together):
        torch.testing.assert_close(model(row.unsqueeze(0))[0], found)
    torch.testing.assert_close(model(padded(rows[::-1])), together.flip(0))


def test_the_future_begins_with_the_next_step() -> None:
    """The part of the EMA that looks ahead begins with the next step."""
    model: Any = lively(build(ARCH, "image"))
    ema = model.encoder.layers[0].attention.ema
    impulse = torch.zeros(1, 9, 8, dtype=torch.float64)
    impulse[0, 4] = 1.0
    y = ema(impulse)[0][0]
    past, future = ema.coefficients().expansion.chunk(2)
    weights = ema.coefficients().projection.chunk(2)
    present = (past * weights[0]).sum(1).real + ema.omega
    torch.testing.assert_close(y[4], present)  # of the future's kernel nothing
    torch.testing.assert_close(y[3], (future * weights[1]).sum(1).real)  # and its first value one step before


def test_two_documents() -> None:
    model: Any = lively(build(ARCH, documents=2))
    first, second = padded(texts((5, 9))), padded(texts((7, 3), seed=2))
    a, b = model.represent(second), model.represent(first)
    expected = model.head(torch.cat([a, b, a * b, a - b], dim=-1))
    torch.testing.assert_close(model(first, src1_tokens=second), expected)


def test_it_learns_and_is_scored(trainings: Trainings, device_flags: List[str]) -> None:
    options = ["--max-epoch", 6, "--no-save", "--num-workers", 0, *device_flags]
    lines = numbers(run_fairseq("train", trainings.arguments("megalodon text", *options)), "^loss|valid_accuracy")
    losses = [float(line["loss"]) for line in lines if "loss" in line]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert any("valid_accuracy" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_num_groups": 3}, "--encoder-embed-dim 8: must be a multiple of --norm-num-groups = 3"),
        ({"encoder_attention_heads": 5}, "--encoder-z-dim 8: must be a multiple of 2 x --encoder-attention-heads = 10"),
        ({"encoder_layers": 0}, "--encoder-layers 0: must be at least 1"),
        ({"input_type": "image"}, "--input-type image: the data of this task are --input-type text"),
    ],
)
def test_bad_options(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        build(ARCH, **options)


def test_float16_is_refused() -> None:
    with pytest.raises(ValueError, match="^--fp16 or --amp: "):
        build(ARCH).half()(padded(texts((5, 9))))
