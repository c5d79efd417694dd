"""Products of bfloat16 on processors without an instruction for them, where PyTorch's are up to 200 times slower.

On such processors autocast's products round their operands to bfloat16, multiply them in float32 and round the result.
The numbers are the same up to the order of sums, and the time is about float32's, for gradients as well. The operators
of PyTorch are changed, and so every module under autocast; on other processors nothing is changed.
"""

import platform
import warnings
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from . import native

# What autocast multiplies in bfloat16 on a CPU; the others of its list are rare.
OPERATORS = (
    *("linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "scaled_dot_product_attention"),
    *(f"conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", ".padding")),
)
FEW = 2  # up to this number of rows, a product with autocast's copy in bfloat16 is faster than one in float32
_KEY = torch._C.DispatchKey.AutocastCPU


def multiplies_bfloat16() -> bool:
    """Return whether PyTorch and this processor multiply bfloat16 directly, at the level that the kernels run at."""
    by_torch = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if platform.machine().lower() in ("x86_64", "amd64") and native.PROBLEM is None:
        return by_torch and native.reaches("avx512_bf16")  # with AVX-512 alone PyTorch uses several instructions
    return by_torch


def rounds_rows(x: Tensor) -> bool:
    """Return whether autocast rounds x, which has more than FEW rows."""
    return x.numel() > FEW * x.size(-1) and torch.is_autocast_enabled(x.device.type)


def _has_few_rows(name: str, first: Any, second: Any) -> bool:
    return name == "linear" and first.numel() <= FEW * first.size(-1) and second.dim() == 2


def through_float32(name: str) -> Callable[..., Any]:
    """Return an operator that rounds its tensors as autocast does, and computes with them in float32.

    Args:
        name: of an operator of PyTorch that autocast casts.
    """
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    of_autocast = _kernel_of_autocast(name)
    below = torch._C.DispatchKeySet(_KEY)

    def run(keys: Any, *arguments: Any, **options: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        if of_autocast is not None and (dtype != torch.bfloat16 or _has_few_rows(name, *arguments[:2])):
            return of_autocast.call_boxed(keys, *arguments, **options)

        def cast(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == torch.float64:
                return value
            value = value.to(dtype)
            return value.float() if dtype == torch.bfloat16 else value

        with torch._C._ExcludeDispatchKeyGuard(below):
            found = operator(*map(cast, arguments), **{key: cast(value) for key, value in options.items()})
            return found.to(dtype) if found.dtype == torch.float32 else found

    return run


def _kernel_of_autocast(name: str) -> Optional[Any]:
    """Return the operator's own kernel, which keeps its rounded operands; None if PyTorch is too old to expose it."""
    get = getattr(torch.library, "get_kernel", None)
    return None if get is None else get(f"aten::{name}", _KEY.name)


def replace_products() -> torch.library.Library:
    """Replace autocast's products on CPUs by :func:`through_float32` for the lifetime of the returned library."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # that a kernel is replaced
        warnings.simplefilter("ignore", UserWarning)
        for name in OPERATORS:
            library.impl(name, through_float32(name), _KEY.name, with_keyset=True)
    return library


MULTIPLIES_BFLOAT16 = multiplies_bfloat16()
_replaced = None if MULTIPLIES_BFLOAT16 else replace_products()
