"""Comparison of a fast path with a reference, and the inputs such comparisons use."""

import hashlib
from collections import OrderedDict
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

OUTPUT_FACTOR = 2.0  # a result may be this much further from float64 than the reference run in the same precision
GRADIENT_FACTOR = 3.0
RMS_CAP = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
KEPT = 64  # results that are shared; the cases of one function need fewer at a time
_RESULTS: OrderedDict[str, Any] = OrderedDict()


def assert_close(
    name: str, got: Tensor, want: Tensor, baseline: Optional[Tensor] = None, factor: float = OUTPUT_FACTOR
) -> None:
    """Compare a result with its float64 reference.

    Args:
        name: of the tensor, for the message.
        got: the result under test.
        want: the reference in float64.
        baseline: the reference run in the precision of ``got``; its error, ``factor`` times, is what is allowed, plus a
            few units in the last place of the largest value. Without it only the RMS error is capped.
    """
    assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert torch.isfinite(got).all(), f"{name}: not finite"
    if want.numel() == 0:
        return
    eps = torch.finfo(got.dtype).eps
    scale = want.abs().max().item()
    difference = (got.double() - want).abs()
    if baseline is not None:
        allowed = factor * (baseline.double() - want).abs().max().item() + 8 * eps * scale
        worst = difference.max().item()
        assert worst <= allowed, f"{name}: error {worst:.3g}, allowed {allowed:.3g} (largest value {scale:.3g})"
    rms = difference.square().mean().sqrt().item()
    cap = RMS_CAP[got.dtype] * want.square().mean().sqrt().item() + 8 * eps  # inputs are of order one
    assert rms <= cap, f"{name}: RMS error {rms:.3g}, allowed {cap:.3g}"


def gradients(output: Tensor, inputs: Dict[str, Tensor], seed: int = 0) -> Dict[str, Tensor]:
    """Gradients of a fixed random projection of ``output`` with respect to named inputs."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
    leaf_tensors = list(inputs.values())
    if not leaf_tensors:
        return {}
    found = torch.autograd.grad((output * weights).sum(), leaf_tensors, allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for name, leaf, gradient in zip(inputs, leaf_tensors, found)
    }


def leaves(tensors: Dict[str, Tensor], dtype: torch.dtype) -> Dict[str, Any]:
    """Fresh leaf tensors of the given precision that need gradients."""
    return {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in tensors.items()}


def assert_independent_of_threads(compute: Callable[[], Tuple[Tensor, Dict[str, Any]]]) -> None:
    """Compare an output and its gradients bit by bit for one, two and three threads.

    Args:
        compute: returns the output, and the named inputs whose gradients are compared too.
    """
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out, inputs = compute()
            results.append([out, *gradients(out, inputs).values()])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(got, want) for got, want in zip(other, results[0]))


def once(compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of ``compute`` for these arguments, computed once for all paths that are compared with it.

    The arguments may be tensors, dictionaries of them, and values with a short text form. The result is shared: it
    must not be changed, and ``compute`` must depend on nothing but its arguments. The results used longest ago are
    forgotten.
    """
    digest = hashlib.sha256(f"{compute.__module__}.{compute.__qualname__}".encode())

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for name in sorted(value):
                digest.update(f"{name}:".encode())
                add(value[name])
        elif isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}{value.device}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{value!r};".encode())

    add(dict(enumerate(arguments)))
    add(options)
    key = digest.hexdigest()
    if key not in _RESULTS:
        _RESULTS[key] = compute(*arguments, **options)
    _RESULTS.move_to_end(key)
    if len(_RESULTS) > KEPT:
        _RESULTS.popitem(last=False)
    return _RESULTS[key]
