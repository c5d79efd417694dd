"""Operations that PyTorch's counter finds in our layers: those of :mod:`fairseq_mega.models.cost`."""

from typing import Any, Callable, Dict, Optional

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_mega.models.cost import operations, training_products
from fairseq_mega.modules import (
    LayerContext,
    MegaLayer,
    MegaLayerConfig,
    MegalodonLayer,
    MegalodonLayerConfig,
)
from fairseq_mega.modules.packed_linear import pack_linear_maps
from fairseq_mega.modules.trunk import Trunk
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.common.operations import average_operations

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"there are no kernels: {native.PROBLEM}")

D, Z, V, F = 64, 32, 128, 96
KERNELS = "native,attention={}"  # as FAIRSEQ_MEGA_PATHS


def mega(**options: Any) -> nn.Module:
    return MegaLayer(MegaLayerConfig(embed_dim=D, hidden_dim=V, z_dim=Z, ffn_dim=F, **options))


def megalodon(**options: Any) -> nn.Module:
    widths: Dict[str, Any] = {"embed_dim": D, "hidden_dim": V, "z_dim": Z, "ffn_dim": F, "heads": 2, "norm_groups": 4}
    return MegalodonLayer(MegalodonLayerConfig(**widths, **options))


LAYERS: Dict[str, Callable[[], nn.Module]] = {
    "mega in chunks": lambda: mega(chunk_size=32),
    "mega": lambda: mega(),
    "mega, bidirectional": lambda: mega(bidirectional=True),
    "megalodon in chunks": lambda: megalodon(chunk_size=32),
    "megalodon": lambda: megalodon(chunk_size=-1),
}


def counted(run: Callable[[], Any]) -> Dict[str, int]:
    """Count what a function does, by the name of the operator."""
    with FlopCounterMode(display=False) as counter:
        run()
    return {str(name): number for name, number in counter.get_flop_counts()["Global"].items()}


@pytest.mark.parametrize("path", ["native", "native_blocks"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch, length", [(2, 128), (3, 64)])
def test_a_layer_counts_what_the_formulas_count(
    name: str, path: str, batch: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KERNELS.format(path))
    layer: Any = LAYERS[name]()
    positions, x = batch * length, torch.randn(batch, length, D, requires_grad=True)
    forward = positions * operations(layer, length)
    with torch.no_grad():
        assert sum(counted(lambda: layer(x)).values()) == pytest.approx(forward, abs=1)
    out = []
    assert sum(counted(lambda: out.append(layer(x).hidden.sum())).values()) == pytest.approx(forward, abs=1)
    average = positions * average_operations(D, length) / length
    whole = positions * training_products(layer, length) + 3 * average
    assert sum(counted(out[0].backward).values()) == pytest.approx(whole - forward, abs=1)


def test_a_convolution_on_a_ring() -> None:
    """It runs on a GPU alone, and its shapes everywhere."""
    x, ring = torch.empty(3, 16, 8, device="meta"), torch.empty(8, 64, device="meta")
    operators = torch.ops.fairseq_mega
    (forward,) = counted(lambda: operators.ring_convolution(x, ring)).values()
    (backward,) = counted(lambda: operators.ring_convolution_backward(x, x, ring)).values()
    assert forward == 3 * average_operations(8, 16) and backward == 2 * forward


class Stack(Trunk, nn.Module):
    """Two layers without a final norm."""

    def __init__(self, build: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.add_layers([build(chunk_size=32, **options) for _ in range(2)], None)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("kind", [None, "int8"])
@pytest.mark.parametrize("build", [mega, megalodon])
def test_single_steps_of_a_stream(build: Callable[..., nn.Module], kind: Optional[str], batch: int) -> None:
    stack, state = Stack(build).eval(), None
    maps = sum(2 * part.weight.numel() for part in stack.modules() if isinstance(part, nn.Linear))
    if kind is not None:
        pack_linear_maps(stack, kind)
    with torch.no_grad():
        for past in range(3):
            x, out = torch.randn(batch, 1, D), []
            found = counted(lambda: out.append(stack.run_layers(x, LayerContext(return_state=True), state)))  # noqa: B023
            products = maps + 2 * (average_operations(D, 1) + 2 * (Z + V) * (past + 1))
            assert sum(found.values()) == batch * products, found
            state = out[0].state
