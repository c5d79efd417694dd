"""Operations of the operators, two for each product that is added to a sum, and their count by PyTorch.

``torch.utils.flop_counter.FlopCounterMode`` counts operators by formulas of their arguments' shapes. That module may
import a compiler, so the formulas are registered when somebody imports it.
"""

import math
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Callable, Dict, Optional, Sequence

import torch

from . import native

COUNTER = "torch.utils.flop_counter"
Formula = Callable[..., float]  # of an operator's arguments, with the shape of each tensor in its place
_FORMULAS: Dict[str, Formula] = {}


def map_operations(rows: int, *matrices: Sequence[int]) -> int:
    """Return the operations of linear maps of ``rows`` vectors, from the shapes of their matrices."""
    return 2 * rows * sum(map(math.prod, matrices))


def attention_operations(width: int, queries: int, keys: int, causal: bool = False) -> float:
    """Return the operations of queries with keys and of weights with values, whose widths add up to ``width``.

    The last ``queries`` of ``keys`` positions attend; a causal query sees on average half of theirs.
    """
    return 2.0 * width * queries * (keys - queries / 2 if causal else keys)


def average_operations(features: int, length: int) -> float:
    """Return the operations of a moving average over ``length`` steps: three FFTs of twice the length.

    The kernels may compute a recurrence, whose operations depend on the dimensions of a feature.
    """
    return 15.0 * features * length * math.log2(max(2, 2 * length))


def count(**formulas: Formula) -> None:
    """Make PyTorch count compiled operators by a formula each; their names are those in the extension."""
    if native.PROBLEM is not None:
        return
    _FORMULAS.update(formulas)
    if COUNTER in sys.modules:
        _register(formulas)


def _register(formulas: Dict[str, Formula]) -> None:
    counter: Any = sys.modules[COUNTER]
    operators = getattr(torch.ops, native.NAMESPACE)
    for name, formula in formulas.items():
        counter.register_flop_formula(getattr(operators, name))(_without_result(formula))


def _without_result(formula: Formula) -> Callable[..., int]:
    def counted(*arguments: Any, out_shape: Any = None) -> int:
        return round(formula(*arguments))

    return counted


class _Registration(MetaPathFinder):
    """Register the formulas when PyTorch's counter is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return the counter's own specification, with a loader that also registers; None for other modules."""
        spec = PathFinder.find_spec(name, path, target) if name == COUNTER else None
        if spec is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _register(_FORMULAS)

            loader.exec_module = exec_module
        return spec


if native.PROBLEM is None:
    sys.meta_path.insert(0, _Registration())
