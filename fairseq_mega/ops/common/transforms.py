"""Derivatives that the compiled kernels lack: transforms of ``torch.func``, and forward-mode derivatives.

The kernels have the gradients of a backward pass only. While a transform (``jvp``, ``grad``, ``vmap``, ``jacrev``, ...)
or a level of ``torch.autograd.forward_ad`` is active, the automatic choice of a path is therefore one of PyTorch,
whichever of the tensors are differentiated.
"""

import logging
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

logger = logging.getLogger(__name__)

LIMIT = "the compiled kernels have the gradients of a backward pass only, no other derivative and no batching rule"
PATHS_VARIABLE = "FAIRSEQ_MEGA_PATHS"  # see dispatch.py
REMEDY = f"set {PATHS_VARIABLE}=reference, which chooses operators of PyTorch"
_logged = False


def _is_transformed_by_func() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_transformed() -> bool:
    """Return whether a transform of torch.func or a level of forward-mode derivatives is active."""
    return forward_ad._current_level >= 0 or _is_transformed_by_func()


def may_look(tensor: Tensor) -> bool:
    """Return whether a condition on the values of a tensor is possible and cheap.

    On a GPU the condition would synchronize, a compiled graph would be divided by it, and transforms of torch.func
    (vmap) refuse it.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()


def is_batched(gradient: Any) -> bool:
    """Return whether a gradient is one of several at once, as ``torch.autograd.grad(..., is_grads_batched=True)`` has.

    PyTorch calls an operator of its dispatcher for each of them, but no function of Python.
    """
    return isinstance(gradient, Tensor) and torch._C._functorch.is_legacy_batchedtensor(gradient)


def transform_unsupported() -> Optional[str]:
    """Return the reason why the compiled kernels cannot run under an active transform, or None; log it once."""
    if not is_transformed():
        return None
    _log_once()
    return f"torch.func or forward-mode derivatives are active, and {LIMIT}; {REMEDY}"


def _log_once() -> None:
    global _logged
    if not _logged:
        _logged = True
        logger.warning(f"without the compiled kernels, more slowly: torch.func or forward-mode derivatives; {LIMIT}")


# The compiler must not trace these functions. It traces a call again for other transforms, and for another level of
# forward-mode derivatives, a number that it reads above and then compares at each call.
_is_transformed_by_func._dynamo_marked_constant = True  # type: ignore[attr-defined]
_log_once._dynamo_marked_constant = True  # type: ignore[attr-defined]
