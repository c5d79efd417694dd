"""Kinds of files by their first bytes: texts that begin as sound and pictures do, and data that begin as texts do."""

import random
from typing import List, Tuple

import pytest

from fairseq_mega.data.file_kinds import HEAD, NO_TEXT, kind_of

WORDS = [
    "ясно",
    "яркий день",
    "ящик",
    "яшма",
    "явление",
    "явка с повинной",
    "я\nты",
    "яюшка и её друзья",
    "юятный день",
]
LATIN: List[Tuple[str, str]] = [("ÿûÿ est rare", "latin-1"), ("ÿñ", "cp1252"), ("ЪПРНО", "koi8-r")]


@pytest.mark.parametrize(("text", "encoding"), [*((word, "cp1251") for word in WORDS), *LATIN])
@pytest.mark.parametrize("times", [1, 400])
def test_letters_are_no_sound_and_no_picture(text: str, encoding: str, times: int) -> None:
    assert kind_of((f"{text} " * times).encode(encoding)[:HEAD]) is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\xff\xfb\x90\x64" + bytes(400), "sound in MP3"),
        (b"\xff\xf1\x50\x80\x02\x1f\xfc" + b"\xde" * 400, "sound in AAC"),
        (b"\xff\x0a\x00\x10" + b"\x80" * 400, "a picture in JPEG XL"),
        ("我们很好".encode("utf-16"), "text in UTF-16"),
        ("прекрасный фильм\n".encode("utf-16"), "text in UTF-16"),
        ("\ufeffпрекрасный".encode("utf-16-be"), "text in UTF-16"),
        ("🙂🙃 emoji\n".encode("utf-16"), "text in UTF-16"),
    ],
)
def test_sound_pictures_and_marks_are_found_as_before(head: bytes, name: str) -> None:
    kind = kind_of(head)
    assert kind is not None and kind.name == name


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("size", [300, HEAD])
def test_random_bytes_are_no_text(seed: int, size: int) -> None:
    head = bytearray(random.Random(seed).randbytes(size))
    head[0], head[20:24] = 0x21, b"\0\0\0\0"
    assert kind_of(bytes(head)) is NO_TEXT


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("прекрасный фильм\n", "UTF-16LE"),
        ("很好的电影\n", "UTF-16BE"),
        ("영화가 좋다\n", "UTF-16LE"),
        ("טוב מאוד\n", "UTF-16BE"),
        ("ดีมาก 🙂\n", "UTF-16LE"),
        ("नमस्ते दुनिया\n", "UTF-16LE"),
        ("καλή ταινία\n", "UTF-16BE"),
        ("good film\n", "UTF-16LE"),
    ],
)
@pytest.mark.parametrize("times", [1, 40, 999])
def test_texts_without_a_mark_are_found(text: str, encoding: str, times: int) -> None:
    kind = kind_of((text * times).encode(encoding)[:HEAD])
    assert kind is not None and kind.encoding == encoding


@pytest.mark.parametrize("text", ["w1 w2\0 w3", "a film\0\n", "bon caf\u00e9\0 ici\n", "x\ty\0z\n" * 50, "\0good film"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_stray_zero_makes_no_wide_characters(text: str, times: int) -> None:
    assert kind_of((text * times).encode()) is NO_TEXT
