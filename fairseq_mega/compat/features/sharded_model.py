"""A model whose parameters, gradients and optimiser state are sharded over all processes, by torch's fully_shard.

fairseq sees the shards as plain parameters, so its optimisers, their float32 copies of half-precision weights and the
clipping work without changes. State dictionaries hold whole tensors, like those of one process.
"""

import typing

import torch
from torch import nn


class Shard(nn.Parameter):
    """This process's part of a parameter, in the memory of ``whole``, the distributed tensor."""

    whole: typing.Any

    def __new__(cls, whole: typing.Any) -> "Shard":
        shard = super().__new__(cls, whole.to_local().detach(), whole.requires_grad)
        shard.whole = whole
        return shard

    def whole_of(self, part: torch.Tensor) -> torch.Tensor:
        """Return on the CPU the whole tensor of which every process has a ``part`` with the shape of this shard."""
        from torch.distributed.tensor import DTensor

        like = self.whole
        placed = DTensor.from_local(
            part.view(self.shape), like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
        )
        return placed.full_tensor().cpu()

    def part_of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return a copy of this process's part of a whole tensor, cut by rows as fully_shard does."""
        parts, rank = whole.chunk(self.whole.device_mesh.size()), self.whole.device_mesh.get_local_rank()
        return (parts[rank] if rank < len(parts) else whole[:0]).clone()


class ShardedModel(nn.Module):
    """Model with sharded parameters, which otherwise behaves like the original model.

    Each layer (an entry of a list called "layers") is gathered before it runs and freed afterwards. Parameters outside
    the layers are gathered from their first use to the end of the backward pass.

    Args:
        model: model whose parameters become distributed tensors, moved to the device layer by layer.
        mesh: the processes, torch's DeviceMesh of one dimension.
        reshard_after_forward: free layers after the forward pass and gather them again for the backward pass.
        float32_sums: sum gradients of half precision in float32.
    """

    def __init__(
        self, model: nn.Module, mesh: typing.Any, reshard_after_forward: bool = True, float32_sums: bool = False
    ) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        super().__init__()
        options: typing.Dict[str, typing.Any] = {"mesh": mesh}
        if float32_sums:
            options["mp_policy"] = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for layer in layers_of(model):
            fully_shard(layer, reshard_after_forward=reshard_after_forward, **options)
        fully_shard(model, **options)
        self.module = model
        self.shards = {name: Shard(parameter) for name, parameter in model.named_parameters()}

    def __getattr__(self, name: str) -> typing.Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return self.module(*args, **kwargs)

    def named_parameters(self, *_: typing.Any, **__: typing.Any) -> typing.Iterator[typing.Tuple[str, nn.Parameter]]:
        """Yield the shards with the names of the model's parameters."""
        yield from self.shards.items()

    def all_reduce_grads(self) -> None:
        """Move the gradients to the shards; fairseq calls this method after the backward passes of an update."""
        for shard in self.shards.values():
            gradient = shard.whole.grad
            shard.grad = None if gradient is None else gradient.to_local()
            shard.whole.grad = None

    def state_dict(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Dict[str, typing.Any]:  # type: ignore[override]
        """Return the model's state dictionary with whole tensors; all processes must call this method."""
        found = self.module.state_dict(*args, **kwargs)
        return {name: value.full_tensor().cpu() if is_shared(value) else value for name, value in found.items()}

    def load_state_dict(
        self, state_dict: typing.Mapping[str, typing.Any], strict: bool = True, model_cfg: typing.Any = None
    ) -> typing.Any:
        """Load this process's parts of the whole tensors of a state dictionary."""
        given = dict(state_dict)
        upgrade: typing.Any = getattr(self.module, "upgrade_state_dict", None)  # missing in criterions
        if upgrade is not None:
            upgrade(given)
        shards = {id(shard.whole): shard for shard in self.shards.values()}
        for name, whole in self.module.state_dict(keep_vars=True).items():
            if is_shared(whole) and name in given and given[name].shape == whole.shape:
                with torch.no_grad():
                    shards[id(whole)].copy_(shards[id(whole)].part_of(given[name]))
                given[name] = whole  # loaded already
        return nn.Module.load_state_dict(self.module, given, strict)


def layers_of(model: nn.Module) -> typing.List[nn.Module]:
    """Return the entries of all lists called "layers", each once."""
    found: typing.Dict[int, nn.Module] = {}
    for name, part in model.named_modules():
        if name.rpartition(".")[2] == "layers" and isinstance(part, nn.ModuleList):
            found.update((id(layer), layer) for layer in part)
    return list(found.values())


def is_shared(value: typing.Any) -> bool:
    """Return whether a value is a distributed tensor."""
    return hasattr(value, "full_tensor")
