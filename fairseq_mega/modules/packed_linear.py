"""Linear maps with packed matrices in place of a trained model's, for decoding."""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.ops.decoding import StepMap, step_map
from fairseq_mega.ops.packed_linear import PackedMatrix, pack, packed_linear

from .drawn import PlainLinear
from .linear import Linear


class LinearMap(NamedTuple):
    """Matrix and bias of a linear map."""

    matrix: Tensor  # (outputs, inputs)
    bias: Optional[Tensor]  # (outputs,)


class PackedLinear(nn.Module):
    """``x W^T + bias`` with a matrix of few bytes; neither matrix nor bias is trained or saved.

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

    def _apply(self, fn: Any, recurse: bool = True) -> Any:  # .half() and .to(): without a cast
        packed = PackedMatrix(self.data, self.scale)
        super()._apply(fn, recurse)
        device = self.data.device
        self.data = packed.data.to(device)
        self.scale = None if packed.scale is None else packed.scale.to(device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return packed_linear(x, PackedMatrix(self.data, self.scale), self.bias)

    def extra_repr(self) -> str:
        outputs, inputs = self.data.shape
        return f"in_features={inputs}, out_features={outputs}, kind={self.kind}"


def linear_map(module: nn.Module) -> Optional[LinearMap]:
    """Return the matrix and bias of a module that is exactly a linear map, else None."""
    if isinstance(module, nn.Linear) and type(module) in (
        nn.Linear,
        PlainLinear,
        Linear,
    ):  # another subclass may do more
        return LinearMap(module.weight, module.bias)
    return None


def step_maps(*modules: nn.Module) -> Optional[Tuple[StepMap, ...]]:
    """Return linear maps in the form of the kernels for single steps x (B, D); None if a module is not a linear map."""
    maps: List[StepMap] = []
    for module in modules:
        if type(module) is PackedLinear:
            maps.append(StepMap(module.data, module.scale, module.bias))
            continue
        plain = linear_map(module)
        found = None if plain is None else step_map(*plain)
        if found is None:
            return None
        maps.append(found)
    return tuple(maps)


@torch.no_grad()
def pack_linear_maps(
    module: nn.Module, kind: str, linear_map_of: Callable[[nn.Module], Optional[LinearMap]] = linear_map
) -> None:
    """Replace every linear map within a module by a packed one.

    Args:
        module: contains the linear maps; it is changed.
        kind: one of :data:`fairseq_mega.ops.packed_linear.KINDS`.
        linear_map_of: returns matrix and bias of a part that is a linear map, else None.

    Raises:
        ValueError: for a matrix that is not finite; the message begins with the name of its linear map.
    """
    for path, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            found = linear_map_of(child)
            if found is None:
                continue
            try:
                setattr(parent, name, PackedLinear(found.matrix, found.bias, kind))
            except ValueError as error:
                raise ValueError(f"{path}.{name}: {error}") from error
