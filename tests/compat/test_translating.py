"""fairseq's task of translation: the pair of languages of a folder, and BLEU."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import data_utils
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask

from fairseq_mega.compat.features import translating


def folder_of(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("files", "pairs"),
    [
        (["dict.en.txt", "train.en-de.en.bin", "train.en-de.de.bin", "valid.en-de.de.idx"], [("en", "de")]),
        (["train.en-de.en.bin", "train.en-fr.en.bin"], [("en", "de"), ("en", "fr")]),
        (["train.en-de.en", "test.de-en.en"], [("de", "en"), ("en", "de")]),
        (["dict.zh-Hans.txt", "train.en-zh-Hans.en.bin", "train.en-zh-Hans.zh-Hans.bin"], [("en", "zh-Hans")]),
        (["dict.zh-Hans.txt", "train.zh-Hans-ja.ja.bin"], [("zh-Hans", "ja")]),
        (["train.align.en-de.bin", "train.en-de.de.bin", "test.en-None.en.bin"], [("en", "de")]),
        (["test.en-None.en.bin"], [("en", "None")]),
        (["dict.txt", "train.bin", "preprocess.log", "a.b-c.d"], []),
    ],
)
def test_pairs_of_a_folder(files: List[str], pairs: List[Tuple[str, str]], tmp_path: Path) -> None:
    """One pair is taken, whatever else lies there; of several, none is."""
    folder = folder_of(tmp_path, *files)
    assert translating.pairs_of(str(folder)) == pairs
    if len(pairs) > 1:
        with pytest.raises(ValueError, match="--source-lang"):
            data_utils.infer_language_pair(str(folder))
    else:
        assert tuple(data_utils.infer_language_pair(str(folder))) == (pairs[0] if pairs else (None, None))


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
