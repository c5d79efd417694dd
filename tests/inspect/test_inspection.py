"""A look inside checkpoints: counts, attention and its picture, memory."""

import re
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, List, Tuple

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_mega.lab.inspect import command as inspect_checkpoint
from fairseq_mega.lab.inspect import memory, parts
from fairseq_mega.lab.inspect.attention import _self_attention, attention_for
from fairseq_mega.models.cost import training_step
from fairseq_mega.models.mega import MegaModel
from tests.support import tiny_classifier, tiny_images, tiny_lm, tiny_mega, tiny_megalodon
from tests.support.tiny_classifier import parameters

GOLDENS = Path(__file__).parent.parent / "goldens"


@pytest.mark.parametrize(
    "model",
    [
        tiny_mega.build(share_all_embeddings=True),
        tiny_lm.build(),
        tiny_lm.build(**tiny_lm.ADAPTIVE),
        tiny_classifier.build(),
        tiny_classifier.build(kind="image", normalization_type="batchnorm", normalize_before=True),
        tiny_images.build(),
    ],
    ids=["translator", "language model", "adaptive", "classifier", "of numbers", "of images"],
)
def test_every_parameter_is_counted_once(model: torch.nn.Module) -> None:
    counts = dict(parts.parameters_by_part(model.state_dict()))
    assert sum(counts.values()) == parameters(model)
    assert not {"other", "encoder other", "decoder other"} & set(counts)
    found = sum(p.numel() for name, p in model.named_parameters() if ".ema." in name)
    assert sum(count for part, count in counts.items() if "moving average" in part) == found


def test_attention_within_a_text_stays_in_its_chunk() -> None:
    model = tiny_lm.build().eval()
    tokens = tiny_lm.tokens(1, 13)
    weights = _self_attention(model.decoder.layers, 2, lambda: model(tokens))[0][:13, :13]
    torch.testing.assert_close(weights.sum(1), torch.ones(13))
    place = torch.arange(13)
    seen = (place[:, None] >= place[None, :]) & (place[:, None] // 5 == place[None, :] // 5)
    assert bool((weights[~seen] == 0).all()) and bool((weights[seen] > 0).all())
    assert "_attend" not in vars(model.decoder.layers[1].attention)


@pytest.mark.parametrize("length, layer", [(1, 2), (6, 1), (11, 2)])
@pytest.mark.parametrize(
    "build, heads",
    [
        (lambda: tiny_lm.build(), 1),
        (lambda: tiny_megalodon.build(decoder_attention_heads=2), 2),
        (lambda: tiny_classifier.build(), 1),
        (lambda: tiny_classifier.build("megalodon_lra", encoder_attention_heads=2), 2),
        (lambda: tiny_classifier.build("transformer_lra", encoder_attention_heads=2, share_encoder_layers=True), 2),
    ],
    ids=["mega", "heads", "classifier", "megalodon-classifier", "shared"],
)
def test_attention_is_the_mean_of_the_heads(build: Any, heads: int, layer: int, length: int) -> None:
    """Each row sums to 1, and the weights of each head make its output of its values."""
    model = build().eval()
    for parameter in model.parameters():
        parameter.data.mul_(8.0)  # else all weights are nearly equal
    layers = getattr(model, "encoder", None) or model.decoder
    tokens = torch.arange(4, 4 + length).unsqueeze(0)
    seen: List[Tuple[torch.Tensor, ...]] = []
    module = getattr(layers.layers[layer - 1], "attention", layers.layers[layer - 1])
    attend = module._attend

    def note(*given: torch.Tensor) -> torch.Tensor:
        seen.append(given)
        return attend(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_attend", note)
        with torch.no_grad():
            model(tokens)
    query, key, value, *rest = seen[layer - 1 if len(seen) > 1 else 0]
    with torch.no_grad():
        weights, found = _self_attention(layers.layers, layer, lambda: model(tokens))
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
        assert found == heads
        value = torch.randn(value.size(0), value.size(1), 3).double().to(value.dtype)
        alike = attend(query, key, value.repeat(1, 1, heads), *rest)  # each head with the same values
    mean = alike[0].unflatten(-1, (heads, 3)).mean(-2)
    torch.testing.assert_close(weights @ value[0], mean, atol=1e-5, rtol=1e-5)


def test_alignment_of_a_translation(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is the token that the decoder writes after it has read those before."""
    read: List[torch.Tensor] = []
    forward = MegaModel.forward

    def noted(self: Any, *given: torch.Tensor) -> Any:
        read.append(given[2])
        return forward(self, *given)

    monkeypatch.setattr(MegaModel, "forward", noted)
    found = attention_for(tiny_model.checkpoint, tiny_model.data, "w1 w2 w3", None)
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(tiny_model.checkpoint)])
    assert found.columns == ["w1", "w2", "w3", "</s>"] and found.weights.shape == (len(found.rows), 4)
    assert [task.target_dictionary[token] for token in read[0][0].tolist()] == ["</s>", *found.rows[:-1]]
    torch.testing.assert_close(found.weights.sum(1), torch.ones(len(found.rows)))
    with pytest.raises(ValueError, match="--layer 2"):
        attention_for(tiny_model.checkpoint, tiny_model.data, "w1", 2)


@pytest.mark.parametrize("tiny, name", [(tiny_lm, "mega_lm"), (tiny_megalodon, "megalodon_lm")])
def test_memory_of_a_checkpoint(tiny: Any, name: str, tmp_path: Path) -> None:
    """Its tensors determine the kind of the model."""
    torch.save({"args": Namespace(**tiny.TINY), "model": tiny.build().state_dict()}, tmp_path / "tiny.pt")
    found = memory.model_of(str(tmp_path / "tiny.pt"))
    size = tiny.build().decoder.embedding.tokens.weight.size(0)
    assert found == (training_step({**tiny.TINY, "_name": name}, size), size)


def run(*arguments: object) -> int:
    return inspect_checkpoint.main([str(argument) for argument in arguments])


def test_the_command(tiny_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(tiny_model.checkpoint) == 0
    printed = capsys.readouterr().out
    assert re.search(r"architecture +mega_tiny\n", printed) and re.search(r"updates +8\n", printed)
    assert re.search(r"encoder moving average +[\d,]+ +[\d.]+%\n", printed)
    assert run(GOLDENS / "lra_classifier.official.pt") == 0 and "encoder gated attention" in capsys.readouterr().out
    for words in ([tmp_path / "none.pt"], [tiny_model.checkpoint, "--attention", "w1", "--data", tmp_path]):
        assert run(*words) == 1 and capsys.readouterr().err.count("fairseq-mega-inspect: error: ") == 1


def test_pictures(tiny_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """They are written beside the checkpoint or into a folder; dollars begin no formula."""
    from matplotlib import image

    checkpoint = tmp_path / "p" / "checkpoint.pt"
    checkpoint.parent.mkdir()
    shutil.copy(tiny_model.checkpoint, checkpoint)
    given = [checkpoint, "--attention", "w1 $x_$", "--data", tiny_model.data]
    assert run(*given) == 0 and run(*given, "--pictures", tmp_path / "q") == 0
    file = checkpoint.with_name("attention.png")
    picture = image.imread(file)[..., :3]
    assert picture.shape[0] > 150 and len({tuple(colour) for colour in picture[::7, ::7].reshape(-1, 3)}) > 5
    assert str(file) in capsys.readouterr().out and (tmp_path / "q" / file.name).stat().st_size < 100_000
