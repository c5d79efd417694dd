"""The tokeniser of BLEU for codes of languages and locales, and for text whose code tells nothing."""

from typing import List

import pytest
from sacrebleu.metrics import BLEU

from fairseq_mega.compat.patches import bleu_tokenizers
from fairseq_mega.compat.patches.bleu_tokenizers import tokenizer_for
from fairseq_mega.lab.evaluate.bleu import detokenize, sacre_bleu

CODES = {
    "zh": "zh zh_CN zh-Hans zh-TW zh_Hant_HK ZH zho zho_Hans cmn cmn-Hans-CN yue lzh wuu chi zh_CN.UTF-8 chinese"
    " zhs zht zhtw zh_Hant zho_Hant tw hk HK_Hant und-Hans simplified-chinese traditional_chinese Chinese_Simplified",
    "ja-mecab": "ja ja_XX ja-JP jpn jpn_Jpan jp Japanese jap",
    "ko-mecab": "ko ko-KR ko_KR kor kor_Hang kr korean Korean_South",
    "char": "th th_TH tha tha_Thai lo lao_Laoo km km_KH khm my my_MM mya_Mymr bo bod_Tibt dz shn_Mymr"
    " tha_Thai Thai khmer xx_Laoo ii iii_Yiii",
    "13a": "de deu deu_Latn en_GB en fr_XX vi cs pt-BR sr_Cyrl hi ar ru tgt zu zha jv"
    " en_HK en_TW ug_CN ms_MY zho_Latn mn_Cyrl",
}
TEXTS = {
    "zh": "今天早上老师在图书馆找到一本旧书。",
    "ja-mecab": "先生は今日、図書館で古い本を見つけました。",
    "ko-mecab": "오늘 아침 선생님은 도서관에서 (李华) 오래된 책을 찾았다.",
    "char": "วันนี้ครูพบหนังสือเก่าในห้องสมุด",
    "13a": "Heute fand die Lehrerin (李华) ein altes Buch.",
}


@pytest.fixture
def mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sacreBLEU's tokenisers need is there."""
    monkeypatch.setattr(bleu_tokenizers, "_works", lambda name: True)


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, codes in CODES.items() for code in codes.split()])
def test_a_code_has_the_tokenizer_of_its_language(name: str, code: str, mecab: None) -> None:
    assert tokenizer_for(code) == (name, None)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("code", ["tgt", "xx", "2", "text", "kr", "tw", "hk", "zho_Latn", ""])
def test_the_script_tells_what_the_code_does_not(name: str, code: str, mecab: None) -> None:
    assert tokenizer_for(code, [TEXTS[name]] * 3).name == name


@pytest.mark.parametrize(
    "text",
    [
        *("ສະບາຍດີ ທຸກຄົນ", "សួស្តីអ្នកទាំងអស់", "မင်္ဂလာပါအားလုံး", "བཀྲ་ཤིས་བདེ་ལེགས", "ꊿꂷꃅꄿꐨꐥ, ꌅꅍꂘꀋꐚꐥꌐ."),
        *("ᬫᬓᬲᬫᬶᬫᬦᬸᬲ", "ꦱꦧꦼꦤ꧀ꦲꦸꦮꦺꦴꦁ", "𗼇𗾔𗢳𗖵", "𛆁𛈬𛅰𛅱"),
    ],
)
def test_scripts_without_spaces_are_scored_by_characters(text: str) -> None:
    assert tokenizer_for("other", [text]).name == "char"


@pytest.mark.parametrize(
    "text",
    [
        "ꕉꕜꕮ ꔔꘋ ꖸ ꔰ ꗋꘋ ꕮꕨ ꔔꘋ ꖸ ꕎ ꕉꖸꕊ ꕴꖃ ꕃꔤꘂ ꗱ",
        "ꪹꪕꪸꪉ ꪀꪱ ꪋꪴ ꪎꪲꪉ ꪮꪮꪀ ꪣꪱ ꪻꪠ ꪁꪷ ꪻꪬ ꪼꪒ ꪕꪳ ꪕꪱꪉ",
        "ᮞᮊᮥᮙ᮪ᮔ ᮏᮜ᮪ᮙ ᮌᮥᮘᮢᮌ᮪ ᮊ ᮃᮜᮙ᮪ ᮓᮥᮑ",
    ],
)
def test_scripts_with_and_without_spaces(text: str) -> None:
    """Score text in such a script by words if it has spaces."""
    assert tokenizer_for("other", [text]).name == "13a"
    assert tokenizer_for("other", [text.replace(" ", "")]).name == "char"


@pytest.mark.parametrize("code", ["ja", "ja_XX", "ko", "kor_Hang kr korean Korean_South"])
def test_without_mecab_characters_are_scored_and_named(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu_tokenizers, "_works", lambda name: False)
    name, reason = tokenizer_for(code)
    assert name == "char" and reason is not None and "pip install 'sacrebleu[" in reason
    score, signature = sacre_bleu(["今日はいい天気です"], ["今日はいい天気でした"], code)
    assert 0 < score < 100 and "tok:char" in signature


@pytest.mark.parametrize(
    "broken", [RuntimeError("requires extra dependencies"), ImportError("no"), SystemExit(1), OSError("no dictionary")]
)
def test_any_failure_of_a_tokenizer_is_none_of_ours(broken: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: BLEU, *unused: object, **options: object) -> None:
        raise broken

    monkeypatch.setattr(BLEU, "__init__", fail)
    assert tokenizer_for("ja").name == "char"


@pytest.mark.parametrize("code", CODES["zh"].split())
def test_all_codes_score_alike(code: str) -> None:
    hypotheses: List[str] = ["老师今天在图书馆找到一本书。", "天气很好"]
    references = ["老师今天在图书馆里找到一本旧书。", "今天天气很好"]
    assert sacre_bleu(hypotheses, references, code) == sacre_bleu(hypotheses, references, "zh")
    assert sacre_bleu(hypotheses, references, "zh")[0] > 40


DETOKENIZED = {
    "fr fr_FR fra fre fr-CA FR": "C' est l' hiver .",
    "it it_IT ita": "l' inverno",
    "en en_GB eng en-US": "We know the man 's name .",
}


@pytest.mark.parametrize("codes", DETOKENIZED)
def test_a_locale_is_detokenized_as_its_language(codes: str) -> None:
    text, (language, *others) = DETOKENIZED[codes], codes.split()
    found = detokenize([text], language)
    assert found != detokenize([text], "xx") and all(detokenize([text], code) == found for code in others)
