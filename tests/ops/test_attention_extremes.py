"""A logit far above all others takes the whole weight, wherever it stands in a row."""

import pytest
import torch

from fairseq_mega.ops.attention import attention


@pytest.mark.parametrize("keys", [7, 19, 300])
def test_the_largest_logit(kernel_device, keys):
    k = 1000 * torch.eye(keys).unsqueeze(-1)  # (B, keys, 1): one sequence per place
    v = torch.randn(keys, keys, 3, generator=torch.Generator().manual_seed(1))
    q = torch.ones(keys, 1, 1)
    out = attention(*(tensor.to(kernel_device) for tensor in (q, k, v)), function="softmax", path="native")
    assert torch.equal(out.cpu(), v[torch.arange(keys), torch.arange(keys)].unsqueeze(1))
