"""Values that modules compute from their parameters, kept from step to step of decoding."""

from typing import Any, Callable, Dict, Hashable, Tuple

import torch
from torch import nn


class DerivingModule(nn.Module):
    """A module that computes something from its parameters alone, and need not do so at every step of decoding.

    :meth:`derived` keeps values while gradients are off, the module is in evaluation mode and its parameters are the
    same tensors at the same version. A write to ``parameter.data`` leaves the version as it is: modules therefore call
    :meth:`forget` in every call that is no single further step of a stream, and :meth:`train` does. What a
    parametrisation computes has no version of its own, so that nothing is kept of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._derived: Dict[Hashable, Tuple[Any, Any]] = {}

    def derived(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """``compute()``, or what it returned before under that key; not to be changed by the caller."""
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return compute()
        if "parametrizations" in self._modules:  # as torch's is_parametrized says, which takes a hundred times longer
            return compute()
        parameters = self._parameters.values()
        if any(parameter is None or parameter.is_inference() for parameter in parameters):
            return compute()
        now = [(parameter.data_ptr(), parameter.dtype, parameter._version) for parameter in parameters]  # type: ignore
        before, value = self._derived.get(key, (None, None))
        if before != now:
            value = compute()
            self._derived[key] = now, value
        return value

    def forget(self) -> None:
        """Compute everything anew from now on."""
        if not torch.compiler.is_compiling():
            self._derived.clear()

    def train(self, mode: bool = True) -> "DerivingModule":
        """Set training or evaluation mode, as every module."""
        self.forget()
        return super().train(mode)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_derived": {}}  # neither copied nor pickled
