"""The tokeniser of BLEU for codes of languages and locales."""

from typing import List

import pytest
from sacrebleu.metrics import BLEU

from fairseq_mega.lab.evaluate import bleu
from fairseq_mega.lab.evaluate.bleu import detokenize, sacre_bleu, tokenizer_for

CODES = {
    "zh": "zh zh_CN zh-Hans zh-TW zh_Hant_HK ZH zho zho_Hans cmn yue",
    "ja-mecab": "ja ja_XX ja-JP jpn jpn_Jpan",
    "ko-mecab": "ko ko-KR ko_KR kor kor_Hang",
    "char": "th th_TH tha tha_Thai lo lao_Laoo km khm my my_MM mya_Mymr bo bod_Tibt",
    "13a": "de deu deu_Latn en_GB fr_XX vi cs pt-BR sr_Cyrl hi ar ru tgt zu zha jv en_HK en_TW",
}


@pytest.fixture
def mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sacreBLEU's tokenisers need is there."""
    monkeypatch.setattr(bleu, "BLEU", lambda tokenize: None)


@pytest.mark.parametrize("name", CODES)
def test_a_code_has_the_tokenizer_of_its_language(name: str, mecab: None) -> None:
    assert {tokenizer_for(code) for code in CODES[name].split()} == {(name, None)}


def without_mecab(tokenize: str) -> BLEU:
    if "mecab" in tokenize:
        raise RuntimeError("requires extra dependencies")
    return BLEU(tokenize=tokenize)


@pytest.mark.parametrize("code", ["ja", "ja_XX", "ko", "kor_Hang"])
def test_without_mecab_characters_are_scored_and_named(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu, "BLEU", without_mecab)
    name, reason = tokenizer_for(code)
    assert name == "char" and reason is not None and "pip install 'sacrebleu[" in reason
    score, signature = sacre_bleu(["今日はいい天気です"], ["今日はいい天気でした"], code)
    assert 0 < score < 100 and "tok:char" in signature


def test_all_codes_score_alike() -> None:
    hypotheses: List[str] = ["老师今天在图书馆找到一本书。", "天气很好"]
    references = ["老师今天在图书馆里找到一本旧书。", "今天天气很好"]
    scores = {sacre_bleu(hypotheses, references, code) for code in CODES["zh"].split()}
    assert len(scores) == 1 and scores.pop()[0] > 40


DETOKENIZED = {
    "fr fr_FR fr-CA FR": "C' est l' hiver .",
    "it it_IT": "l' inverno",
    "en en_GB en-US": "We know the man 's name .",
}


@pytest.mark.parametrize("codes", DETOKENIZED)
def test_a_locale_is_detokenized_as_its_language(codes: str) -> None:
    text, (language, *others) = DETOKENIZED[codes], codes.split()
    found = detokenize([text], language)
    assert found != detokenize([text], "xx") and all(detokenize([text], code) == found for code in others)
