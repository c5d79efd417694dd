"""NVIDIA's apex, which is optional: use its FusedAdam where it runs."""

import copy
from typing import Any, Callable, Dict, List

import torch

from fairseq_mega.compat.patching import around


def can_fuse(params: List[Any]) -> bool:
    """Return whether fairseq's FusedAdam can update these parameters: float32 or float16 on a GPU."""
    tensors = [tensor for entry in params for tensor in (entry["params"] if isinstance(entry, dict) else [entry])]
    return all(tensor.is_cuda and tensor.dtype in (torch.float32, torch.float16) for tensor in tensors)


@around("fairseq.optim.adam", "FairseqAdam.__init__")
def fuse_adam_where_it_runs(original: Callable, self: Any, cfg: Any, params: Any) -> None:
    """Use apex's FusedAdam for --optimizer adam only where it runs.

    fairseq uses FusedAdam whenever a GPU is visible, and fails with --cpu and with --memory-efficient-bf16.
    """
    params = list(params)
    if torch.cuda.is_available() and not getattr(cfg, "use_old_adam", False) and not can_fuse(params):
        cfg = copy.copy(cfg)
        cfg.use_old_adam = True
    original(self, cfg, params)


@around("fairseq.optim.adam", "FairseqAdam.load_state_dict")
def load_either_adam(
    original: Callable, self: Any, state_dict: Dict[str, Any], optimizer_overrides: Any = None
) -> None:
    """Load checkpoints of Adam and FusedAdam into both.

    Adam stores the number of steps for each parameter, FusedAdam for each group of parameters.
    """
    from fairseq.optim import adam

    fused = not isinstance(self.optimizer, adam.Adam)
    original(self, with_steps(state_dict, fused), optimizer_overrides)


def with_steps(state_dict: Dict[str, Any], fused: bool) -> Dict[str, Any]:
    """Return the state of Adam or FusedAdam in the form of FusedAdam (``fused``) or Adam."""
    states = {number: dict(state) for number, state in state_dict["state"].items()}
    groups = [dict(group) for group in state_dict["param_groups"]]
    for group in groups:
        steps = [states[number] for number in group["params"] if number in states]
        step_count = group.get("step", max((state.get("step", 0) for state in steps), default=0))
        if fused:
            group.setdefault("bias_correction", True)
            if steps:
                group["step"] = step_count
        else:
            group.setdefault("amsgrad", False)
            for state in steps:
                state.setdefault("step", step_count)
    return {**state_dict, "state": states, "param_groups": groups}
