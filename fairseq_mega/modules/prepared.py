"""Values that the steps of a stream compute from parameters alone, kept from step to step."""

from typing import Any, Callable, Dict, Hashable, Tuple

import torch
from torch import nn


class Prepared:
    """Values that one layer keeps for the single steps of one stream; part of the stream's cache.

    A value is kept while gradients are off, the module is in evaluation mode and its parameters are the same tensors at
    the same version. A write to ``parameter.data`` leaves the version as it is: a new stream, and every call of several
    steps, therefore begins with nothing prepared. The result of a parametrisation has no version of its own, so that
    nothing is kept of it.
    """

    def __init__(self) -> None:
        self._values: Dict[Hashable, Tuple[Any, Any]] = {}

    def get(self, module: nn.Module, key: Hashable, compute: Callable[[], Any]) -> Any:
        """``compute()`` from the parameters of ``module`` itself, or the value it returned before under that key.

        The value is shared by all steps; the caller leaves it as it is.
        """
        if torch.compiler.is_compiling():
            return compute()
        if module.training or torch.is_grad_enabled():
            self._values.clear()  # an optimiser may be about to write
            return compute()
        if "parametrizations" in module._modules:  # as is_parametrized says, which takes a hundred times longer
            return compute()
        now = []
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            if parameter.is_inference():
                return compute()
            now.append((parameter.data_ptr(), parameter.dtype, parameter._version))
        before, value = self._values.get(key, (None, None))
        if before != now:
            value = compute()
            self._values[key] = now, value
        return value

    def __reduce__(self) -> Tuple[Any, ...]:
        return Prepared, ()  # neither copied nor pickled: another process has other parameters
