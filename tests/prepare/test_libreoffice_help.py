"""Reading of LibreOffice help pages: pages of the real shape, and damaged ones."""

from pathlib import Path

import pytest

from fairseq_mega.lab.prepare.libreoffice_help import pair_paragraphs, read_help, read_page

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
        '<p id="par_id1" class="code">Print "a"</p><p class="embedded">no id</p><p id="bm_id7">bookmark</p>'
        '<p id="par_id2">  \n </p><p id="par_id3"><img src="x.png"></p><li id="par_id4">no paragraph</li>'
        '<p id="par_id32" class="paragraph" dir="auto"> <img src="x.svg" alt="Icon"> Choose '
        '<span class="emph">Edit - '
        "Paste&nbsp;Special</span>,<br>then <b>click</b> &lt;OK&gt; &amp; wait&#46;</p>"
    )
    assert read_page(html)[0] == [
        ("hd_id31", "Frame Bar"),
        ("par_id32", "Choose Edit - Paste Special, then click <OK> & wait."),
    ]


@pytest.mark.parametrize(
    ("alternatives", "want"),
    [
        ('<span hidden="true" id="MAC1">Command</span><span id="default1"><span>Ctrl</span></span>', "Ctrl"),
        ('<span id="WIN1" class="WIN">Alt</span>\n<span id="MAC1" class="MAC">Option</span>', "Alt"),
        ('<span id="MAC1" class="MAC">Command</span><span id="default1"></span>', ""),
    ],
)
def test_of_a_switch_one_alternative_remains(alternatives: str, want: str) -> None:
    html = page(f'<p id="par_id1">Press <span id="s1" class="switchinline">{alternatives}</span>+V now.</p>')
    assert read_page(html)[0] == [("par_id1", f"Press {want}+V now.")]


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
    source = [("p1", "one"), ("p2", "two"), ("p1", "one again"), ("p3", "three"), ("p4", "four")]
    target = [("p3", "drei"), ("p1", "eins"), ("p1", "noch eins"), ("p4", "vier"), ("p4", "4")]
    assert pair_paragraphs(source, target) == [("one", "eins"), ("one again", "noch eins"), ("three", "drei")]


def write_pages(root: Path, folder: str, pages: "dict[str, str]") -> None:
    for name, content in pages.items():
        path = root / "usr/share/libreoffice/help" / folder / "text" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(content, folder), encoding="utf-8")


def test_pages_and_names_of_the_interface_are_paired(tmp_path: Path) -> None:
    """By path, and by names in paragraphs that emphasise one part on both sides: two may have another order."""
    click = '<p id="par_id{}">Click the {} button</p>'
    two = '<span class="emph">A</span> and <span class="emph">B</span>'
    remote, here = '<span class="emph">Remote <br>Files</span>', '<span class="menuitem">Hier</span>'
    english = {"b/two.html": '<p id="par_id1">Two</p><p id="par_id9">alone</p>', "en.html": ""}
    english["a.html"] = click.format(1, remote) + click.format(2, two) + click.format(3, "x")
    write_pages(tmp_path, "en-US", english)
    german = click.format(1, here) + click.format(2, two) + click.format(3, here)
    write_pages(tmp_path, "de", {"b/two.html": '<p id="par_id1">Zwei</p>', "a.html": german})
    pages, names = read_help(tmp_path, ("en-US", "de"))
    assert [name for name, _ in pages] == ["a.html", "b/two.html"] and len(pages[0][1]) == 3
    assert pages[1] == ("b/two.html", [("Two", "Zwei")])
    assert names == [("a.html", [("Remote Files", "Hier")]), ("b/two.html", [])]
