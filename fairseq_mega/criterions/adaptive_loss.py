"""fairseq's ``adaptive_loss``, corrected to include every word.

An adaptive softmax numbers the words of each rarer band from 0. fairseq's criterion excludes the index of the padding
token, 1, from the loss of all bands, so the second word of each rarer band is never trained. Padding is in the first
band only. Importing this module corrects the criterion for all models.
"""

from typing import Any, Dict, Tuple, Type, cast

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from torch import Tensor

from fairseq_mega.ops.cross_entropy import PATHS, cross_entropy


def adaptive_nll(softmax: Any, features: Tensor, target: Tensor, pad: int) -> Tensor:
    """Return the sum of -log p(target), natural logarithm, in float32.

    Args:
        softmax: fairseq's AdaptiveSoftmax.
        features: (n, d), input of ``softmax``.
        target: (n,) long; ``pad`` is not scored.
        pad: index of the padding token, which lies in the first band.
    """
    total = features.new_zeros((), dtype=torch.float32)
    for band, (logits, classes) in enumerate(zip(*softmax(features, target))):
        if classes is not None:
            ignored = pad if band == 0 else -1
            if PATHS.choose(None, logits, classes) == "native":
                total = total + cross_entropy(logits, classes, ignore_index=ignored)[0].sum()
            else:
                total = total + F.cross_entropy(logits.float(), classes, ignore_index=ignored, reduction="sum")
    return total


def forward(self: AdaptiveLoss, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Any]:
    """Return the loss of a batch as AdaptiveLoss.forward does: loss, sample size and the log.

    Without ``reduce`` the loss is one number for each target (B * L,), 0 for padding.
    """
    softmax = model.decoder.adaptive_softmax
    output = model(**sample["net_input"])
    target = model.get_targets(sample, output)
    flat, features = target.reshape(-1), output[0]
    if reduce:
        loss = adaptive_nll(softmax, features.flatten(0, 1), flat, self.padding_idx)
    else:
        log_probabilities = softmax.get_log_prob(features, None).flatten(0, 1)
        loss = F.nll_loss(log_probabilities, flat, ignore_index=self.padding_idx, reduction="none")
    tokens = utils.strip_pad(flat, self.padding_idx).numel()
    sample_size = target.size(0) if self.sentence_avg else tokens
    logged = {"loss": loss.data, "ntokens": tokens, "nsentences": target.size(0), "sample_size": sample_size}
    return loss, sample_size, logged


AdaptiveLoss.forward = forward


def build_criterion(cls: Type[AdaptiveLoss], cfg: Any, task: Any) -> AdaptiveLoss:
    """Build the criterion; one process does not use the --ddp-backend, whose default fairseq refuses."""
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return cast(AdaptiveLoss, of_several_processes(cls, cfg, task))
    return cls(task, cfg.sentence_avg)


of_several_processes = AdaptiveLoss.build_criterion.__func__
AdaptiveLoss.build_criterion = classmethod(build_criterion)
