"""The compiled operators give the same results however many threads share their work."""

import pytest
import torch

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext, LayerOutput
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"compiled kernels: {native.PROBLEM}")


@pytest.fixture
def threads():
    """Sets the number of threads, for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def layer(function):
    torch.manual_seed(1)
    config = MegaLayerConfig(
        embed_dim=256, hidden_dim=256, z_dim=32, ema_dim=16, ffn_dim=64, attention_function=function, max_positions=64
    )
    return MegaLayer(config).eval()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_training_and_decoding(threads, function, monkeypatch):
    """Results of three threads equal those of one, for sizes at which each thread has a part of every operator.

    The number of threads would also choose the path of attention, which is therefore fixed.
    """
    monkeypatch.setenv(VARIABLE, "attention=native_blocks")

    def results():
        built, x = layer(function), torch.randn(64, 40, 256, generator=torch.Generator().manual_seed(2))
        x.requires_grad_()
        out = built(x[:5]).hidden
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
        found = torch.autograd.grad((out * weights).sum(), [x, *built.parameters()], allow_unused=True)
        step, steps = LayerOutput(x), []
        with torch.no_grad():
            for t in range(5):
                step = built(x[:, t : t + 1], LayerContext(return_state=True), step.memory, step.cache)
                steps.append(step.hidden)
        return [out, *(gradient for gradient in found if gradient is not None), *steps]

    threads(1)
    wanted = results()
    threads(3)
    for got, want in zip(results(), wanted):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5 * want.abs().max().item())
