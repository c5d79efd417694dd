"""Repair fairseq's translation task: the pair of languages of a folder, and BLEU of validations."""

import os
import typing

import numpy as np

from fairseq_mega.compat.patching import around

ORDERS = 4  # maximum n of the n-grams of BLEU


def pairs_of(folder: str) -> typing.List[typing.Tuple[str, str]]:
    """Return the sorted pairs of languages of a folder's data; a code may contain hyphens, such as zh-Hans."""
    found = set()
    for name in os.listdir(folder):
        parts = name.split(".")
        pair, language = parts[1:3] if len(parts) > 2 else ("", "")
        if pair.startswith(f"{language}-"):
            found.add((language, pair[len(language) + 1 :]))
        elif pair.endswith(f"-{language}"):
            found.add((pair[: -len(language) - 1], language))
    whole = {pair for pair in found if "None" not in pair}  # fairseq-preprocess --only-source writes None
    return sorted(whole or found)


@around("fairseq.data.data_utils", "infer_language_pair")
def read_the_only_pair(
    original: typing.Callable, path: str
) -> typing.Tuple[typing.Optional[str], typing.Optional[str]]:
    """Return the pair of languages of a folder, (None, None) without one; fairseq chooses any of several pairs.

    Raises:
        OSError: if the folder does not exist.
        ValueError: if the folder has several pairs.
    """
    pairs = pairs_of(path)
    if len(pairs) > 1:
        found = " and ".join("-".join(pair) for pair in pairs)
        raise ValueError(f"{path} has data of {found}: give --source-lang and --target-lang")
    return pairs[0] if pairs else (None, None)


@around("fairseq.tasks.translation", "TranslationTask.reduce_metrics")
def score_validations_without_words(
    original: typing.Callable,
    self: typing.Any,
    logging_outputs: typing.Sequence[typing.Mapping[str, typing.Any]],
    criterion: typing.Any,
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


def _bleu(meters: typing.Mapping[str, typing.Any]) -> float:
    from sacrebleu.metrics import BLEU

    counts, totals = (list(meters[f"_bleu_{name}"].sum) for name in ("counts", "totals"))
    lengths = (int(meters[f"_bleu_{side}_len"].sum) for side in ("sys", "ref"))
    return round(BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp").score, 2)
