"""Repair fairseq's training in several processes."""

import typing

import torch

from fairseq_mega.compat.patching import wrap


def allow_torch_ddp_on_the_cpu() -> None:
    """Make --ddp-backend pytorch_ddp, fairseq's default, train with --cpu: fairseq always names a GPU."""
    from fairseq.models import distributed_fairseq_model

    wrap(distributed_fairseq_model, "DistributedDataParallel", _on_its_device)


def _on_its_device(original: typing.Callable, module: typing.Any, **options: typing.Any) -> typing.Any:
    if all(parameter.device.type == "cpu" for parameter in module.parameters()):
        options.update(device_ids=None, output_device=None)
    return original(module, **options)


def validate_with_one_set_of_buffers() -> None:
    """Make all processes validate with the buffers of the first process, which a checkpoint stores.

    A plain batch norm has running statistics of its process's batches only, so each process would validate its part of
    the data with another model.
    """
    from fairseq.trainer import Trainer

    wrap(Trainer, "begin_valid_epoch", _share_buffers)


def _share_buffers(original: typing.Callable, self: typing.Any, epoch: int) -> None:
    whole = self.cfg.common.model_parallel_size == 1 and not self.is_fsdp and not self.tpu
    if self.data_parallel_world_size > 1 and whole:
        for buffer in self.get_model().buffers():
            torch.distributed.broadcast(buffer, 0)
    original(self, epoch)


def gather_values_on_the_cpu() -> None:
    """Gather logged values of processes with --cpu, for example in validation: fairseq requires a GPU's memory."""
    from fairseq.distributed import utils

    wrap(utils, "all_gather_list", _gather_by_gloo)


def _gather_by_gloo(
    original: typing.Callable, data: typing.Any, group: typing.Any = None, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    if torch.distributed.get_backend(group) != "gloo":
        return original(data, group, *args, **kwargs)
    found: typing.List[typing.Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(found, data, group)
    return found


def score_no_empty_batches() -> None:
    """Skip the empty last batches of fairseq-validate's processes if their number does not divide the batches."""
    from fairseq.tasks import FairseqTask

    wrap(FairseqTask, "valid_step", _score_unless_empty)


def _score_unless_empty(
    original: typing.Callable, self: typing.Any, sample: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    return original(self, sample, *args, **kwargs) if sample else (0.0, 0, {})
