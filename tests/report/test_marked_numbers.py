"""Numbers in the sentences of a document are those of the result files that their marks name."""

from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.report import command, documents
from fairseq_mega.lab.runs.results import make_result, write_result

SCORES = {"a L=1 seconds": 0.0894, "b L=1 seconds": 0.4162, "a bytes": 3.5 * 2**20, "bleu": 36.06, "c, d bleu": -2.0}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a result."""
    (tmp_path / "examples" / "results").mkdir(parents=True)
    settings = {"updates": 1634, "name": "x", "fast": True}
    curve = [{"accuracy": 53.5}, {"accuracy": 60.25}]
    result = make_result("layer", "layer", SCORES, 1080, "command", seed=1, settings=settings, curve=curve)
    write_result(tmp_path / "examples" / "results" / "r.json", result)
    for seed, score in ((1, 30.0), (2, 31.0)):
        seeded = make_result("layer", "layer", {"bleu": score}, 1080, "command", seed=seed)
        write_result(tmp_path / "examples" / "results" / f"seed{seed}.json", seeded)
    (tmp_path / "README.md").write_text("# Title\n")
    return tmp_path


def filled(checkout: Path, text: str) -> str:
    document = checkout / "examples" / "README.md"
    document.write_text(f"{text}\n")
    documents.write(checkout)
    return document.read_text().rstrip("\n")


@pytest.mark.parametrize(
    ("key", "stands", "should"),
    [
        ("a L=1 seconds in ms", "7 ms", "89 ms"),
        ("a L=1 seconds in ms", "7.00 ms", "89.40 ms"),
        ("b L=1 seconds / a L=1 seconds", "1.0x", "4.7x"),
        ("a bytes in MiB", "1.0 MiB", "3.5 MiB"),
        ("min * seconds in ms", "1 to", "89 to"),
        ("max * seconds in ms", "1 ms", "416 ms"),
        ("c, d bleu", "5.", "-2."),
        ("bleu", "[**1.0**](results/r.json)", "[**36.1**](results/r.json)"),
        ("examples", "9, and", "1,080, and"),
        ("settings.updates", "1,000,000 updates", "1,634 updates"),
        ("seed", "7)", "1)"),
        ("curve.1.accuracy", "1.00 %", "60.25 %"),
        ("curve.1.accuracy - curve.0.accuracy", "1.0 points", "6.8 points"),
        ("bleu / results/seed1.json bleu", "1.00x", "1.20x"),
        ("bleu - results/seed*.json bleu", "1.00", "5.56"),
    ],
)
def test_a_number_is_filled_in(key: str, stands: str, should: str, checkout: Path) -> None:
    mark = f"it is <!-- n: results/r.json {key} -->"
    assert filled(checkout, f"So {mark}{stands} here.") == f"So {mark}{should} here."
    assert documents.differences(checkout) == []


def test_parameters_of_an_architecture_are_counted(checkout: Path) -> None:
    text = "It has <!-- n: parameters mega_sc_raw_base -->{} parameters, <!-- n: parameters mega_image_tiny -->{}."
    assert filled(checkout, text.format("343,135", 1)) == text.format("343,134", "6,209,596")


def test_parameters_with_another_dictionary_and_other_options(checkout: Path) -> None:
    mark = "It has <!-- n: parameters mega_wmt_en_de symbols={} {}-->{}."
    shared = "share_all_embeddings=True "
    assert filled(checkout, mark.format(33000, shared, 1)) == mark.format(33000, shared, "63,255,534")
    assert filled(checkout, mark.format(33000, "", 1)) == mark.format(33000, "", f"{63_255_534 + 2 * 512 * 33_000:,}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("is <!-- n: results/absent.json bleu -->1", "No such file or directory"),
        ("is <!-- n: results/r.json nosuch -->1", "results/r.json nosuch: the file has no such number"),
        ("is <!-- n: results/r.json settings.name -->1", "the file has no such number"),
        ("is <!-- n: results/r.json settings.fast -->1", "the file has no such number"),
        ("is <!-- n: results/r.json settings -->1", "the file has no such number"),
        ("is <!-- n: results/r.json curve.2.accuracy -->1", "the file has no such number"),
        ("is <!-- n: results/r.json bleu - results/none.json bleu -->1", "No such file or directory"),
        ("is <!-- n: results/none*.json bleu -->1", "no file matches"),
        ("is <!-- n: results/r.json min x* -->1", "min x*: the file has no such number"),
        ("is <!-- n: results/r.json bleu --> many", "line 1: write a mark as '<!-- n: FILE KEY -->NUMBER'"),
        ("is <!-- n: results/r.json -->1", "line 1: write a mark as"),
        ("is <!-- n: parameters mega_huge -->1", "parameters mega_huge: give the name of an architecture"),
        ("is <!-- n: parameters mega_lm_wiki103 -->1", "no recipe has this architecture"),
        ("is <!-- n: parameters mega_wmt_en_de big -->1", "mega_wmt_en_de has no options big"),
        ("is <!-- n: parameters mega_lm_wiki103 dropout=0 -->1", "add symbols=NUMBER"),
        (
            "is <!-- n: parameters transformer encoder_layer=3 symbols=9 -->1",
            "transformer has no options encoder_layer",
        ),
        ("is <!-- n: parameters mega_lm_wiki103 a=1 -->1", "mega_lm_wiki103 has no options a"),
        ("`<!-- n: a b -->` and <!-- n: c -->1", "line 1: write a mark as"),
        ("<!-- n: results/r.json bleu -->36", "line 1: begin the line with a word"),
    ],
)
def test_a_mark_that_cannot_be_filled(text: str, message: str, checkout: Path, capsys: Any) -> None:
    document = checkout / "examples" / "README.md"
    document.write_text(text)
    assert command.main(["--check", "--root", str(checkout)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"fairseq-mega-report: error: {document}") and message in error


def test_the_values_of_several_files_are_averaged(checkout: Path) -> None:
    mark = "it is <!-- n: results/seed*.json bleu -->"
    assert filled(checkout, f"So {mark}1.0 here.") == f"So {mark}30.5 here."


def test_nothing_is_written_where_a_document_cannot_be(checkout: Path, capsys: Any) -> None:
    paths = [checkout / "README.md", checkout / "examples" / "README.md"]
    paths[0].write_text("It is <!-- n: examples/results/r.json bleu -->1.0.\n")
    for broken, message in ((b"is <!-- n: results/r.json nosuch -->1", "no such number"), (b"\xe9", "can't decode")):
        paths[1].write_bytes(broken)
        assert command.main(["--write", "--root", str(checkout)]) == 1
        error = capsys.readouterr().err
        assert f"{paths[1]}: " in error and message in error
        assert paths[0].read_text().endswith("-->1.0.\n")


def test_a_number_that_differs_is_named(checkout: Path) -> None:
    (checkout / "examples" / "README.md").write_text("It is <!-- n: results/r.json bleu -->36.0.\n")
    where = Path("examples") / "README.md"
    assert documents.differences(checkout) == [f"{where}: bleu of results/r.json: 36.0, not 36.1"]
