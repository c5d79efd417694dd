"""Single steps whose logits lie so far apart that only the largest counts, wherever it stands."""

import pytest
import torch

from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.common import native
from tests.ops.test_decoding import attention, hidden, path, stream  # noqa: F401 (a fixture)
from tests.support.numerics import assert_close

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"compiled kernels: {native.PROBLEM}")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("shape", "width"), [("odd", 11), ("vectors", 16)])
def test_logits_far_apart(function, shape, width, path):  # noqa: F811
    built = attention(shape, attention_function=function)
    with torch.no_grad():
        built.kappa.mul_(100.0)
    x = hidden(6, 19, width)
    path("reference")
    want, _ = stream(built.double(), x, (1,) * 19)
    path("native")
    got, _ = stream(built.float(), x.float(), (1,) * 19)
    assert_close("output", got, want)
