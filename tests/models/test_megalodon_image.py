"""MEGALODON's image classifiers: size, values and gradients beside a plain loop, what decays."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fairseq_mega.compat.features.no_weight_decay import has_no_weight_decay
from fairseq_mega.modules.megalodon.norms import GroupNorm
from tests.support import tiny_images
from tests.support.tiny_mega import lively


def build(arch: str = "megalodon_image", **options: Any) -> Any:
    return tiny_images.build(arch, **options)


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def test_parameters() -> None:
    """MEGALODON, Table 4: 90M, those of our widths counted by hand."""
    d, v, f, z, n = 768, 1536, 1920, 256, 16
    ema = 2 * d * n + 2 * d * n + 2 * d + 2 * d * n * 2 + d  # alpha, delta, theta and gamma both ways, omega
    gates = d * z + z + d * v + v + d * d + d  # shared, output gate, candidate
    layer = 2 * d + ema + d + d * v + v + gates + v * d + 4 * z + 2 * d + 2 * d * f
    ends = 3 * 16 * 16 * d + d + 196 * d + 2 * d + d * d + d + d * 1000 + 1000
    with torch.device("meta"):
        model = build("megalodon_image_base")
    assert sum(parameter.numel() for parameter in model.parameters()) == 12 * layer + ends == 90_711_016


def test_layers_of_the_base_model() -> None:
    with torch.device("meta"):
        model = build("megalodon_image_base")
    for layer in model.encoder.layers:
        attention: Any = layer.attention
        assert (attention.heads, attention.chunk_size, attention.causal, layer.residual_hops) == (1, -1, False, 2)
        assert type(attention.norm) is type(model.encoder.final_norm) is GroupNorm


def plain(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Logits patch by patch, layer by layer, and by torch's own group norm over features and patches."""
    weight, encoder = dict(model.named_parameters()), model.encoder
    patches = [batch[:, :, i : i + 4, j : j + 4].flatten(1) for i in range(0, 12, 4) for j in range(0, 12, 4)]
    x = torch.stack(patches, 1) @ weight["encoder.embedding.patches.weight"].flatten(1).t()
    x = x + weight["encoder.embedding.patches.bias"] + weight["encoder.embedding.positions"]
    for layer in encoder.layers:
        hidden = layer.attention(x).hidden
        x = layer.feed_forward(hidden, residual=x)
    scale, shift = weight["encoder.final_norm.weight"] + 1, weight["encoder.final_norm.bias"]
    x = F.group_norm(x.transpose(1, 2), 4, scale, shift).transpose(1, 2)
    x = F.silu(x @ weight["head.hidden.weight"].t() + weight["head.hidden.bias"]).mean(1)
    return x @ weight["head.output.weight"].t() + weight["head.output.bias"]


@pytest.mark.parametrize("recomputed", [False, True])
def test_values_and_gradients(recomputed: bool) -> None:
    """Logits, and the gradients of the parameters and of each pixel, are those of the plain formulas."""
    model = lively(build(drop_path=0.0, checkpoint_activations=recomputed)).train()
    batch = images(3).double().requires_grad_()
    found, want = model(batch), plain(model, batch)
    torch.testing.assert_close(found, want)
    assert found.shape == (3, 5)
    over = [batch, *model.parameters()]
    gradients = [torch.autograd.grad(logits.square().sum(), over, retain_graph=True) for logits in (found, want)]
    for mine, other in zip(*gradients):
        assert mine.abs().max() > 0
        torch.testing.assert_close(mine, other)
    assert gradients[0][0].abs().amin() > 0


def test_what_is_not_decayed() -> None:
    free = {name for name, parameter in build().named_parameters() if has_no_weight_decay(parameter)}
    layer = ("norm.weight", "norm.bias", "ema_norm.weight", "value_proj.bias", "gate_proj.bias")
    parts = [*(f"attention.{part}" for part in layer), "feed_forward.norm.weight", "feed_forward.norm.bias"]
    ends = ("embedding.patches.bias", "embedding.positions", "final_norm.weight", "final_norm.bias")
    want = {f"encoder.layers.{index}.{part}" for index in range(3) for part in parts}
    assert free == want | {f"encoder.{end}" for end in ends} | {"head.hidden.bias", "head.output.bias"}


def test_float16_is_refused() -> None:
    with pytest.raises(ValueError, match="^--fp16 or --amp: "):
        build().half()(images())
