"""Repair BLEU of fairseq's validations."""

from typing import Any, Callable, Mapping, Sequence

import numpy as np

from fairseq_mega.compat.patching import around

ORDERS = 4  # maximum n of the n-grams of BLEU


@around("fairseq.tasks.translation", "TranslationTask.reduce_metrics")
def score_validations_without_words(
    original: Callable, self: Any, logging_outputs: Sequence[Mapping[str, Any]], criterion: Any
) -> None:
    """Also log the numbers of a batch with empty translations: fairseq skips them, and ends without any others."""
    from fairseq.logging import metrics

    original(self, logging_outputs, criterion)
    scored = [log for log in logging_outputs if "_bleu_sys_len" in log]
    if not scored or any(int(log[f"_bleu_totals_{order}"]) for log in scored for order in range(ORDERS)):
        return
    for name in ("counts", "totals"):
        metrics.log_scalar(f"_bleu_{name}", np.zeros(ORDERS))
    for name in ("_bleu_sys_len", "_bleu_ref_len"):
        metrics.log_scalar(name, sum(int(log[name]) for log in scored))
    metrics.log_derived("bleu", _bleu)


def _bleu(meters: Mapping[str, Any]) -> float:
    from sacrebleu.metrics import BLEU

    counts, totals = (list(meters[f"_bleu_{name}"].sum) for name in ("counts", "totals"))
    lengths = (int(meters[f"_bleu_{side}_len"].sum) for side in ("sys", "ref"))
    return round(BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp").score, 2)
