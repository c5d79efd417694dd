"""Options of fairseq's task of translation: alignments, weights of training sets, and BLEU by the target's language."""

import argparse
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest
from fairseq import options, scoring
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask

from fairseq_mega.compat.patches import bleu_tokenizers, translating
from fairseq_mega.lab.evaluate.bleu import sacre_bleu
from tests.support import helpers

REFERENCES = {
    "zh": "今天早上老师在图书馆找到一本旧书。",
    "th": "วันนี้ครูพบหนังสือเก่าในห้องสมุด",
    "de": "Heute fand sie ein Buch.",
}
TRANSLATIONS = {
    "zh": "今天早上老师在图书馆找到一本新书。",
    "th": "วันนี้ครูพบหนังสือในห้องสมุด",
    "de": "Heute fand sie ein Buch!",
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("code", ["zh", "zh_CN", "th", "de"])
def test_sacrebleu_is_that_of_the_language(code: str, named: bool, tmp_path: Path) -> None:
    """A language that is named decides, and else the folder's."""
    (tmp_path / f"test.en-{code}.en.bin").touch()
    words = [str(tmp_path), "--path", "x", "--scoring", "sacrebleu", "--task", "translation"]
    words += ["--source-lang", "en", "--target-lang", code] if named else []
    parsed = options.parse_args_and_arch(options.get_generation_parser(), words)
    scorer = scoring.build_scorer(convert_namespace_to_omegaconf(parsed).scoring, None)
    scorer.add_string(REFERENCES[code[:2]], TRANSLATIONS[code[:2]])
    wanted, _ = sacre_bleu([TRANSLATIONS[code[:2]]], [REFERENCES[code[:2]]], code)
    assert scorer.score() == pytest.approx(wanted) and 20 < wanted < 100


@pytest.mark.parametrize(
    ("given", "words", "tokenizer"),
    [
        ({"target_lang": "zh"}, [], "zh"),
        ({"target_lang": "ja_XX"}, [], "ja-mecab"),
        ({"target_lang": "th"}, [], "char"),
        ({"target_lang": "de"}, [], "13a"),
        ({"target_lang": "zh"}, ["--sacrebleu-tokenizer", "13a"], "13a"),
        ({"target_lang": "zh"}, ["--sacrebleu-tokenizer=13a"], "13a"),
        ({"target_lang": "zh", "sacrebleu_char_level": True}, [], "13a"),
        ({"target_lang": "zh", "scoring": "bleu"}, [], "13a"),
        ({"target_lang": "zh", "max_update": 3}, [], "13a"),
    ],
)
def test_the_tokenizer_is_chosen(
    given: Dict[str, Any], words: List[str], tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bleu_tokenizers, "_works", lambda name: True)
    usual = {"scoring": "sacrebleu", "sacrebleu_tokenizer": "13a", "sacrebleu_char_level": False, "gen_subset": "test"}
    namespace = argparse.Namespace(**{**usual, **given})
    translating.choose_tokenizer(namespace, words)
    assert namespace.sacrebleu_tokenizer == tokenizer


@pytest.mark.parametrize(("code", "tokenized"), [("zh", False), ("zh", True), ("th", False), ("de", False)])
def test_bleu_of_a_validation_is_that_of_the_language(
    code: str, tokenized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sacrebleu

    def score(self: Any) -> Any:
        return sacrebleu.corpus_bleu(
            [TRANSLATIONS[code]], [[REFERENCES[code]]], **({"tokenize": "none"} if tokenized else {})
        )

    before = sacrebleu.corpus_bleu
    task = argparse.Namespace(cfg=argparse.Namespace(target_lang=code, eval_tokenized_bleu=tokenized))
    found = translating._score_in_language(score, task).score
    wanted, _ = sacre_bleu([TRANSLATIONS[code]], [REFERENCES[code]], code)
    assert found == pytest.approx(0 if tokenized else wanted, abs=1e-6) and sacrebleu.corpus_bleu is before
    assert hasattr(TranslationTask._inference_with_bleu, "wrappers_of_fairseq_mega")


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


def with_second_part(corpus: Path, folder: Path) -> Path:
    """The data with another training set, train1, of the validation pairs."""
    shutil.copytree(corpus, folder)
    for path in list(folder.glob("valid.*")):
        shutil.copyfile(path, folder / path.name.replace("valid.", "train1.", 1))
    return folder


@pytest.mark.parametrize(("weight", "times"), [([], 1), (["--upsample-primary", 1], 1), (["--upsample-primary", 3], 3)])
def test_a_second_training_set_is_read(weight: List[object], times: int, tiny_corpus: Path, tmp_path: Path) -> None:
    """Whole and once, beside the first, which the option repeats."""
    data = with_second_part(tiny_corpus, tmp_path / "data")
    given = [data, *helpers.TINY_TRAINING, "--cpu", "--max-epoch", 1, "--save-dir", tmp_path / "a", "--no-save"]
    output = helpers.run_fairseq("train", [*given, *weight])
    sizes = [int(number) for number in re.findall(r" (\d+) examples\n", output)]
    names = re.findall(r"data (\w+) en-de \d+ examples", output)
    first, second = (sizes[-len(names) :][names.index(name)] for name in ("train", "train1"))
    pairs = re.findall(r'"train_bsz": "([\d.]+)".*?"train_num_updates": "(\d+)"', output)[-1]
    assert float(pairs[0]) * int(pairs[1]) == pytest.approx(times * first + second, rel=0.01)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_alignments_that_are_not_there(
    split: str, tiny_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse to train without them; warn where a validation is without."""
    words = [str(tiny_corpus), "--task", "translation", "--load-alignments", "--arch", "transformer_tiny"]
    words += ["--criterion", "label_smoothed_cross_entropy_with_alignment"]
    parsed = options.parse_args_and_arch(options.get_training_parser(), words)
    task = TranslationTask.setup_task(convert_namespace_to_omegaconf(parsed).task)
    if split == "train":
        with pytest.raises(ValueError, match=r"--load-alignments: .*train.align.en-de does not exist: give --align"):
            task.load_dataset(split, combine=True)
    else:
        with caplog.at_level("WARNING"):
            task.load_dataset(split)
        assert "valid.align.en-de does not exist" in caplog.text
