"""Cross entropy of classes, with the accuracy and the number of examples."""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor


@dataclass
class LRACrossEntropyConfig(FairseqDataclass):
    """``--criterion lra_cross_entropy`` has no options."""


@register_criterion("lra_cross_entropy", dataclass=LRACrossEntropyConfig)
class LRACrossEntropyCriterion(FairseqCriterion):
    """Negative log likelihood of the classes; the gradient is divided by the number of examples.

    Targets may be weights of several classes, as after Mixup. The loss is then the cross entropy with the weights, and
    an example counts as correct if the prediction is the class of greatest weight.

    Logs ``loss`` (base 2, per example), ``accuracy`` in per cent and ``correct``, a text such as "1802 of 2000". To
    keep the checkpoint of best accuracy: ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric``.

    Source: the published code's criterion of this name.
    """

    def forward(self, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss of a batch.

        Args:
            model: maps ``net_input`` to logits (B, classes).
            sample: with ``target`` (B,) long, or weights (B, classes) that sum to one.
            reduce: add the losses of the examples.

        Returns:
            The summed loss, or the losses of the examples (B,); the number of examples; and the log.
        """
        logits = model(**sample["net_input"]).float()
        target = sample["target"]
        weighted = target.is_floating_point()
        target = target.float() if weighted else target.view(-1)
        loss = F.cross_entropy(logits, target, reduction="sum" if reduce else "none")
        examples = len(target)
        logged = {
            "loss": loss.detach().sum(),
            "ncorrect": (logits.argmax(dim=-1) == (target.argmax(dim=-1) if weighted else target)).sum(),
            "nsentences": examples,
            "ntokens": sample["ntokens"],
            "sample_size": examples,
        }
        return loss, examples, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the metrics of all batches and processes; sums of counts give every example the same weight."""

        def total(key: str) -> float:
            return float(sum(float(output.get(key, 0)) for output in logging_outputs))

        examples = total("nsentences")
        if examples == 0:
            return
        metrics.log_scalar("loss", total("loss") / examples / math.log(2), examples, round=3)
        metrics.log_scalar_sum("_correct", total("ncorrect"))
        metrics.log_scalar_sum("_examples", examples)
        metrics.log_derived("accuracy", accuracy)
        metrics.log_derived("correct", correct)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Return True: all outputs are counts or sums."""
        return True


def accuracy(meters: Any) -> float:
    """Return the accuracy in per cent with two digits; 0 if no example was counted."""
    return round(100.0 * meters["_correct"].sum / max(meters["_examples"].sum, 1.0), 2)


def correct(meters: Any) -> str:
    """Return the numbers of correct and of all examples as a text, for example "1802 of 2000"."""
    return f"{meters['_correct'].sum:.0f} of {meters['_examples'].sum:.0f}"
