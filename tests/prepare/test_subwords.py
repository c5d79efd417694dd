"""Joint sentencepiece model: round trip, splits, and lines too long."""

import random
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary

from fairseq_mega.lab.prepare.language_modeling.splitting import cut_words
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.prepare.translation.parallel_text import LONGEST, Pair, cut_pairs, write_pairs


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


LANGUAGES = ("en", "de")


def test_pieces_decode_to_the_text_and_long_training_pairs_are_omitted(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pieces"
    monkeypatch.setitem(LONGEST, "max_train_pieces", 60)
    cut_pairs(text, out, LANGUAGES, 100)
    assert "train: 59 pairs, 1 longer than 60 subwords" in capsys.readouterr().err
    processor = sentencepiece.SentencePieceProcessor(model_file=str(out / "joint.model"))
    assert 30 < processor.get_piece_size() <= 100
    for lang in ("en", "de"):
        for split in ("train", "valid", "test"):
            want = (text / f"{split}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            if split == "train":
                del want[1]
            pieces = (out / f"{split}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            assert [processor.decode(line.split()) for line in pieces] == want


@pytest.mark.parametrize("kind", ["pairs", "words"])
def test_the_dictionary_holds_every_piece(kind: str, tmp_path: Path) -> None:
    """A character that stands within longer pieces alone would be ``<unk>`` in a new word."""
    text, out = tmp_path / "text", tmp_path / "pieces"
    words, draw = ["stone", "Path", "Echo", "river", "glass", "KEY", "Vase", "over", "light"], random.Random(3)
    lines = [" ".join(draw.choices(words, k=6)) for _ in range(400)]
    text.mkdir()
    if kind == "pairs":
        for split in ("train", "valid", "test"):
            write_pairs(str(text / split), "en", "de", [Pair(line, line) for line in lines])
        cut_pairs(text, out, LANGUAGES, 200)
        files, model = [out / "train.en", out / "train.de"], out / "joint.model"
    else:
        for split in ("train", "valid", "test"):
            (text / split).write_text("\n".join(lines) + "\n", encoding="utf-8")
        found = cut_words(text, out, 200)
        files, model = [out / "train"], out / "subwords.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    used = Counter(piece for file in files for piece in file.read_text(encoding="utf-8").split())
    dictionary = Dictionary.load(str(out / "dict.txt"))
    assert len(dictionary) % 8 == 0
    for word in ("Peach", "Vast", "Pro"):
        for piece in processor.encode(word, out_type=str):
            assert dictionary.index(piece) != dictionary.unk()
    assert not used["P"] and not used["V"] and sum(dictionary.count[dictionary.nspecial :]) == sum(used.values())
    assert all(dictionary.count[dictionary.index(piece)] == count for piece, count in used.items())
    if kind == "words":
        symbols = processor.get_piece_size() - 3
        assert found["train"] == {"tokens": sum(used.values()) + len(lines), "symbols": symbols}


HAN = [chr(0x4E00 + number) for number in range(150)]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_model_depends_on_its_text_alone(
    byte_fallback: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on its folder, and not on the machine's cores."""
    lines = [f"line {number} of a text with {number % 7} words" for number in range(400)]
    train_model(lines, tmp_path / "a" / "subwords", 300, byte_fallback, ["nfc"])
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    monkeypatch.chdir(tmp_path)
    train_model(lines, Path("another folder") / "pieces", 300, byte_fallback, ["nfc"])
    first, second = (tmp_path / name for name in ("a/subwords.model", "another folder/pieces.model"))
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["subwords.model"]


def test_bytes_stand_for_rare_characters(tmp_path: Path) -> None:
    """A vocabulary with bytes keeps its size if the commonest characters fit; else it is refused."""
    text = [HAN[n % 20] * 1000 + HAN[n % 150] * (n < 150) for n in range(600)]
    assert train_model(text, tmp_path / "model", 320, byte_fallback=True) <= 320
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model.model"))
    assert all(processor.decode(processor.encode(line)) == line for line in text)
    with pytest.raises(ValueError, match="320 subwords"):
        train_model(HAN, tmp_path / "model", 320, byte_fallback=True)
