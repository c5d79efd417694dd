"""How fairseq trains in several processes."""

import functools
import typing


def let_torch_ddp_train_on_the_cpu() -> None:
    """Let --ddp-backend pytorch_ddp, fairseq's default, train with --cpu: fairseq names a GPU in every case."""
    from fairseq.models import distributed_fairseq_model

    original = distributed_fairseq_model.DistributedDataParallel
    if hasattr(original, "trains_on_cpu"):
        return

    @functools.wraps(original, updated=())
    def on_device(module: typing.Any, **options: typing.Any) -> typing.Any:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            options.update(device_ids=None, output_device=None)
        return original(module, **options)

    on_device.trains_on_cpu = True  # type: ignore[attr-defined]
    distributed_fairseq_model.DistributedDataParallel = on_device
