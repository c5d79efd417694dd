"""Compute the norm of all gradients on their device, in one call in place of one call for each parameter."""

import typing

import torch

from fairseq_mega.compat.patching import around


@around("fairseq.utils", "clip_grad_norm_")
def measure_where_the_gradients_are(
    original: typing.Callable,
    params: typing.Any,
    max_norm: float,
    aggregate_norm_fn: typing.Optional[typing.Callable[[torch.Tensor], torch.Tensor]] = None,
) -> torch.Tensor:
    """Compute the norm of --clip-norm on the device of the gradients; the norm is fairseq's up to rounding.

    Without apex fairseq moves the norm to a visible GPU, which fails with --cpu.
    """
    params = [params] if isinstance(params, torch.Tensor) else [p for p in params if p is not None]
    grads = [p.grad.detach() for p in params if getattr(p, "grad", None) is not None]
    if not grads or any(hasattr(p, "expert") for p in params) or not _are_alike(grads):
        return original(params, max_norm, aggregate_norm_fn)
    norm = total_norm(grads)
    if aggregate_norm_fn is not None:
        norm = aggregate_norm_fn(norm)
    if max_norm > 0:
        torch._foreach_mul_(grads, (float(max_norm) / (norm + 1e-6)).clamp(max=1))
    return norm


def _are_alike(grads: typing.Sequence[torch.Tensor]) -> bool:
    plain = all(type(grad) is torch.Tensor and grad.layout == torch.strided for grad in grads)
    return plain and len({grad.device for grad in grads}) == 1


def total_norm(tensors: typing.Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the Euclidean norm of all elements of tensors on one device, in float32."""
    if all(tensor.dtype == torch.float32 for tensor in tensors):
        norms = list(torch._foreach_norm(list(tensors)))
    else:
        norms = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms))
