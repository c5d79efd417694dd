"""The tables of the documentation are those of their results."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.report import command, documents, numbers
from fairseq_mega.lab.report.documents import PICTURES, TABLES
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.ops.common import native
from tests.support.helpers import REPOSITORY

MEASURED = re.compile(r"\| [^|]*\d (ms|s|MiB|tokens/s)[ ,|(]|\| \*{0,2}[\d.]+x")


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"two tables count what kernels keep: {native.PROBLEM}")
def test_the_tables_of_this_repository() -> None:
    """And its numbers in sentences."""
    filled = [documents.fill(document) for document in documents.documents(REPOSITORY)]
    assert [difference for document in filled for difference in documents.differences_in(document, REPOSITORY)] == []
    assert any(document.numbers for document in filled)
    used = {place.call.name for document in filled for place in document.places}
    assert set(TABLES) - used <= {f"paper-{name}" for name in PAPER_TABLES}


def test_the_pictures_of_this_repository() -> None:
    """Each is drawn from its results, by a marker of a document, or by a command that the document names."""
    drawn = list(documents.drawn(REPOSITORY))
    assert [picture.file for picture in drawn if not picture.is_current()] == []
    others = set(REPOSITORY.glob("examples/**/*.png")) - {picture.file for picture in drawn}
    by_commands = {
        "examples/translation/attention.png": "fairseq-mega-inspect",
    }
    assert {other.relative_to(REPOSITORY).as_posix() for other in others} == set(by_commands)
    texts = [document.read_text(encoding="utf-8") for document in documents.documents(REPOSITORY)]
    for file, command_of in by_commands.items():
        names = (f"({file})", f"({file[len('examples/translation/') :]})")
        assert any(name in text and command_of in text for text in texts for name in names), file
    assert set(PICTURES) == {picture.call.name for picture in drawn}


def made_by_hand(text: str) -> List[str]:
    """Rows with measured numbers outside generated tables; a table below a text that says "computed" is none."""
    paragraphs = documents.outside(text).split("\n\n")
    return [
        line
        for before, paragraph in zip(["", *paragraphs], paragraphs)
        for line in paragraph.splitlines()
        if line.startswith("|") and MEASURED.search(line) and "computed" not in before
    ]


def test_tables_have_titles() -> None:
    text = "# A page\n\nWords.\n<!-- table: a -->\n<!-- /table -->\n**The `speed` of it**: words, **bold**.\n"
    text += (
        "<!-- table: b c.json -->\n| **no title** |\n<!-- /table -->\n## Sizes:\n<!-- table: c -->\n<!-- /table -->\n"
    )
    assert documents.titles(text) == ["A page", "The speed of it", "Sizes"]


def test_no_measured_number_stands_in_a_table_made_by_hand() -> None:
    for document in documents.documents(REPOSITORY):
        assert not made_by_hand(document.read_text(encoding="utf-8")), document
    assert made_by_hand("Text.\n\n| a |\n| 318 ms (1.2x) |\n| **2.5x** |") == ["| 318 ms (1.2x) |", "| **2.5x** |"]
    assert not made_by_hand("It is computed.\n\n| 318 ms |")
    assert not made_by_hand("<!-- table: x -->\n| 318 ms |\n<!-- /table -->\n")


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
    assert status == 1 and "head: nothing, not '| a step of |" in output
    assert "8 rows, numbers and pictures differ" in error
    assert run(capsys, "--write", "--root", checkout)[:2] == (0, f"changed: {document}\n")
    assert run(capsys, "--write", "--root", checkout)[:2] == (0, "")
    assert run(capsys, "--check", "--root", checkout)[:2] == (0, "all tables and numbers are those of their results\n")
    text = document.read_text()
    assert text.startswith("Before.\n") and text.endswith("\nAfter.\n")
    speeds = "2.69 ms (4.11x) | 3.12 ms (4.49x) | 2.68 ms (18.2x)"
    assert f"| MEGA, matrices in int8 | 19,914,240 | {speeds} | 3.9 MiB |" in text


def test_a_number_that_differs_is_named(checkout: Path, capsys: Any) -> None:
    run(capsys, "--write", "--root", checkout)
    path = checkout / "examples" / "kernels" / "results" / "decoding.json"
    result = json.loads(path.read_text())
    scores = result["scores"]
    before, base = (1000 * scores[f"{model} position=100 seconds"] for model in ("mega-int8", "transformer"))
    positions = len([name for name in scores if name.startswith("mega-int8 ") and name.endswith("seconds")])
    models = len([name for name in scores if name.endswith("position=100 seconds")])
    scores["mega-int8 position=100 seconds"] *= 2
    scores["mega-int4 position=100 seconds"] = 1e-3  # a model that came later, at one position only
    scores["mega-int4 position=100 parameters"] = 19914240
    scores["mega-int4 position=100 bytes"] = 2**20
    scores["something else"] = 1.0
    path.write_text(json.dumps(result))
    status, output, _ = run(capsys, "--check", "--root", checkout)
    first, second = output.splitlines()
    where = f"{Path('examples') / 'kernels' / 'README.md'}: table 'decoding', row "
    row = "(MEGA, matrices in int8): '| MEGA, matrices in int8 | 19,914,240 |"
    assert status == 1 and first.startswith(f"{where}3 {row} {before:.2f} ms")
    assert f"not '| MEGA, matrices in int8 | 19,914,240 | {2 * before:.2f} ms ({base / before / 2:.2f}x)" in first
    cells = " | ".join(["19,914,240", f"1.00 ms ({base:.1f}x)", *[""] * (positions - 1), "1.0 MiB"])
    assert second == f"{where}{models + 1} (mega-int4): nothing, not '| mega-int4 | {cells} |'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table: decoding results/absent.json -->\n<!-- /table -->\n", "No such file or directory"),
        (
            "<!-- table: decodings x.json -->\n<!-- /table -->\n",
            "table 'decodings x.json' is unknown: give benchmarks, ",
        ),
        ("<!-- table: decoding results/decoding.json -->\n| a |\n", "line 1: a table begins with "),
        ("| a |\n<!-- /table -->\n", "line 2: a table begins with "),
        (
            "<!-- table: language-models results perplexity -->\n<!-- /table -->\n",
            "has no row: its results are missing",
        ),
        ("<!-- table: training-lengths -->\n<!-- /table -->\n", "not enough values to unpack"),
    ],
)
def test_a_table_that_cannot_be_made(text: str, message: str, checkout: Path, capsys: Any) -> None:
    (checkout / "examples" / "kernels" / "README.md").write_text(text)
    status, _, error = run(capsys, "--check", "--root", checkout)
    assert status == 1 and error.count("\n") == 1
    assert error.startswith(f"fairseq-mega-report: error: {checkout / 'examples' / 'kernels' / 'README.md'}: ")
    assert message in error


def test_options_that_do_not_go_together(tmp_path: Path, capsys: Any) -> None:
    for words in ([], ["--check", "recipes", "examples"]):
        with pytest.raises(SystemExit) as ended:
            command.main(words)
        assert ended.value.code == 2 and "give one of --check, --write" in capsys.readouterr().err
    assert run(capsys, "--check", "--root", tmp_path)[2] == (
        f"fairseq-mega-report: error: {tmp_path} contains no README.md and examples: "
        "give --root, the folder of a checkout\n"
    )


def layer_result(folder: Path, name: str, dtype: str, scores: Dict[str, float]) -> None:
    settings = {"embed_dim": 64, "chunk_size": 32, "dtype": dtype, "models": "later,transformer"}
    write_result(folder / name, make_result("layer", "layer", scores, 1, "command", settings=settings))


def test_layers_of_models_that_are_not_known_yet(tmp_path: Path) -> None:
    both = {"transformer L=8 seconds": 0.5, "transformer L=8 memory_mib": 3.0}
    later = {"later L=8 seconds": 0.25, "later L=8 memory_mib": 12.4, "later L=8 other": 1.0}
    layer_result(tmp_path, "a.json", "float32", both)
    layer_result(tmp_path, "b.json", "float8", {**both, **later})
    table = TABLES["layer-precisions"](tmp_path, ["a.json", "b.json"])
    assert list(table.columns) == ["", "[L = 8, d = 64, float32](a.json)", "[L = 8, d = 64, float8](b.json)"]
    assert table.rows == [["Transformer", "500 ms, 3.0 MiB", "500 ms, 3.0 MiB"], ["later", "", "250 ms, 12 MiB"]]
    table = TABLES["layer-lengths"](tmp_path, ["b.json"])
    assert table.rows == [["8", "500 ms", "250 ms (2.00x)", "3 / 12"]]


def test_numbers() -> None:
    assert [numbers.milliseconds(value) for value in (2.3150, 0.0999, 0.00946)] == ["2,315 ms", "99.9 ms", "9.46 ms"]
    assert [numbers.ratio(value) for value in (0.934, 9.996, 79.34, 100.2)] == ["0.93x", "10.0x", "79.3x", "100x"]
    assert [numbers.amount(value) for value in (0.2172, 1.4666, 7830.0)] == ["0.217", "1.47", "7,830"]


def test_pivot() -> None:
    """Columns have their order, the best of several numbers is bold, and the end of a head stands behind the cells."""
    rows = [{"a": "x", "z": "1"}, {"a": "y", "z": "2"}]
    cells: List[Any] = [(rows[0], "c", 2.0), (rows[0], "b", 1.0), (rows[1], "b", 3.0), (rows[1], "d", "text")]
    table = numbers.pivot(cells, ["b", "c"], best=min, missing="-", last=1)
    assert table.columns == ["a", "b", "c", "d", "z"]
    assert table.rows == [["x", "**1.00**", "2.00", "-", "1"], ["y", "3.00", "-", "text", "2"]]
    assert numbers.pivot(cells[:1], text="{:.1f}".format, best=max).rows == [["x", "1", "2.0"]]


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


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("other x.json -->\n![a](a.png)", r"README.md: picture 'other x.json' is unknown: give .*kernels"),
        ("kernels x.json -->\n![a](a.png)", r"README.md: picture 'kernels x.json': .*x.json"),
        ("kernels x.json -->\nText.", r"README.md: line 2: '<!-- picture: NAME ... -->' stands in the line before"),
        ("kernels x.json -->", r"README.md: line 2: '<!-- picture: NAME"),
    ],
)
def test_wrong_markers_of_pictures_are_named(marker: str, message: str, checkout: Path, capsys: Any) -> None:
    run(capsys, "--write", "--root", checkout)
    (checkout / "README.md").write_text(f"# Title\n<!-- picture: {marker}\n")
    status, _, error = run(capsys, "--check", "--root", checkout)
    assert status == 1 and re.search(message, error)
