"""The timestep norm of sequences made of documents, each with separate statistics."""

from typing import Callable, Optional, Tuple

from torch import Tensor

from fairseq_mega.ops.common.parts import Parts

from .reference import TimestepNormState

Normalize = Callable[[Tensor, TimestepNormState, Optional[Tensor]], Tuple[Tensor, TimestepNormState]]


def timestep_norm_documents(
    normalize: Normalize,
    x: Tensor,
    state: TimestepNormState,
    fresh: TimestepNormState,
    documents: Parts,
    padding_mask: Optional[Tensor],
) -> Tuple[Tensor, TimestepNormState]:
    """Normalise every document separately, documents of similar length in one call.

    Args:
        normalize: function of x, statistics and padding mask, which returns the result and the statistics after it.
        x: (B, L, D).
        state: of the steps before, for sequences whose first document began there.
        fresh: of the same shapes, for all other documents.
        documents: of x.
        padding_mask: (B, L) bool, True = padding, or None.

    Returns:
        (B, L, D), and the statistics of the last document of each sequence.
    """
    begin = TimestepNormState(*(documents.carried(*pair) for pair in zip(state, fresh)))
    outputs, ends = [], []
    for group, rows, absent in zip(documents.groups, documents.split(x), documents.absent(padding_mask)):
        before = TimestepNormState(*(part[group.indices] for part in begin))
        y, after = normalize(rows, before, absent if bool(absent.any()) else None)
        outputs.append(y)
        ends.append(after)
    last = (documents.join_results(parts)[documents.last] for parts in zip(*ends))
    return documents.join(outputs), TimestepNormState(*last)
