"""One road for text: cleaned in use as it was for training, and not otherwise."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, NamedTuple

import pytest
import torch
from fairseq.data import Dictionary, encoders
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tasks import FairseqTask

from fairseq_mega.data.text_cleaning import (
    SENTENCES,
    WORDS,
    mark_model,
    steps_of_folder,
    steps_of_model,
    write_steps,
)
from fairseq_mega.data.text_units import SubwordUnit, SubwordVocabulary
from fairseq_mega.lab.prepare.sentencepieces import train_model

TEXT = "Café über Stein"
TEXTS = {
    "no-break space": "Café\u00a0über Stein",
    "line separator": "Café\u2028über Stein",
    "carriage return": "Café über\rStein\r",
    "blanks around": "  Café  über Stein ",
    "control": "Café\x01über Stein",
    "decomposed": "Cafe\u0301 u\u0308ber Stein",
    "soft hyphen": "Ca\u00adfé über Stein",
    "hidden between letter and accent": "Cafe\u200b\u0301 über Stein",
}


class Road(NamedTuple):
    """The ways of a text to a translator: as fairseq-interactive and as the hub have them."""

    task: Any
    bpe: Any

    def interactive(self, text: str) -> List[int]:
        encode = self.bpe.encode if self.bpe is not None else str
        return self.task.get_interactive_tokens_and_lengths([text], encode)[0][0].tolist()

    def hub(self, text: str) -> List[int]:
        hub = GeneratorHubInterface.__new__(GeneratorHubInterface)
        torch.nn.Module.__init__(hub)
        hub.task, hub.bpe, hub.tokenizer, hub.src_dict = self.task, self.bpe, None, self.task.source_dictionary
        return hub.encode(text).tolist()


class Task(FairseqTask):
    """A task of words or pieces in a data folder."""

    def __init__(self, folder: Path, tokens: List[str]) -> None:
        super().__init__(SimpleNamespace(data=f"{folder}:elsewhere"))
        self.dictionary = Dictionary()
        for token in tokens:
            self.dictionary.add_symbol(token)

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pieces of one text: of a cleaned one, of words, and of one of which nothing is known."""
    folder = tmp_path_factory.mktemp("models")
    lines = [TEXT, "Stein über Café", "ein Stein"] * 30
    for name, steps in (("cleaned", SENTENCES), ("words", WORDS), ("unmarked", ())):
        train_model(lines, folder / name, 40, cleaning=steps)
    return folder


def road_of(model: Path) -> Road:
    bpe = encoders.build_bpe(SimpleNamespace(bpe="sentencepiece", sentencepiece_model=str(model)))
    pieces = [bpe.sp.id_to_piece(number) for number in range(3, bpe.sp.get_piece_size())]
    return Road(Task(model.parent, pieces), bpe)


@pytest.mark.parametrize("text", TEXTS.values(), ids=[*TEXTS])
def test_a_translator_reads_what_it_has_learnt(text: str, models: Path) -> None:
    road = road_of(models / "cleaned.model")
    want = road.interactive(TEXT)
    assert road.task.source_dictionary.unk() not in want
    assert road.interactive(text) == road.hub(text) == want
    unit = SubwordUnit(models / "cleaned.model")
    assert unit.encode(text) == unit.encode(TEXT) == road.bpe.encode(text)
    read = SubwordVocabulary(models / "cleaned.model").encode([text, TEXT])
    assert read[0].tolist() == read[1].tolist()


@pytest.mark.parametrize("model", ["words", "unmarked"])
def test_what_training_did_not_clean_stays(model: str, models: Path) -> None:
    road, unit = road_of(models / f"{model}.model"), SubwordUnit(models / f"{model}.model")
    for name in ("decomposed", "soft hyphen"):
        pieces = unit.processor.encode(TEXTS[name], out_type=str)
        assert unit.encode(TEXTS[name]) == road.bpe.encode(TEXTS[name]) == " ".join(pieces)
        assert unit.encode(TEXTS[name]) != unit.encode(TEXT)


@pytest.mark.parametrize("name", ["decomposed", "soft hyphen"])
def test_data_of_words_name_their_cleaning(name: str, tmp_path: Path) -> None:
    road, text = Road(Task(tmp_path, TEXT.split()), None), TEXTS[name]
    assert road.task.source_dictionary.unk() in road.interactive(text)
    write_steps(tmp_path, SENTENCES)
    assert road.interactive(text) == road.hub(text) == road.hub(TEXT)


def test_marks(models: Path, tmp_path: Path) -> None:
    """They go wherever the file goes, the last one counts, and an unknown one is refused."""
    assert [steps_of_model(models / f"{name}.model") for name in ("cleaned", "unmarked")] == [SENTENCES, ()]
    copy = tmp_path / "sentencepiece.bpe.model"
    copy.write_bytes((models / "cleaned.model").read_bytes())
    mark_model(copy, WORDS)
    assert steps_of_model(copy) == WORDS and SubwordUnit(copy).cleaning == WORDS
    mark_model(copy, ["blanks", "rot-thirteen"])
    with pytest.raises(ValueError, match="rot-thirteen"):
        SubwordUnit(copy)
    assert steps_of_folder(tmp_path) == ()
    (tmp_path / "cleaning.json").write_text('{"cleaning": ["lines", "blanks"]}')  # of an earlier version
    assert steps_of_folder(tmp_path) == ("lines", "blanks")
    write_steps(tmp_path, WORDS)
    assert steps_of_folder(tmp_path) == WORDS
