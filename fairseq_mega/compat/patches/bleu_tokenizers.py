"""Choose the tokeniser of a BLEU score by the language of the text, also for text without spaces."""

import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

CHINESE, JAPANESE, KOREAN, UNSPACED = "zh", "ja", "ko", "unspaced"
USUAL, CHARACTERS = "13a", "char"
OF_LANGUAGE = {CHINESE: "zh", JAPANESE: "ja-mecab", KOREAN: "ko-mecab", UNSPACED: CHARACTERS}

# Codes of ISO 639-1 and -3 (and 639-2/B), frequent other codes, and English names.
_CODES = {
    CHINESE: "zh zho chi cmn yue wuu nan hak gan hsn lzh cdo cjy cpx czh czo mnp cn chs cht zhs zht zhcn zhtw zhhk chn"
    " twn hkg mandarin cantonese chinese",
    JAPANESE: "ja jpn jp jap japanese",
    KOREAN: "ko kor krn korean",
    UNSPACED: "th tha thai lo lao laotian km khm khmer cambodian my mya bur burmese myanmar bo bod tib tibetan dz dzo"
    " dzongkha shn nod khb ii iii nuosu",
}
LANGUAGES: Dict[str, str] = {code: language for language, codes in _CODES.items() for code in codes.split()}
_REGIONS = {
    "kr": KOREAN,
    "tw": CHINESE,
    "hk": CHINESE,
    "mo": CHINESE,
}  # also codes of Kanuri, Twi, Hiri Motu, Moldavian
_OF_SCRIPT = {
    CHINESE: "hans hant hani",
    JAPANESE: "jpan hira kana hrkt",
    KOREAN: "kore hang",
    UNSPACED: "thai laoo khmr mymr tibt yiii",
}
SCRIPTS: Dict[str, Optional[str]] = {code: language for language, codes in _OF_SCRIPT.items() for code in codes.split()}
SCRIPTS.update(dict.fromkeys(("latn", "cyrl", "arab")))  # scripts with spaces
_NAME = 5  # minimum letters of an English name, which may follow other words
_OF_MOSES = {"ces": "cs", "cze": "cs", "eng": "en", "fin": "fi", "fra": "fr", "fre": "fr", "gle": "ga", "ita": "it"}
_HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
_KANA = ((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F))
_HANGUL = ((0x1100, 0x11FF), (0x3131, 0x318E), (0xAC00, 0xD7A3))
# Thai, Lao, Tibetan, Burmese, Khmer, Tai Le and New Tai Lue, Tai Tham, Balinese, Yi, Javanese, Burmese, Tangut, Nushu
_OTHERS = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x1950, 0x19DF),
    (0x1A20, 0x1AAF),
    (0x1B00, 0x1B7F),
    (0xA000, 0xA4CF),
    (0xA980, 0xA9FF),
    (0xAA60, 0xAA7F),
    (0x17000, 0x18AFF),
    (0x1B170, 0x1B2FF),
)
# Buginese, Sundanese and Batak, Vai, Cham, Tai Viet: in some texts with spaces between words, in others without
_EITHER = ((0x1A00, 0x1A1F), (0x1B80, 0x1BFF), (0xA500, 0xA63F), (0xAA00, 0xAA5F), (0xAA80, 0xAADF))
_LONG = 10  # letters, without signs of vowels: a longer word on average is a phrase


class Tokenizer(NamedTuple):
    """Name of sacreBLEU's tokeniser, and the reason if it is not the usual one of the language."""

    name: str
    reason: Optional[str] = None


def language_of(code: str, text: Iterable[str] = ()) -> Optional[str]:
    """Return the language that determines the tokeniser, None for languages with spaces between words.

    Args:
        code: code of a language, a locale or a region, such as ``zh_CN``, ``cmn``, ``zho_Hans``, ``ja_XX`` or ``tw``,
            or a name, such as ``traditional_chinese``.
        text: text in the language. Its most frequent script decides unless the code names a language without spaces.
            A region whose code is also a language's counts only if the text has no letters.
    """
    parts = _parts(code)
    script = next((part for part in parts[1:] if part in SCRIPTS), None)
    if script is not None:
        return SCRIPTS[script] or _language_of_script(text)[0]
    names = (part for part in parts[1:] if len(part) >= _NAME)
    named = next((LANGUAGES[part] for part in (parts[0], *names) if part in LANGUAGES), None)
    if named is not None:
        return named
    found, letters = _language_of_script(text)
    return found if letters else _REGIONS.get(parts[0])


def language_of_moses(code: str) -> str:
    """Return Moses' two-letter code for the code of a language or a locale."""
    first = _parts(code)[0]
    return LANGUAGES.get(first) or _OF_MOSES.get(first, first)


def _parts(code: str) -> List[str]:
    return re.split(r"[-_.@\s]+", code.strip().lower())


def _language_of_script(text: Iterable[str]) -> Tuple[Optional[str], int]:
    """Return the language of most letters of a text, and their number."""
    han = kana = hangul = others = either = letters = words = 0
    for line in text:
        words += len(line.split())
        for character in filter(str.isalpha, line):
            number = ord(character)
            letters += 1
            han += _within(number, _HAN)
            kana += _within(number, _KANA)
            hangul += _within(number, _HANGUL)
            others += _within(number, _OTHERS)
            either += _within(number, _EITHER)
    if letters > _LONG * words:
        others += either
    if 2 * hangul > letters:
        return KOREAN, letters
    if 2 * (han + kana + others) <= letters:
        return None, letters
    if others > han + kana:
        return UNSPACED, letters
    return JAPANESE if 10 * kana > han + kana else CHINESE, letters


def _within(number: int, ranges: Iterable["tuple[int, int]"]) -> bool:
    return number > 0xDFF and any(first <= number <= last for first, last in ranges)


def tokenizer_for(code: str, text: Iterable[str] = ()) -> Tokenizer:
    """Return the tokeniser for a language; characters if the language's tokeniser is not installed."""
    language = language_of(code, text)
    if language is None:
        return Tokenizer(USUAL)
    name = OF_LANGUAGE[language]
    if _works(name):
        return Tokenizer(name)
    remedy = f"run pip install 'sacrebleu[{language}]'"
    return Tokenizer(CHARACTERS, f"sacreBLEU's {name} does not work here; {remedy}")


def _works(name: str) -> bool:
    from sacrebleu.metrics import BLEU

    try:
        return name in BLEU.TOKENIZERS and BLEU(tokenize=name) is not None
    except (Exception, SystemExit):  # MeCab raises various errors if a dictionary is missing
        return False
