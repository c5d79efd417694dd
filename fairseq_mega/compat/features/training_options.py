"""Log options of the optimizer that come from a checkpoint."""

import logging
import typing

from fairseq_mega.compat.patching import wrap

logger = logging.getLogger(__name__)
OF_OPTIMIZERS = ("weight_decay", "betas", "momentum", "eps")  # options in its state, beside the learning rate


def log_options_of_a_checkpoints_optimizer() -> None:
    """Log which options of the optimizer a training reads from its checkpoint in place of the ones of its command."""
    from fairseq.optim import FairseqOptimizer

    wrap(FairseqOptimizer, "load_state_dict", _load_and_log)


def _load_and_log(
    original: typing.Callable,
    self: typing.Any,
    state_dict: typing.Any,
    optimizer_overrides: typing.Optional[typing.Dict[str, typing.Any]] = None,
) -> None:
    given = dict(self.param_groups[0])
    original(self, state_dict, optimizer_overrides)
    for name in OF_OPTIMIZERS:
        now, before = (_plain(group.get(name)) for group in (given, self.param_groups[0]))
        if name not in (optimizer_overrides or {}) and now != before:
            logger.warning(
                f"the optimizer continues with the checkpoint's {name}, {before}, not with {now}: "
                f"--optimizer-overrides \"{{'{name}': {now}}}\" changes it"
            )


def _plain(value: typing.Any) -> typing.Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value
