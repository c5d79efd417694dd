"""Marks of other tools in texts."""

import csv
import io
import re
from typing import Any, Dict, List, Optional, Tuple

import pytest

from fairseq_mega.data.text_marks import PROCESSED, told_marks

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


@pytest.mark.parametrize("text", ["????", "?? ????, ???.", "f?r B?cher", "Das Fr?hst?ck.", "it?s late", "caf\ufffd"])
def test_letters_that_an_encoding_lost(text: str) -> None:
    (note,) = told_marks("a.txt", [*map("line {}".format, range(99)), text])
    assert note.startswith("note: 1 of the 100 lines of a.txt hold ? or \ufffd in place of letters")


@pytest.mark.parametrize(
    "text", ["What?", "What??", "?", "¿Qué?", "see a.php?id=1", "https://a.org/x?y", "a ? b : c", "e4?! d5??", "x?1:0"]
)
def test_question_marks_of_plain_text(text: str) -> None:
    assert not list(told_marks("a.txt", [*["plain", "text"] * 50, text]))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["the same"] * 300, "300 of the 300 lines of a.txt are 'the same'"),
        (["the same "] * 60 + ["", "an other"] * 40, "60 of the 100 lines of a.txt are 'the same'"),
        (["the same"] * 50 + [f"line {number}" for number in range(50)], None),
        ([""] * 300 + [f"line {number}" for number in range(50)], None),
        (["yes"] * 9, None),
        ([], None),
    ],
)
def test_one_line_in_most_places(lines: List[str], told: Optional[str]) -> None:
    notes = list(told_marks("a.txt", lines))
    assert [note.split(": ")[1] for note in notes] == [told] * (told is not None)


MARKED = {
    "symbols of other models such as <|endoftext|> (an empty line divides documents)": [
        "<|endoftext|>",
        "The end.<|endoftext|>Once",
        "<|im_start|>user",
        "<eos>",
        " [SEP]",
    ],
    "times of subtitles": ["00:00:01,000 --> 00:00:04,000", "01:02.500 --> 01:04.000 align:start"],
    "commands of LaTeX": [
        r"\begin{document}",
        r"so \emph{gut} wie",
        r"\subsubsection{Eins}",
        r"\textbf {x}",
        r"\cite[1]{a}",
    ],
    "marks of Markdown": ["## Titel", "```python", "ein **fetter** Satz", "ein [Name](https://a.b/c)", "[oben](#eins)"],
}
UNMARKED = [
    "a <| b",
    "x |> f(y)",
    "<s>kept</s>",
    "see [SEP] here",
    "# a comment",
    "#hashtag",
    "a ** b ** c",
    "x[0](y)",
    r"C:\textfiles\label",
    "10:30 --> 11:00",
    "a [1] (b)",
]


@pytest.mark.parametrize("name", MARKED)
def test_markup_of_other_kinds_of_files(name: str) -> None:
    (mark,) = (mark for what, mark in PROCESSED.items() if what == name)
    assert all(map(mark, MARKED[name])) and not any(map(mark, UNMARKED))


ESCAPED = [
    *(r"caf\u00e9", r"na\xefve", r"a \U0001f600", r"C\u0027est", r"\u4f60\u597d", r"caf\\u00e9"),
    *(r"The end.\nThe beginning", r"one,\r\ntwo, three\r\nFour", r"a line \n\nAn other", r"name\tAge", r"end\n"),
    *(r"one\ntwo words\nthree", r"конец\nначало", r"\"Yes,\" she said.", r"He said \"yes\".", r"don\'t", r"it\'s"),
    *(r"see https:\/\/example.org", r'"Yes," he said.\n"No," said she.', r"1. one\n2. two"),
]
MEANT = [
    *(
        r"a \new command",
        r"the gradient $\nabla f$",
        r"\textbf{x} and $x\neq y$",
        r"$P\to Q$, \noindent \rm",
        r"sch\"on",
    ),
    *(r"caf\'e d\'ej\`a \"{o} \u{a} \t{oo}", r"a \\ b \\", r"C:\new\temp", r"D:\Users\x41\New", r"\\server\share\New"),
    *(
        r'printf("Hello.\n");',
        r"print('caf\u00e9.\n')",
        r"b'1 2\n', f'{a}.\n'",
        r"`\n\nA` and `\u00e9`",
        r"don't say 'a.\n'",
    ),
    *(
        r"write \n for a line feed, \t for a TAB",
        r"the mark (\n) ends a line",
        r"\r\n ends lines",
        r"/(\d+)\n/",
        r"s/a/\n/",
    ),
    *(r"CORP\nancy", r"x\nu", r"\xdef\a{b}", r"\d{3}\-\w+", "\\", r"5\% of 3\$", r"AC\DC"),
]


@pytest.mark.parametrize("line", ESCAPED)
def test_escapes_with_a_backslash_are_told(line: str) -> None:
    (note,) = told_marks("a.txt", [*map("line {}".format, range(99)), line])
    assert note.startswith("note: 1 of the 100 lines of a.txt hold backslash escapes such as")


@pytest.mark.parametrize("line", MEANT)
def test_backslashes_of_code_latex_and_paths_are_meant(line: str) -> None:
    (mark,) = (mark for what, mark in PROCESSED.items() if what.startswith("backslash"))
    assert not mark(line)


CELLS = ["salt, above house", 'he said "no", twice', "road", "one, two, three"] * 30
TABLES: Dict[str, Tuple[List[Any], Dict[str, Any]]] = {  # rows, and options of the writer
    "fields with a comma": ([[cell] for cell in CELLS], {}),
    "fields with a semicolon": ([[cell.replace(",", ";")] for cell in CELLS], {"delimiter": ";"}),
    "a line break in a field": ([["salt, house\nbird above"], *([cell] for cell in CELLS)], {}),
    "all fields": ([["\u4f60\u597d"], ["\u518d\u89c1"]] * 30, {"quoting": csv.QUOTE_ALL}),
    "numbers of rows": ([["", "en"], *([number, "road"] for number in range(60))], {}),
    "an empty column": ([[cell, ""] for cell in CELLS], {}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_column_saved_as_csv_is_told(name: str) -> None:
    rows, options = TABLES[name]
    written = io.StringIO()
    csv.writer(written, **options).writerows(rows)
    (note,) = told_marks("a.txt", written.getvalue().splitlines())
    assert re.search(r"lines of a\.txt with .* have fields in double quotes, or numbers, as in a table of CSV", note)


@pytest.mark.parametrize(
    "line", ['"Come in, please," he said.', "salt, above house", '"No," she said, "never."', "3,5 Millionen"]
)
def test_speech_is_no_csv(line: str) -> None:
    assert not list(told_marks("a.txt", ['"Come in, please."', "plain", *(f"{line} {i}" for i in range(30))]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("the aff ##able house", "pieces of WordPiece"),
        ("the \u0120house \u0120is", "pieces of WordPiece"),
        ("[CLS] the house [SEP]", "symbols of other models such as [CLS]"),
        ("the house [PAD] [PAD]", "symbols of other models such as [CLS]"),
        ("take #1 or ## 2", None),
        ("see [1] and [a]", None),
        ("\u0120anni and \u0120u\u017c\u00e8 of Malta", None),
    ],
)
def test_tokens_of_other_models(text: str, told: Optional[str]) -> None:
    notes = list(told_marks("a.txt", [text, "another line", "a third"]))
    assert len(notes) == (told is not None) and all(str(told) in note for note in notes)
