"""A stand-in for apex's compiled kernels of optimisers."""

from typing import Any, List

USED: List[int] = []  # tensors of each call


def multi_tensor_adam(
    chunk: int, overflow: Any, lists: List[Any], lr: float, beta1: float, beta2: float, *more: Any
) -> None:
    """Adam with decoupled weight decay; both moments are corrected for their bias."""
    eps, step, decoupled, correct, decay = more
    assert decoupled and correct
    USED.append(len(lists[0]))
    for gradient, parameter, first, second in zip(*lists):
        first.mul_(beta1).add_(gradient, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        direction = first / (1 - beta1**step) / ((second / (1 - beta2**step)).sqrt() + eps)
        parameter.sub_(lr * (direction + decay * parameter))
