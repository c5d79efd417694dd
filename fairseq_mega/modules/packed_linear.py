"""Linear maps with packed matrices in place of a trained model's, for decoding."""

from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_mega.ops.packed_linear import PackedMatrix, pack, packed_linear


class PackedLinear(nn.Module):
    """``x W^T + bias`` with a matrix of few bytes; nothing of it learns or is saved.

    Args:
        matrix: (outputs, inputs).
        bias: (outputs,) or None.
        kind: one of :data:`fairseq_mega.ops.packed_linear.KINDS`.
    """

    data: Tensor
    scale: Optional[Tensor]
    bias: Optional[Tensor]

    def __init__(self, matrix: Tensor, bias: Optional[Tensor], kind: str) -> None:
        super().__init__()
        self.kind = kind
        packed = pack(matrix, kind)
        for name, tensor in (("data", packed.data), ("scale", packed.scale), ("bias", bias)):
            self.register_buffer(name, None if tensor is None else tensor.detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return packed_linear(x, PackedMatrix(self.data, self.scale), self.bias)

    def extra_repr(self) -> str:
        outputs, inputs = self.data.shape
        return f"in_features={inputs}, out_features={outputs}, kind={self.kind}"


@torch.no_grad()
def pack_linear_maps(module: nn.Module, kind: str) -> int:
    """Replace every linear map within a module by a packed one; returns how many."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias, kind))
                count += 1
    return count
