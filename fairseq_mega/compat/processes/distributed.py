"""Repair fairseq's training in several processes, and on a GPU whose memory a batch exceeds."""

from typing import Any, Callable, List

import torch

from fairseq_mega.compat.patching import around

Original = Callable[..., Any]


@around("fairseq.models.distributed_fairseq_model", "DistributedDataParallel")
def allow_torch_ddp_on_the_cpu(original: Original, module: Any, **options: Any) -> Any:
    """Make --ddp-backend pytorch_ddp, fairseq's default, train with --cpu: fairseq always names a GPU."""
    if all(parameter.device.type == "cpu" for parameter in module.parameters()):
        options.update(device_ids=None, output_device=None)
    return original(module, **options)


@around("fairseq.trainer", "Trainer.begin_valid_epoch")
def validate_with_one_set_of_buffers(original: Original, self: Any, epoch: int) -> None:
    """Make all processes validate with the buffers of the first process, which a checkpoint stores.

    A plain batch norm has running statistics of its process's batches only, so each process would validate its part of
    the data with another model.
    """
    whole = self.cfg.common.model_parallel_size == 1 and not self.is_fsdp and not self.tpu
    if self.data_parallel_world_size > 1 and whole:
        for buffer in self.get_model().buffers():
            torch.distributed.broadcast(buffer, 0)
    original(self, epoch)


@around("fairseq.distributed.utils", "all_gather_list")
def gather_values_on_the_cpu(original: Original, data: Any, group: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Gather logged values of processes with --cpu, for example in validation: fairseq requires a GPU's memory."""
    if torch.distributed.get_backend(group) != "gloo":
        return original(data, group, *args, **kwargs)
    found: List[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(found, data, group)
    return found


@around("fairseq.trainer", "Trainer._log_oom")
def end_training_without_memory(original: Original, self: Any, error: BaseException) -> None:
    """End a training whose batch does not fit into the memory of a GPU.

    fairseq logs pages of statistics, omits the batch and continues: the longest sequences would never be trained.
    Validation repeats the batch with the memory of the gradients, as in fairseq.
    """
    if torch.is_grad_enabled():
        raise error
