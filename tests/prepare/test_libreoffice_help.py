"""Reading of LibreOffice help pages: pages of the real shape, and damaged ones."""

from pathlib import Path

import pytest

from fairseq_mega.lab.prepare.libreoffice_help import HelpCorpus, pair_paragraphs, read_page
from fairseq_mega.lab.prepare.translation.dataset import write_help_pairs
from tests.support.prepare_runs import refusal

# The frame of a real page: navigation with texts of its own, the content, and hidden notes at the end.
PAGE = """<!DOCTYPE html>
<html lang="{lang}" dir="ltr"><head><title>Frame Bar</title>
<script type="text/javascript">if (1 < 2) {{ x("<p id='par_id1'>no</p>") }}</script>
<meta name="viewport" content="width=device-width"></head><body>
<header id="TopLeftHeader"><a class="logo" href="x.html"><p dir="auto">LibreOffice 7.4 Help</p></a></header>
<div id="DisplayArea"><a name="bm_id3154262"></a>
{content}
</div>
<div id="DEBUG" class="debug"><h3 class="bug">Help content debug info:</h3><p id="bm_module">WRITER</p></div>
</body></html>"""


def page(content: str, lang: str = "en-US") -> str:
    return PAGE.format(lang=lang, content=content)


def test_texts_of_inline_elements_join_and_white_space_collapses() -> None:
    html = page(
        '<h1 id="hd_id31" dir="auto"><a href="a.html">Frame\n   Bar</a></h1>\n'
        '<p id="par_id32" class="paragraph" dir="auto"> <img src="x.svg" alt="Icon"> Choose '
        '<span class="emph">Edit - '
        "Paste&nbsp;Special</span>,<br>then <b>click</b> &lt;OK&gt; &amp; wait&#46;</p>"
    )
    assert read_page(html)[0] == [
        ("hd_id31", "Frame Bar"),
        ("par_id32", "Choose Edit - Paste Special, then click <OK> & wait."),
    ]


def test_only_content_paragraphs_are_read() -> None:
    html = page(
        '<p id="par_id1" class="code">Print "a"</p><p class="embedded">no id</p><p id="bm_id7">bookmark</p>'
        '<p id="par_id2">  \n </p><p id="par_id3"><img src="x.png"></p><li id="par_id4">no paragraph</li>'
        '<p id="par_id5">Text</p>'
    )
    assert read_page(html)[0] == [("par_id5", "Text")]


@pytest.mark.parametrize(
    ("alternatives", "want"),
    [
        (
            '<span hidden="true" id="MAC1">Command</span><span hidden="true" id="default1">Ctrl</span>',
            "Ctrl",
        ),
        (
            '<span id="default1"><span class="keycode">Ctrl</span></span><span id="MAC1">Command</span>',
            "Ctrl",
        ),
        ('<span id="WIN1" class="WIN">Alt</span>\n<span id="MAC1" class="MAC">Option</span>', "Alt"),
        ('<span id="MAC1" class="MAC">Command</span><span id="default1"></span>', ""),
        ("", ""),
    ],
)
def test_of_a_switch_one_alternative_remains(alternatives: str, want: str) -> None:
    html = page(f'<p id="par_id1">Press <span id="s1" class="switchinline">{alternatives}</span>+V now.</p>')
    assert read_page(html)[0] == [("par_id1", f"Press {want}+V now.")]


def test_a_switch_within_a_switch() -> None:
    inner = '<span class="switchinline"><span id="defaultB">two</span><span id="MACB">three</span></span>'
    html = f'<p id="par_id1">one <span class="switchinline"><span id="A">{inner} and</span></span> four</p>'
    assert read_page(html)[0] == [("par_id1", "one two and four")]


def test_damaged_markup_does_not_lose_what_follows() -> None:
    html = (
        '<p id="par_id1">left open <span class="emph">here<p id="par_id2">second</b></i></p></p>'
        '<h2 id="hd_id3">a < b & c</h2><p id="par_id4">cut <span class="switchinline"><span id="default">off'
    )
    assert read_page(html)[0] == [
        ("par_id1", "left open here"),
        ("par_id2", "second"),
        ("hd_id3", "a < b & c"),
        ("par_id4", "cut off"),
    ]


