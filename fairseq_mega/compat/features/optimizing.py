"""Steps of the optimizer in few passes through memory, and on a GPU in few kernels.

fairseq's Adam makes one pass in place of seven. The norm of all gradients is one call in place of one call for each
parameter.
"""

import math
from collections import defaultdict
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from fairseq_mega.compat.patching import around


@around("fairseq.optim.fused_adam", "get_fused_adam_class")
def use_one_adam(original: Callable) -> None:
    """Make --optimizer adam the same with and without NVIDIA's apex, whose FusedAdam adds eps in another place.

    fairseq would use FusedAdam whenever a GPU is visible, also with --cpu.
    """


@around("fairseq.optim.adam", "Adam.step")
def step_at_once(original: Callable, self: torch.optim.Optimizer, closure: Any = None) -> Any:
    """Use PyTorch's fused kernel for --optimizer adam if all parameters are float32 on a CPU or GPU.

    Steps and states are fairseq's up to rounding.
    """
    groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
    if closure is not None or not all(_fits(group, parameters) for group, parameters in groups):
        return original(self, closure)
    with torch.no_grad():
        for group, parameters in groups:
            _step_group(self, group, parameters)
    return None


def _fits(group: Dict[str, Any], parameters: Sequence[Any]) -> bool:
    tensors = [tensor for parameter in parameters for tensor in (parameter, parameter.grad)]
    return not group.get("amsgrad", False) and all(
        t.device.type in ("cpu", "cuda") and t.dtype == torch.float32 and t.is_contiguous() for t in tensors
    )


def _step_group(optimizer: torch.optim.Optimizer, group: Dict[str, Any], parameters: Sequence[Any]) -> None:
    alike: Dict[Tuple[int, torch.device], List[Any]] = defaultdict(list)
    for parameter in parameters:
        state = optimizer.state[parameter]
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in state:
                state[name] = torch.zeros_like(parameter)
        state["step"] = state.get("step", group.get("step", 0)) + 1  # apex counted the steps of a group
        alike[state["step"], parameter.device].append(parameter)
    beta1, beta2 = group["betas"]
    decay = group["lr"] * group["weight_decay"]
    for (step, device), some in alike.items():
        if decay != 0:  # the kernel multiplies with 1 - decay, which float32 rounds
            torch._foreach_add_(some, some, alpha=-decay)
        states = [optimizer.state[parameter] for parameter in some]
        torch._fused_adamw_(
            [parameter.data for parameter in some],
            [parameter.grad for parameter in some],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [torch.full((), float(step), dtype=torch.float32, device=device)] * len(some),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"] / math.sqrt(1 - beta2**step),  # fairseq adds it before the correction of the bias
            amsgrad=False,
            maximize=False,
        )


@around("fairseq.utils", "clip_grad_norm_")
def measure_where_the_gradients_are(
    original: Callable,
    params: Any,
    max_norm: float,
    aggregate_norm_fn: Optional[Callable[[torch.Tensor], torch.Tensor]] = None,
) -> torch.Tensor:
    """Compute the norm of --clip-norm on the device of the gradients; the norm is fairseq's up to rounding.

    fairseq moves the norm to a visible GPU, which fails with --cpu.
    """
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    grads = [p.grad.detach() for p in params if p is not None and p.grad is not None]
    if not grads:
        return original(params, max_norm, aggregate_norm_fn)
    norm = total_norm(grads)
    if aggregate_norm_fn is not None:
        norm = aggregate_norm_fn(norm)
    if max_norm > 0:
        torch._foreach_mul_(grads, (float(max_norm) / (norm + 1e-6)).clamp(max=1))
    return norm


def total_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the Euclidean norm of all elements of tensors on one device, in float32."""
    if all(tensor.dtype == torch.float32 for tensor in tensors):
        norms = list(torch._foreach_norm(list(tensors)))
    else:
        norms = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms))
