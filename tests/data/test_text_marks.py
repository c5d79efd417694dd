"""Marks of other tools in texts."""

import pytest

from fairseq_mega.data.text_marks import PROCESSED

MISREAD = next(mark for name, mark in PROCESSED.items() if name.startswith("letters such as"))
TEXTS = (
    *(
        "Où est le café ?",
        "привет мир",
        "你好世界",
        "こんにちは",
        "안녕하세요",
        "مرحبا بالعالم",
        "שלום עולם",
        "Καλημέρα",
    ),
    *("नमस्ते", "สวัสดี", "zażółć gęślą", "Tiếng Việt", "güneş ışığı", "příliš žluťoučký", "it’s “good”"),
)
PLAIN = (
    "« café\xa0» à Noël",
    "Spaß“ und daß” Fuß»",
    "CAFÉ“ MENÜ” PÅ",
    "façade — “déjà vu”…",
    "«¡Qué!»",
    "Ñandú",
    "NÃO",
)


def as_cp1252(text: str) -> str:
    """Return UTF-8 as a reader of cp1252 has it that takes the bytes without a letter for control characters."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


@pytest.mark.parametrize("text", TEXTS)
def test_misread_letters_of_every_script(text: str) -> None:
    assert MISREAD(text.encode().decode("latin-1")) and MISREAD(as_cp1252(text)) and not MISREAD(text)


@pytest.mark.parametrize("text", PLAIN)
def test_letters_with_accents_are_none(text: str) -> None:
    assert not MISREAD(text)
