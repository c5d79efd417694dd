"""fairseq's ``cross_entropy`` and ``label_smoothed_cross_entropy`` by a kernel that reads logits once.

fairseq writes the log probability of every token of every row and reads or writes them about ten times. Importing this
module replaces the computation on CPUs; losses and gradients are the same up to rounding.
"""

from typing import Any, Callable, Optional, Tuple

from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import BaseFairseqModel, FairseqDecoder
from torch import Tensor

from fairseq_mega.compat.patching import wrap
from fairseq_mega.ops.cross_entropy import PATHS, cross_entropy

MAKE_PROBABILITIES = ("get_normalized_probs", "get_normalized_probs_scriptable")


def _is_plain(owner: Any, base: type) -> bool:
    """Return whether probabilities are fairseq's: the softmax of all tokens."""
    return all(getattr(getattr(owner, name, None), "__func__", None) is vars(base)[name] for name in MAKE_PROBABILITIES)


def _logits(model: Any, output: Any) -> Optional[Tensor]:
    """Return the logits (n, V) of an output if the kernel can compute its loss, else None."""
    decoder = getattr(model, "decoder", None)
    if decoder is None or getattr(decoder, "adaptive_softmax", None) is not None:
        return None
    if not (_is_plain(model, BaseFairseqModel) and _is_plain(decoder, FairseqDecoder)):
        return None
    logits = output[0]
    if not isinstance(logits, Tensor) or logits.device.type != "cpu" or logits.numel() == 0:
        return None
    logits = logits.reshape(-1, logits.size(-1))
    return logits if PATHS.choose(None, logits, logits) == "native" else None


def _losses(criterion: Any, model: Any, output: Any, sample: Any, reduce: bool) -> Optional[Tuple[Tensor, Tensor]]:
    """Return the kernel's losses of the targets and of all tokens, by row or summed; None without the kernel."""
    logits = _logits(model, output)
    if logits is None:
        return None
    target = model.get_targets(sample, output).reshape(-1)
    nll, smooth = cross_entropy(logits, target, ignore_index=criterion.padding_idx)
    return (nll.sum(), smooth.sum()) if reduce else (nll, smooth)


def _compute_loss(original: Callable, self: Any, model: Any, output: Any, sample: Any, reduce: bool = True) -> Any:
    losses = _losses(self, model, output, sample, reduce)
    return original(self, model, output, sample, reduce) if losses is None else (losses[0], losses[0])


def _smoothed_loss(original: Callable, self: Any, model: Any, output: Any, sample: Any, reduce: bool = True) -> Any:
    makes_its_own = type(self).get_lprobs_and_target is not LabelSmoothedCrossEntropyCriterion.get_lprobs_and_target
    ours = not makes_its_own and self.ignore_prefix_size <= 0
    losses = _losses(self, model, output, sample, reduce) if ours else None
    if losses is None:
        return original(self, model, output, sample, reduce)
    nll, smooth = losses
    share = self.eps / (output[0].size(-1) - 1)
    loss = (1.0 - self.eps - share) * nll + share * smooth
    return (loss, nll) if reduce else (loss[:, None], nll[:, None])


wrap(CrossEntropyCriterion, "compute_loss", _compute_loss)
wrap(LabelSmoothedCrossEntropyCriterion, "compute_loss", _smoothed_loss)
