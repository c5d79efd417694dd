"""--ddp-backend fully_sharded by torch: fairseq requires fairscale, which is no longer maintained."""

import contextlib
import typing

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

from .sharded_model import Shard, ShardedModel
from .weight_copies import KEY as MASTERS

BACKEND = "fully_sharded"
Convert = typing.Callable[[Shard, torch.Tensor], torch.Tensor]


def shard_with_torch() -> None:
    """Shard parameters, gradients and optimiser state by torch, without the trainer's code for fairscale."""
    from fairseq.trainer import Trainer

    Trainer.is_fsdp = property(lambda self: False)
    Trainer.always_call_state_dict_during_save_checkpoint = property(_is_shared_out)


def _is_shared_out(trainer: typing.Any) -> bool:
    return isinstance(trainer.model, ShardedModel)


@around("fairseq.distributed.fully_sharded_data_parallel", "fsdp_enable_wrap")
@contextlib.contextmanager
def wrap_nothing(original: typing.Callable, cfg: typing.Any) -> typing.Iterator[None]:
    """Build a model whole; it is sharded when the trainer wraps it."""
    yield


@around("fairseq.models.distributed_fairseq_model", "DistributedFairseqModel")
def shard_model(
    original: typing.Callable, args: typing.Any, model: typing.Any, process_group: typing.Any, device: typing.Any
) -> typing.Any:
    """Return the model in shards for --ddp-backend fully_sharded."""
    if args.ddp_backend != BACKEND:
        return original(args, model, process_group, device)
    from torch.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh.from_group(process_group, torch.device(device).type)
    return ShardedModel(model, mesh, not args.no_reshard_after_forward, args.fp32_reduce_scatter)


def refuse_what_cannot_be_sharded(call: hooks.Call) -> typing.Iterator[None]:
    """Raise a ValueError for options that cannot be combined with sharding (event "build")."""
    cfg = call.arguments["cfg"]
    parallel = cfg.distributed_training
    if parallel.ddp_backend == BACKEND:
        name = getattr(cfg.optimizer, "_name", None)
        refused = {
            "--cpu-offload": parallel.cpu_offload,
            "--use-sharded-state": parallel.use_sharded_state,
            f"--zero-sharding {parallel.zero_sharding}": parallel.zero_sharding != "none",
            "--use-bmuf": cfg.optimization.use_bmuf,
            "--store-ema": cfg.ema.store_ema,
            f"--optimizer {name}": name == "adam_selective_decay",  # no mark of a parameter stays with its shard
        }
        for option, given in refused.items():
            if given:
                raise ValueError(f"--ddp-backend {BACKEND} cannot be combined with {option}: omit one of them")
    yield


@around("fairseq.trainer", "Trainer._build_optimizer")
def keep_whole_states(original: typing.Callable, self: typing.Any) -> None:
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


def converted(
    state: typing.Dict[str, typing.Any], shards: typing.Sequence[Shard], convert: Convert
) -> typing.Dict[str, typing.Any]:
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
def clip_by_the_whole_norm(original: typing.Callable, self: typing.Any, clip_norm: float) -> torch.Tensor:
    """Clip shards by the norm of all of them."""
    if not _is_shared_out(self):
        return original(self, clip_norm)

    def of_all(norm: torch.Tensor) -> torch.Tensor:
        square = norm.to(self.device, torch.float64).square()
        torch.distributed.all_reduce(square, group=self.data_parallel_process_group)
        return square.sqrt().float()

    return self.optimizer.clip_grad_norm(clip_norm, aggregate_norm_fn=of_all)


def help_to_save(call: hooks.Call) -> typing.Iterator[None]:
    """Contribute this process's parts if only the first process writes, as after a gradient that is not finite (event
    "write")."""
    trainer = call.arguments["self"]
    if _is_shared_out(trainer) and not trainer.should_save_checkpoint_on_current_rank:
        trainer.state_dict()
    yield
