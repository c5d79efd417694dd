"""Options of fairseq's task of translation that it reads past: alignments, weights of data, the language of BLEU."""

import contextlib
import functools
import logging
import os
import typing

import numpy as np

from fairseq_mega.compat.patching import wrap

from . import paths
from .bleu_tokenizers import USUAL, tokenizer_for

logger = logging.getLogger("fairseq_mega.compat.patches.translating")
ORDERS = 4  # of the n-grams of BLEU


def load_what_is_asked_for() -> None:
    """Refuse --load-alignments without alignments, and --upsample-primary without further training sets."""
    from fairseq.tasks import translation

    wrap(translation, "load_langpair_dataset", _load_pairs)


def _load_pairs(
    original: typing.Callable,
    data_path: str,
    split: str,
    src: str,
    src_dict: typing.Any,
    tgt: str,
    tgt_dict: typing.Any,
    combine: bool,
    dataset_impl: typing.Any,
    upsample_primary: int,
    *args: typing.Any,
    **kwargs: typing.Any,
) -> typing.Any:
    from fairseq.data import indexed_dataset

    names = [os.path.join(data_path, f"{split}1.{pair}.{src}") for pair in (f"{src}-{tgt}", f"{tgt}-{src}")]
    several = combine and any(indexed_dataset.dataset_exists(name, impl=dataset_impl) for name in names)
    if combine and upsample_primary > 1 and not several:
        raise ValueError(
            f"--upsample-primary {upsample_primary}: {data_path} has no {os.path.basename(names[0])}, no second "
            f"training set beside which the first could weigh more: leave it out"
        )
    how = (src, src_dict, tgt, tgt_dict, combine, dataset_impl, max(1, upsample_primary))  # -1, the default, loses data
    pairs = original(data_path, split, *how, *args, **kwargs)
    if kwargs.get("load_alignments") and pairs.align_dataset is None:
        missing = f"--load-alignments: {os.path.join(data_path, f'{split}.align.{src}-{tgt}')} does not exist"
        if combine:
            raise ValueError(f"{missing}: give --align-suffix to fairseq-preprocess, or leave it out")
        logger.warning(f"{missing}: the loss of {split} is without that of alignments")
    return pairs


def score_as_the_language_is_written() -> None:
    """Let --eval-bleu cut words as the target language has them, and count a validation without any words as 0."""
    from fairseq.tasks.translation import TranslationTask

    wrap(TranslationTask, "_inference_with_bleu", _score_in_language)
    wrap(TranslationTask, "reduce_metrics", _reduce_with_bleu)


def _score_in_language(original: typing.Callable, self: typing.Any, *args: typing.Any) -> typing.Any:
    name = tokenizer_for(self.cfg.target_lang).name
    if name == USUAL or self.cfg.eval_tokenized_bleu:
        return original(self, *args)
    with _usual_tokenizer(name):
        return original(self, *args)


@contextlib.contextmanager
def _usual_tokenizer(name: str) -> typing.Iterator[None]:
    """Let sacreBLEU cut words by another tokeniser where none is asked for."""
    import sacrebleu

    before = sacrebleu.corpus_bleu
    sacrebleu.corpus_bleu = functools.partial(before, tokenize=name)
    try:
        yield
    finally:
        sacrebleu.corpus_bleu = before


def _reduce_with_bleu(
    original: typing.Callable,
    self: typing.Any,
    logging_outputs: typing.Sequence[typing.Mapping[str, typing.Any]],
    criterion: typing.Any,
) -> None:
    """Log the numbers of a batch whose translations are empty, too, which fairseq leaves out."""
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


def choose_tokenizer(namespace: typing.Any, words: typing.Sequence[str]) -> None:
    """Let --scoring sacrebleu cut words as the target language has them, unless an option says how.

    Args:
        namespace: options of fairseq-generate; those of other commands stay as they are.
        words: of the command line.
    """
    given = vars(namespace)
    if given.get("scoring") != "sacrebleu" or "gen_subset" not in given or "max_update" in given:
        return
    if given["sacrebleu_char_level"] or any(word.startswith("--sacrebleu-tok") for word in words):
        return
    code = _target_language(given)
    found = tokenizer_for(code)
    if found.name == USUAL:
        return
    namespace.sacrebleu_tokenizer = found.name
    reason = f" ({found.reason})" if found.reason else ""
    logger.info(
        f"--scoring sacrebleu cuts {code} with the tokeniser {found.name}{reason}: --sacrebleu-tokenizer takes another"
    )


def _target_language(given: typing.Mapping[str, typing.Any]) -> str:
    """The language that is given, or the one of the data folder; "" where it has none."""
    from fairseq.data import data_utils

    folder = paths.split(given.get("data") or ".")[0]
    if given.get("target_lang") or not os.path.isdir(folder):
        return given.get("target_lang") or ""
    return data_utils.infer_language_pair(folder)[1] or ""
