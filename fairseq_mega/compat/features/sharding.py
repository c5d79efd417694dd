"""--ddp-backend fully_sharded by torch's fully_shard: fairseq requires fairscale, which is no longer maintained.

Parameters, gradients and optimiser state are sharded over all processes. fairseq sees the shards as plain parameters,
so its optimisers, their float32 copies of half-precision weights and the clipping work without changes. State
dictionaries hold whole tensors, like those of one process.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import nn

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

from .weight_copies import KEY as MASTERS

BACKEND = "fully_sharded"


class Shard(nn.Parameter):
    """This process's part of a parameter, in the memory of ``whole``, the distributed tensor."""

    whole: Any

    def __new__(cls, whole: Any) -> "Shard":
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
        self, model: nn.Module, mesh: Any, reshard_after_forward: bool = True, float32_sums: bool = False
    ) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        super().__init__()
        options: Dict[str, Any] = {"mesh": mesh}
        if float32_sums:
            options["mp_policy"] = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for layer in layers_of(model):
            fully_shard(layer, reshard_after_forward=reshard_after_forward, **options)
        fully_shard(model, **options)
        self.module = model
        self.shards = {name: Shard(parameter) for name, parameter in model.named_parameters()}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[Tuple[str, nn.Parameter]]:
        """Yield the shards with the names of the model's parameters."""
        yield from self.shards.items()

    def all_reduce_grads(self) -> None:
        """Move the gradients to the shards; fairseq calls this method after the backward passes of an update."""
        for shard in self.shards.values():
            gradient = shard.whole.grad
            shard.grad = None if gradient is None else gradient.to_local()
            shard.whole.grad = None

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:  # type: ignore[override]
        """Return the model's state dictionary with whole tensors; all processes must call this method."""
        found = self.module.state_dict(*args, **kwargs)
        return {name: value.full_tensor().cpu() if is_shared(value) else value for name, value in found.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, model_cfg: Any = None) -> Any:
        """Load this process's parts of the whole tensors of a state dictionary."""
        given = dict(state_dict)
        upgrade: Any = getattr(self.module, "upgrade_state_dict", None)  # missing in criterions
        if upgrade is not None:
            upgrade(given)
        shards = {id(shard.whole): shard for shard in self.shards.values()}
        for name, whole in self.module.state_dict(keep_vars=True).items():
            if is_shared(whole) and name in given and given[name].shape == whole.shape:
                with torch.no_grad():
                    shards[id(whole)].copy_(shards[id(whole)].part_of(given[name]))
                given[name] = whole  # loaded already
        return nn.Module.load_state_dict(self.module, given, strict)


def layers_of(model: nn.Module) -> List[nn.Module]:
    """Return the entries of all lists called "layers", each once."""
    found: Dict[int, nn.Module] = {}
    for name, part in model.named_modules():
        if name.rpartition(".")[2] == "layers" and isinstance(part, nn.ModuleList):
            found.update((id(layer), layer) for layer in part)
    return list(found.values())


def is_shared(value: Any) -> bool:
    """Return whether a value is a distributed tensor."""
    return hasattr(value, "full_tensor")


Convert = Callable[[Shard, torch.Tensor], torch.Tensor]


def shard_with_torch() -> None:
    """Shard parameters, gradients and optimiser state by torch, without the trainer's code for fairscale."""
    from fairseq.trainer import Trainer

    Trainer.is_fsdp = property(lambda self: False)
    Trainer.always_call_state_dict_during_save_checkpoint = property(_is_shared_out)


def _is_shared_out(trainer: Any) -> bool:
    return isinstance(trainer.model, ShardedModel)


@around("fairseq.distributed.fully_sharded_data_parallel", "fsdp_enable_wrap")
@contextlib.contextmanager
def wrap_nothing(original: Callable, cfg: Any) -> Iterator[None]:
    """Build a model whole; it is sharded when the trainer wraps it."""
    yield


@around("fairseq.models.distributed_fairseq_model", "DistributedFairseqModel")
def shard_model(original: Callable, args: Any, model: Any, process_group: Any, device: Any) -> Any:
    """Return the model in shards for --ddp-backend fully_sharded."""
    if args.ddp_backend != BACKEND:
        return original(args, model, process_group, device)
    from torch.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh.from_group(process_group, torch.device(device).type)
    return ShardedModel(model, mesh, not args.no_reshard_after_forward, args.fp32_reduce_scatter)


@around("fairseq.trainer", "Trainer._build_optimizer")
def keep_whole_states(original: Callable, self: Any) -> None:
    """Save whole tensors of the optimiser's state, and load this process's parts of them."""
    original(self)
    shards = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
    shards += [parameter for parameter in self.criterion.parameters() if parameter.requires_grad]
    optimizer = self._optimizer
    if not any(isinstance(shard, Shard) for shard in shards):
        return
    save, load = optimizer.state_dict, optimizer.load_state_dict
    optimizer.state_dict = lambda: converted(save(), shards, Shard.whole_of)
    optimizer.load_state_dict = lambda state, *args: load(converted(state, shards, Shard.part_of), *args)


def converted(state: Dict[str, Any], shards: Sequence[Shard], convert: Convert) -> Dict[str, Any]:
    """Return an optimiser's state with each tensor of a parameter converted.

    Args:
        state: state of torch's form, with parameters in the order of ``shards``; optionally with float32 weights under
            MASTERS.
        shards: all trained parameters.
        convert: maps a shard and its part to the whole tensor, or back.
    """
    numbered = {}
    for number, values in state["state"].items():
        numbered[number] = {
            name: convert(shards[number], value) if isinstance(value, torch.Tensor) and value.dim() else value
            for name, value in values.items()
        }
    found = {**state, "state": numbered}
    if MASTERS in state:
        found[MASTERS] = [convert(shard, value) for shard, value in zip(shards, state[MASTERS])]
    return found


@around("fairseq.trainer", "Trainer.clip_grad_norm")
def clip_by_the_whole_norm(original: Callable, self: Any, clip_norm: float) -> torch.Tensor:
    """Clip shards by the norm of all of them."""
    if not _is_shared_out(self):
        return original(self, clip_norm)

    def of_all(norm: torch.Tensor) -> torch.Tensor:
        square = norm.to(self.device, torch.float64).square()
        torch.distributed.all_reduce(square, group=self.data_parallel_process_group)
        return square.sqrt().float()

    return self.optimizer.clip_grad_norm(clip_norm, aggregate_norm_fn=of_all)


def help_to_save(call: hooks.Call) -> Iterator[None]:
    """Contribute this process's parts if only the first process writes, as after a gradient that is not finite (event
    "write")."""
    trainer = call.arguments["self"]
    if _is_shared_out(trainer) and not trainer.should_save_checkpoint_on_current_rank:
        trainer.state_dict()
    yield
