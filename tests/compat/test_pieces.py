"""The sentencepiece model that an option gives is the one that cut the training text, wherever it is given."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mega.compat.checkpoints import names, pieces
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.models.mega import MegaModel
from tests.support import helpers, json_texts


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Sentencepiece models: of some words, of the same ones backwards, and of those of a tiny translator."""
    folder = tmp_path_factory.mktemp("models")
    lines = [line for text in json_texts.documents(80, 3) for line in text.split("\n")]
    texts = {"own": lines, "other": [line[::-1] for line in lines], "words": helpers.random_sentences(200, 8)}
    for name, text in texts.items():
        train_model(text, folder / name, 60)
    return {name: folder / f"{name}.model" for name in texts}


def processor(model: Path) -> Any:
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def dictionary(symbols: List[str]) -> Dictionary:
    built = Dictionary()
    for symbol in symbols:
        built.add_symbol(symbol)
    return built


def symbols_of(model: Path) -> List[str]:
    made = processor(model)
    return [made.id_to_piece(number) for number in range(3, made.get_piece_size())]


@pytest.mark.parametrize(
    ("cut_by", "more", "strange"),
    [
        ("own", [], False),
        ("own", ["<2de>", "[de_DE]", "__label__a", "madeupword0000"] * 9, False),  # beside the pieces
        ("own", ["\u4e2d\u6587", "\u00e9"], False),  # characters that it does not know
        ("other", [], True),
        ("words", [], True),
        (None, ["\u4e2d", "\u6587"] * 9, True),  # nothing that it knows
        ("own", ["seasea", "old\u2581wind", "homeship", "itsquiet"], True),
    ],
)
def test_what_a_model_cannot_have_made(
    cut_by: Optional[str], more: List[str], strange: bool, models: Dict[str, Path]
) -> None:
    symbols = symbols_of(models[cut_by]) if cut_by else []
    found = pieces.strange_symbol(processor(models["own"]), dictionary([*symbols, *more]))
    assert (found is not None) is strange


@pytest.mark.parametrize(
    ("in_folder", "given", "kept"),
    [
        ("own", None, "own"),
        (None, "own", "own"),
        ("own", "own", "own"),
        (None, None, None),
        ("own", "other", ValueError),
    ],
)
def test_what_a_training_remembers(
    in_folder: Optional[str], given: Optional[str], kept: Any, models: Dict[str, Path], tmp_path: Path
) -> None:
    """The model in the data folder, or that of --bpe."""
    if in_folder:
        shutil.copy(models[in_folder], tmp_path / names.SUBWORDS_FILE)
    cfg = TranslationConfig(data=str(tmp_path), source_lang="de", target_lang="en")
    bpe = SimpleNamespace(sentencepiece_model=str(models[given])) if given else None
    task = TranslationTask(cfg, dictionary(["a"]), dictionary(["a"]))
    trainer = SimpleNamespace(task=task, cfg=SimpleNamespace(bpe=bpe))
    if kept is ValueError:
        with pytest.raises(names.OtherNames, match=f"{models['other']} is not the .* give {tmp_path}"):
            names.names_of_training(trainer)
        return
    found = names.names_of_training(trainer).get(names.SUBWORDS)
    digest = names.names_of_subwords(models[kept])[names.SUBWORDS].text if kept else None
    assert (found and found.text) == digest


@pytest.mark.parametrize("road", ["interactive", "generate", "hub"])
@pytest.mark.parametrize(
    ("remembers", "given", "message"),
    [
        ("words", "words", None),
        ("words", "own", "is not the sentencepiece model that cut the training text"),
        (None, "words", None),
        (None, "own", "did not cut the training text: it has no "),
    ],
)
def test_roads(
    road: str,
    remembers: Optional[str],
    given: str,
    message: Optional[str],
    models: Dict[str, Path],
    tiny_model: Any,
    tmp_path: Path,
    device_flags: List[str],
) -> None:
    checkpoint = torch.load(tiny_model.checkpoint)
    data = Path(shutil.copytree(tiny_model.data, tmp_path / "data"))
    symbols = symbols_of(models["words"])
    for language in ("en", "de"):  # as many as the model has
        path = data / f"dict.{language}.txt"
        count = len(path.read_text().splitlines())
        assert len(symbols) >= count
        path.write_text("".join(f"{symbol} 1\n" for symbol in symbols[:count]))
    checkpoint["names"] = {}
    if remembers:
        checkpoint["names"] = {names.SUBWORDS: names.names_of_subwords(models[remembers])[names.SUBWORDS].text}
    torch.save(checkpoint, tmp_path / "model.pt")
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", models[given]]

    def answer() -> object:
        if road == "hub":
            options = {"bpe": "sentencepiece", "sentencepiece_model": str(models[given])}
            return MegaModel.from_pretrained(str(tmp_path), "model.pt", str(data), **options).translate("w1", beam=1)
        flags = ["--path", tmp_path / "model.pt", "--max-len-b", 3, *bpe, *device_flags]
        return helpers.run_fairseq(road, [data, *flags], "w1\n")

    if message is None:
        assert answer()
    else:
        with pytest.raises(names.OtherNames, match=message):
            answer()


@pytest.mark.parametrize("bpe", [SimpleNamespace(), None], ids=["another", "none"])
@pytest.mark.parametrize(("in_folder", "remembers"), [(True, False), (False, True), (False, False)])
def test_text_of_pieces_is_cut_by_no_other_means(
    bpe: Any, in_folder: bool, remembers: bool, models: Dict[str, Path], tmp_path: Path
) -> None:
    if in_folder:
        shutil.copy(models["own"], tmp_path / names.SUBWORDS_FILE)
    cfg = TranslationConfig(data=str(tmp_path), source_lang="de", target_lang="en")
    task: Any = TranslationTask(cfg, dictionary(["a"]), dictionary(["a"]))
    if remembers:
        task.trained_names = {names.SUBWORDS: names.names_of_subwords(models["own"])[names.SUBWORDS].text}
    if bpe is None or not (in_folder or remembers):
        pieces.compare(bpe, task)
        return
    file = tmp_path / names.SUBWORDS_FILE if in_folder else "FILE"
    with pytest.raises(names.OtherNames, match=f"give --bpe sentencepiece --sentencepiece-model {file}"):
        pieces.compare(bpe, task)
