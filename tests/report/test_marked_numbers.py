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
    list(documents.write(checkout))
    return document.read_text().rstrip("\n")


@pytest.mark.parametrize(
    ("key", "stands", "should"),
    [
        ("a L=1 seconds in ms", "7 ms", "89 ms"),
        ("b L=1 seconds / a L=1 seconds", "1.0x", "4.7x"),
        ("a bytes in MiB", "1.0 MiB", "3.5 MiB"),
        ("min * seconds in ms", "1 to", "89 to"),
        ("c, d bleu", "5.", "-2."),
        ("bleu", "[**1.0**](results/r.json)", "[**36.1**](results/r.json)"),
        ("examples", "9, and", "1,080, and"),
        ("settings.updates", "1,000,000 updates", "1,634 updates"),
        ("curve.1.accuracy - curve.0.accuracy", "1.0 points", "6.8 points"),
        ("bleu / results/seed1.json bleu", "1.00x", "1.20x"),
        ("bleu - results/seed*.json bleu", "1.00", "5.56"),  # the mean of several files
    ],
)
def test_a_number_is_filled_in(key: str, stands: str, should: str, checkout: Path) -> None:
    mark = f"it is <!-- n: results/r.json {key} -->"
    assert filled(checkout, f"So {mark}{stands} here.") == f"So {mark}{should} here."
    assert documents.differences(checkout) == []


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("mega_sc_raw_base", 343_134),  # with the dictionary of its recipes
        ("mega_image_tiny", 6_209_596),
        ("mega_wmt_en_de symbols=33000 share_all_embeddings=True", 63_255_534),
    ],
)
def test_parameters_of_an_architecture_are_counted(words: str, count: int, checkout: Path) -> None:
    mark = f"has <!-- n: parameters {words} -->"
    assert filled(checkout, f"{mark}1 parameters.") == f"{mark}{count:,} parameters."


@pytest.mark.parametrize(
    "mark",
    [
        "results/absent.json bleu -->1",
        "results/r.json nosuch -->1",
        "results/r.json settings.name -->1",
        "results/r.json curve.2.accuracy -->1",
        "results/none*.json bleu -->1",
        "results/r.json min x* -->1",
        "results/r.json -->1",
        "parameters mega_huge -->1",
        "parameters mega_lm_wiki103 -->1",  # of which recipes have several dictionaries
        "parameters mega_wmt_en_de encoder_layer=3 symbols=9 -->1",
    ],
)
def test_a_mark_that_cannot_be_filled(mark: str, checkout: Path, capsys: Any) -> None:
    """It is named, and no document is written."""
    first, document = checkout / "README.md", checkout / "examples" / "README.md"
    first.write_text("It is <!-- n: examples/results/r.json bleu -->1.0.\n")
    document.write_text(f"is <!-- n: {mark}")
    assert command.main(["--write", "--root", str(checkout)]) == 1
    error = capsys.readouterr().err
    assert str(document) in error and (mark.partition(" -->")[0] in error or "line 1" in error)
    assert first.read_text().endswith("-->1.0.\n")
