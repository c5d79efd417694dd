"""Joint sentencepiece model: round trip, splits, and lines too long."""

from pathlib import Path

import pytest
import sentencepiece

from fairseq_mega.corpora.translation import command
from fairseq_mega.corpora.translation.parallel_files import read_lines, write_pairs
from fairseq_mega.corpora.translation.parallel_text import Pair


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Folder with the three splits; the second training pair is long, the second test pair empty."""
    folder = tmp_path / "text"
    folder.mkdir()
    pairs = [Pair(f"open the file number {n} …", f"die Datei Nummer {n} öffnen …") for n in range(60)]
    pairs[1] = Pair("very " * 80 + "long", "sehr " * 80 + "lang")
    write_pairs(str(folder / "train"), "en", "de", pairs)
    write_pairs(str(folder / "valid"), "en", "de", pairs[5:9])
    write_pairs(str(folder / "test"), "en", "de", [Pair("½ „unseen“ Ω", "ﬁne"), Pair("", ""), pairs[3]])
    return folder


def arguments(text: Path, output: Path) -> "list[str]":
    return ["subwords", "--text", str(text), "--output", str(output), "--source-lang", "en", "--target-lang", "de"]


def test_pieces_decode_to_the_text_and_long_training_pairs_are_left_out(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "pieces"
    assert command.main([*arguments(text, out), "--vocab-size", "100", "--max-train-pieces", "60"]) == 0
    assert "train: 59 pairs, 1 left out as longer than 60 pieces" in capsys.readouterr().out
    processor = sentencepiece.SentencePieceProcessor(model_file=str(out / "joint.model"))
    assert 30 < processor.get_piece_size() <= 100
    for lang in ("en", "de"):
        for split in ("train", "valid", "test"):
            want = (text / f"{split}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            if split == "train":
                del want[1]
            pieces = (out / f"{split}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            assert [processor.decode(line.split()) for line in pieces] == want


def test_a_long_test_line_is_refused_by_name(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert command.main([*arguments(text, tmp_path / "pieces"), "--vocab-size", "100", "--max-pieces", "3"]) == 1
    message = capsys.readouterr().err
    assert "valid.de, line 1: " in message or "valid.en, line 1: " in message
    assert "more than the 3 allowed; cut the line into sentences" in message


def test_missing_files_and_unequal_lengths_are_refused(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    missing = str(tmp_path / "no.model")
    assert command.main([*arguments(text, tmp_path / "pieces"), "--model", missing]) == 1
    assert f"--model {missing}: no such file" in capsys.readouterr().err
    lines = read_lines(text / "valid.de")
    (text / "valid.de").write_text("\n".join(lines[:-1]), encoding="utf-8")
    assert command.main([*arguments(text, tmp_path / "pieces"), "--vocab-size", "100"]) == 1
    assert "the numbers of lines differ" in capsys.readouterr().err
    (text / "train.en").unlink()
    assert command.main(arguments(text, tmp_path / "pieces")) == 1
    assert "train.en: no such file" in capsys.readouterr().err


def test_a_given_model_is_used_and_none_is_trained(text: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert command.main([*arguments(text, first), "--vocab-size", "100"]) == 0
    assert command.main([*arguments(text, second), "--model", str(first / "joint.model")]) == 0
    assert not (second / "joint.model").exists()
    assert (second / "test.de").read_bytes() == (first / "test.de").read_bytes()
