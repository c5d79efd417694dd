"""BLEU of fairseq's validations."""

import argparse
from typing import Any, Dict, Optional, Sequence

import pytest
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask

import fairseq_mega  # noqa: F401  # repairs the task


@pytest.mark.parametrize(("words", "bleu"), [((0, 0), 0.0), ((4, 0), 36.79), ((4, 4), 100.0), ((), None)])
def test_a_validation_without_words_has_bleu_0(words: Sequence[int], bleu: Optional[float]) -> None:
    """Empty translations, as after the first updates, have BLEU 0; updates themselves have no BLEU."""
    task: Any = TranslationTask.__new__(TranslationTask)
    task.cfg = argparse.Namespace(eval_bleu=True)
    with metrics.aggregate() as found:
        for right in words or (None,):
            log: Dict[str, Any] = {"loss": 1.0, "ntokens": 4, "nsentences": 1, "sample_size": 4}
            if right is not None:  # words of a translation, all of them right, beside a reference of four
                orders = {f"_bleu_{kind}_{n}": max(right - n, 0) for kind in ("counts", "totals") for n in range(4)}
                log.update(orders, _bleu_sys_len=right, _bleu_ref_len=4)
            task.reduce_metrics([log], CrossEntropyCriterion.__new__(CrossEntropyCriterion))
    assert found.get_smoothed_values().get("bleu") == bleu  # 100 / e where one of two is empty
