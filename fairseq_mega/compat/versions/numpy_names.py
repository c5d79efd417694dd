"""Names that NumPy 2 removed, for the fairseq modules that still use them."""

import types
import typing

import numpy as np


class _NumpyWithRemovedNames(types.ModuleType):
    """numpy with np.compat.long and percentile(interpolation=), which fairseq's data modules use."""

    compat = types.SimpleNamespace(long=np.int64)

    @staticmethod
    def percentile(*args: typing.Any, interpolation: typing.Optional[str] = None, **kwargs: typing.Any) -> typing.Any:
        """Pass `interpolation` by its present name, `method`."""
        if interpolation is not None:
            kwargs["method"] = interpolation
        return np.percentile(*args, **kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(np, name)


def restore_removed_numpy_names() -> None:
    """Restore names that NumPy 2 removed in three fairseq modules, without changing numpy.

    --sample-break-mode eos and --num-batch-buckets require these names.
    """
    if hasattr(np, "compat"):
        return
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

    for module in (data_utils, language_pair_dataset, token_block_dataset):
        if not isinstance(module.np, _NumpyWithRemovedNames):
            module.np = _NumpyWithRemovedNames("numpy")
