"""The tables of the documentation are those of their results."""

import json
import re
from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.report import command, documents, numbers
from fairseq_mega.lab.report.documents import PICTURES, TABLES
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.ops.common import native
from tests.support.helpers import REPOSITORY

MEASURED = re.compile(r"\| [^|]*\d (ms|s|MiB|tokens/s)[ ,|(]|\| \*{0,2}[\d.]+x")


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"two tables count what kernels keep: {native.PROBLEM}")
def test_the_documents_of_this_repository() -> None:
    """Tables, pictures and numbers are those of their results; every maker is used, every picture is of a marker."""
    assert documents.differences(REPOSITORY) == []
    found = [documents.fill(file) for file in documents.documents(REPOSITORY)]
    used = {place.call.split()[0] for document in found for place in document.places}
    assert set(TABLES) - used <= {f"paper-{name}" for name in PAPER_TABLES}
    drawn = [picture for document in found for picture in document.pictures]
    assert set(PICTURES) == {picture.name for picture in drawn}
    others = set(REPOSITORY.glob("examples/**/*.png")) - {picture.file for picture in drawn}
    assert {path.relative_to(REPOSITORY).as_posix() for path in others} == {"examples/translation/attention.png"}


def made_by_hand(text: str) -> List[str]:
    """Rows with measured numbers outside generated tables; a table below a text that says "computed" is none."""
    paragraphs = documents.outside(text).split("\n\n")
    return [
        line
        for before, paragraph in zip(["", *paragraphs], paragraphs)
        for line in paragraph.splitlines()
        if line.startswith("|") and MEASURED.search(line) and "computed" not in before
    ]


def test_no_measured_number_stands_in_a_table_made_by_hand() -> None:
    for document in documents.documents(REPOSITORY):
        assert not made_by_hand(document.read_text(encoding="utf-8")), document
    assert made_by_hand("Text.\n\n| a |\n| 318 ms (1.2x) |\n| **2.5x** |") == ["| 318 ms (1.2x) |", "| **2.5x** |"]
    assert not made_by_hand("It is computed.\n\n| 318 ms |\n\n<!-- table: x -->\n| 318 ms |\n<!-- /table -->\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one generated table."""
    folder = tmp_path / "examples" / "kernels" / "results"
    folder.mkdir(parents=True)
    result = json.loads((REPOSITORY / "examples" / "kernels" / "results" / "decoding_packed_cpu.json").read_text())
    seconds = {"mega-int8": (0.00269, 0.00312, 0.00268), "transformer": (0.01106, 0.0140, 0.0489)}
    for model, measured in seconds.items():
        for position, value in zip((100, 1000, 10000), measured):
            result["scores"][f"{model} position={position} seconds"] = value
    (folder / "decoding.json").write_text(json.dumps(result))
    (tmp_path / "README.md").write_text("# Title\n")
    text = "Before.\n\n<!-- table: decoding results/decoding.json -->\n<!-- /table -->\n\nAfter.\n"
    (tmp_path / "examples" / "kernels" / "README.md").write_text(text)
    return tmp_path


def run(capsys: Any, *words: object) -> "tuple[int, str, str]":
    status = command.main([str(word) for word in words])
    output, error = capsys.readouterr()
    return status, output, error


def test_write_and_check(checkout: Path, capsys: Any) -> None:
    document = checkout / "examples" / "kernels" / "README.md"
    status, output, error = run(capsys, "--check", "--root", checkout)
    assert status == 1 and "\n+| a step of |" in output and "--write" in error
    assert run(capsys, "--write", "--root", checkout)[:2] == (0, f"changed: {document}\n")
    assert run(capsys, "--write", "--root", checkout)[:2] == (0, "")
    assert run(capsys, "--check", "--root", checkout)[:2] == (0, "all tables and numbers are those of their results\n")
    text = document.read_text()
    assert text.startswith("Before.\n") and text.endswith("\nAfter.\n")
    speeds = "2.69 ms (4.11x) | 3.12 ms (4.49x) | 2.68 ms (18.2x)"
    row = f"| MEGA, matrices in int8 | 19,914,240 | {speeds} | 3.9 MiB |"
    assert f"{row}\n" in text

    path = checkout / "examples" / "kernels" / "results" / "decoding.json"
    result = json.loads(path.read_text())
    result["scores"]["mega-int8 position=100 seconds"] *= 2
    result["scores"]["mega-int4 position=100 seconds"] = 1e-3  # a model that came later, at one position only
    result["scores"]["mega-int4 position=100 parameters"] = 19914240
    result["scores"]["mega-int4 position=100 bytes"] = 2**20
    path.write_text(json.dumps(result))
    status, output, _ = run(capsys, "--check", "--root", checkout)
    later = "| mega-int4 | 19,914,240 | 1.00 ms (11.1x) |  |  | 1.0 MiB |"
    assert status == 1
    assert [line for line in output.splitlines() if line.startswith(("+|", "-|"))] == [
        f"-{row}",
        f"+{row.replace('2.69 ms (4.11x)', '5.38 ms (2.06x)')}",
        f"+{later}",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<!-- table: decoding results/absent.json -->\n<!-- /table -->\n", "absent.json"),
        ("<!-- table: decodings x.json -->\n<!-- /table -->\n", "decodings x.json"),
        ("<!-- table: decoding results/decoding.json -->\n| a |\n", "line 1"),
        ("| a |\n<!-- /table -->\n", "line 2"),
        ("<!-- table: language-models results perplexity -->\n<!-- /table -->\n", "no row"),
        ("<!-- picture: kernels x.json -->\n![a](a.png)\n", "kernels x.json"),
        ("Text.\n<!-- picture: kernels x.json -->\nText.\n", "line 2"),
    ],
)
def test_a_wrong_marker_is_named_and_nothing_written(text: str, named: str, checkout: Path, capsys: Any) -> None:
    document = checkout / "examples" / "kernels" / "README.md"
    document.write_text(text)
    for option in ("--check", "--write"):
        status, output, error = run(capsys, option, "--root", checkout)
        assert status == 1 and output == "" and str(document) in error and named in error and error.count("\n") == 1
    assert document.read_text() == text