def test_pairs_need_the_same_id_equally_often() -> None:
    source = [
        ("par_id1", "one"),
        ("par_id2", "two"),
        ("par_id1", "one again"),
        ("par_id3", "three"),
        ("par_id4", "four"),
    ]
    target = [
        ("par_id3", "drei"),
        ("par_id1", "eins"),
        ("par_id1", "noch eins"),
        ("par_id4", "vier"),
        ("par_id4", "4"),
    ]
    assert pair_paragraphs(source, target) == [("one", "eins"), ("one again", "noch eins"), ("three", "drei")]


def write_pages(root: Path, folder: str, pages: "dict[str, str]") -> None:
    for name, content in pages.items():
        path = root / "usr/share/libreoffice/help" / folder / "text" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(content, folder), encoding="utf-8")


def test_pages_are_paired_by_path_and_counted(tmp_path: Path) -> None:
    write_pages(
        tmp_path,
        "en-US",
        {
            "b/two.html": '<p id="par_id1">Two</p><p id="par_id9">alone</p>',
            "a.html": '<p id="par_id1">One</p>',
            "en.html": "",
        },
    )
    write_pages(tmp_path, "de", {"b/two.html": '<p id="par_id1">Zwei</p>', "a.html": '<p id="par_id1">Eins</p>'})
    corpus = HelpCorpus(tmp_path, "en-US", "de")
    assert len(corpus) == 2
    assert list(corpus) == [
        ("a.html", [("One", "Eins")]),
        ("b/two.html", [("Two", "Zwei")]),
    ]


def test_names_of_the_interface_are_paired(tmp_path: Path) -> None:
    """Names come from paragraphs that emphasise one part on both sides; two parts may have another order."""
    click = '<p id="par_id{}">Click the {} button</p>'
    two = '<span class="emph">A</span> and <span class="emph">B</span>'
    remote, here = '<span class="emph">Remote <br>Files</span>', '<span class="menuitem">Hier</span>'
    write_pages(tmp_path, "en-US", {"a.html": click.format(1, remote) + click.format(2, two) + click.format(3, "x")})
    write_pages(tmp_path, "de", {"a.html": click.format(1, here) + click.format(2, two) + click.format(3, here)})
    corpus = HelpCorpus(tmp_path, "en-US", "de")
    for _ in range(2):
        list(corpus)
        assert corpus.names == [("a.html", [("Remote Files", "Hier")])]


def test_a_stray_byte_costs_its_pair_only(tmp_path: Path) -> None:
    write_pages(tmp_path, "en-US", {"a.html": '<p id="par_id1">One</p><p id="par_id2">Two</p>'})
    write_pages(tmp_path, "de", {"a.html": '<p id="par_id1">E?ns</p><p id="par_id2">Zwei</p>'})
    path = tmp_path / "usr/share/libreoffice/help/de/text/a.html"
    path.write_bytes(path.read_bytes().replace(b"E?ns", b"E\xfcns"))
    assert next(iter(HelpCorpus(tmp_path, "en-US", "de")))[1] == [("One", "E\ufffdns"), ("Two", "Zwei")]


def test_no_pages_names_the_folder_and_the_remedy(tmp_path: Path) -> None:
    write_pages(tmp_path, "en-US", {"a.html": ""})
    with pytest.raises(FileNotFoundError, match=r"help.de.text"):
        HelpCorpus(tmp_path, "en-US", "de")
    assert "help/de/text" in refusal("help-pairs", "--packages", tmp_path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_splits_are_written_aligned_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    numbers = range(400)
    for folder, words in (
        ("en-US", "Click the button number {} here"),
        ("de", "Hier auf die Schaltfläche Nummer {} klicken"),
    ):
        sentences = {f"p{n}.html": f'<p id="par_id{n}">{words.format(f"x{n}x")}</p>' for n in numbers}
        write_pages(tmp_path, folder, sentences)
    out = tmp_path / "text"
    write_help_pairs(tmp_path, out)
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert lines.pop("card.json")
    assert sorted(lines) == ["test.de", "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    pairs = [p for split in ("train", "valid", "test") for p in zip(lines[f"{split}.en"], lines[f"{split}.de"])]
    assert len(pairs) == len(numbers)
    assert all(en.split()[4] == de.split()[5] for en, de in pairs)
    counts = ", ".join(f"{name} {len(lines[f'{name}.en'])}" for name in ("train", "valid", "test"))
    assert f"sentence pairs: {counts}" in capsys.readouterr().err