def test_numbers() -> None:
    assert [numbers.milliseconds(value) for value in (2.3150, 0.0999, 0.00946)] == ["2,315 ms", "99.9 ms", "9.46 ms"]
    assert [numbers.ratio(value) for value in (0.934, 9.996, 79.34, 100.2)] == ["0.93x", "10.0x", "79.3x", "100x"]


def test_pivot() -> None:
    """Columns have their order, a cell has the mean of its numbers, and a row's best is bold."""
    rows = [{"a": "x", "z": "1"}, {"a": "y", "z": "2"}]
    cells: List[Any] = [(rows[0], "c", 2.0), (rows[0], "b", 1.0), (rows[1], "b", 3.0), (rows[1], "d", "text")]
    cells.append((rows[0], "c", 4.0))
    table = numbers.pivot(cells, ["b", "c"], best=min, missing="-", last=1)
    assert table.columns == ["a", "b", "c", "d", "z"]
    assert table.rows == [["x", "**1.00**", "3.00 ±1.41", "-", "1"], ["y", "3.00", "-", "text", "2"]]
    assert numbers.pivot(cells[:1], digits=1, best=max).rows == [["x", "1", "2.0"]]


def test_a_picture_is_drawn_anew_where_its_results_are_others(checkout: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'matplotlib>=3.6'")
    run(capsys, "--write", "--root", checkout)
    image = checkout / "examples" / "kernels" / "results" / "operators.png"
    image.write_bytes(b"of nothing")
    with (checkout / "examples" / "kernels" / "README.md").open("a") as document:
        document.write("<!-- picture: kernels results/operators.json -->\n![times](results/operators.png)\n")
    for number, seconds in enumerate((1e-3, 2e-3)):
        row = {"title": "EMA", "path": "native", "shape": {"batch": 1, "length": 64}, "seconds": seconds}
        result = make_result("kernels", "cpu", {"a": 1.0}, 1, "command", rows=[row])
        write_result(image.with_suffix(".json"), result)
        status, output, _ = run(capsys, "--check", "--root", checkout)
        name = Path("examples") / "kernels" / "results" / "operators.png"
        assert (status, output) == (1, f"{name}: was not drawn from its present results\n"), number
        assert run(capsys, "--write", "--root", checkout)[1] == f"changed: {image}\n"
        assert run(capsys, "--check", "--root", checkout)[0] == 0
        assert image.read_bytes().startswith(b"\x89PNG") and image.stat().st_size < 20000
