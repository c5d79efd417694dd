"""The encoder that options give is the one that cut the training text, wherever it is given."""

import argparse
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_mega.compat.features import encoders as compared
from fairseq_mega.compat.files import card
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


def dictionary(tokens: List[str]) -> Dictionary:
    built = Dictionary()
    for token in tokens:
        built.add_symbol(token)
    return built


def tokens_of(model: Path) -> List[str]:
    made = processor(model)
    return [made.id_to_piece(number) for number in range(3, made.get_piece_size())]


@pytest.mark.parametrize(
    ("in_folder", "given", "kept"),
    [
        ("own", None, "own"),
        (None, "own", "own"),
        ("own", "other", ValueError),
    ],
)
def test_what_a_training_remembers(
    in_folder: Optional[str], given: Optional[str], kept: Any, models: Dict[str, Path], tmp_path: Path
) -> None:
    """The model in the data folder, or that of --bpe."""
    if in_folder:
        shutil.copy(models[in_folder], tmp_path / compared.SUBWORDS_FILE)
    cfg = TranslationConfig(data=str(tmp_path), source_lang="de", target_lang="en")
    bpe = SimpleNamespace(_name="sentencepiece", sentencepiece_model=str(models[given])) if given else None
    task = TranslationTask(cfg, dictionary(["a"]), dictionary(["a"]))
    trainer = SimpleNamespace(task=task, cfg=SimpleNamespace(bpe=bpe))
    if kept is ValueError:
        with pytest.raises(card.OtherCard, match="subwords: .* in the options, .* in the data"):
            card.card_of_training(trainer)
        return
    wanted = card.digest_of_file(models[kept]) if kept else None
    assert card.card_of_training(trainer).get(card.SUBWORDS) == wanted


@pytest.mark.parametrize("second", ["own", "other", None])
def test_all_data_folders_have_one_model(second: Optional[str], models: Dict[str, Path], tmp_path: Path) -> None:
    """Compare those of DATA1:DATA2, of which the first alone is read."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, model in zip(folders, ("own", second)):
        folder.mkdir()
        if model:
            shutil.copy(models[model], folder / compared.SUBWORDS_FILE)
    task = translator(folders[0], ["a"])
    task.cfg.data = ":".join(map(str, folders))
    if second == "other":
        with pytest.raises(card.OtherCard, match=f"subwords: .* {folders[0]}/subwords.model, .* {folders[1]}/subw"):
            task.data_card()
    else:
        assert card.SUBWORDS in task.data_card()


@pytest.mark.parametrize("road", ["interactive", "generate", "hub"])
@pytest.mark.parametrize(
    ("remembers", "given", "refused"), [("words", "words", False), ("words", "own", True), (None, "words", False)]
)
def test_roads(
    road: str,
    remembers: Optional[str],
    given: str,
    refused: bool,
    models: Dict[str, Path],
    tiny_model: Any,
    tmp_path: Path,
    device_flags: List[str],
) -> None:
    checkpoint = torch.load(tiny_model.checkpoint)
    data = Path(shutil.copytree(tiny_model.data, tmp_path / "data"))
    tokens = tokens_of(models["words"])
    for language in ("en", "de"):  # as many as the model has
        path = data / f"dict.{language}.txt"
        count = len(path.read_text().splitlines())
        assert len(tokens) >= count
        path.write_text("".join(f"{token} 1\n" for token in tokens[:count]))
    checkpoint["card"] = {}
    if remembers:
        checkpoint["card"] = {card.SUBWORDS: card.digest_of_file(models[remembers])}
    torch.save(checkpoint, tmp_path / "model.pt")
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", models[given]]

    def answer() -> object:
        if road == "hub":
            options = {"bpe": "sentencepiece", "sentencepiece_model": str(models[given])}
            return MegaModel.from_pretrained(str(tmp_path), "model.pt", str(data), **options).translate("w1", beam=1)
        flags = ["--path", tmp_path / "model.pt", "--max-len-b", 3, *bpe, *device_flags]
        return helpers.run_fairseq(road, [data, *flags], "w1\n")

    if refused:
        with pytest.raises(card.OtherCard, match="subwords: --bpe sentencepiece"):
            answer()
    else:
        assert answer()


def data_of_subwords(data: Path, model: Path, folder: Path) -> Path:
    """Copy data to a folder with a sentencepiece model and dictionaries of its subwords, of the same sizes."""
    shutil.copytree(data, folder)
    shutil.copy(model, folder / compared.SUBWORDS_FILE)
    tokens = tokens_of(model)
    for path in folder.glob("dict.*.txt"):
        path.write_text("".join(f"{token} 1\n" for token in tokens[: len(path.read_text().splitlines())]))
    return folder


@pytest.mark.parametrize("road", ["interactive", "hub"])
def test_the_data_folder_has_what_cut_its_text(
    road: str, models: Dict[str, Path], tiny_model: Any, tmp_path: Path, device_flags: List[str]
) -> None:
    """Without --bpe, text is cut by the sentencepiece model of the folder."""
    data = data_of_subwords(tiny_model.data, models["words"], tmp_path / "data")
    checkpoint = torch.load(tiny_model.checkpoint)
    torch.save({**checkpoint, "card": {}}, tmp_path / "model.pt")
    text = "w1 w2"
    cut = " ".join(processor(models["words"]).encode(text, out_type=str))
    explicit = {"bpe": "sentencepiece", "sentencepiece_model": str(models["words"])}

    def answers(sentence: str, options: Dict[str, str]) -> List[str]:
        if road == "hub":
            hub = MegaModel.from_pretrained(str(tmp_path), "model.pt", str(data), **options)
            return [hub.translate(sentence, beam=1), hub.src_dict.string(hub.encode(sentence))]
        flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        flags = ["--path", str(tmp_path / "model.pt"), "--beam", "1", *flags, *device_flags]
        output = helpers.run_fairseq("interactive", [data, *flags], f"{sentence}\n")
        return [helpers.hypotheses(output, "D")[0], re.findall(r"^S-0\t(.*)$", output, re.MULTILINE)[0]]

    translation, tokens = answers(text, {})
    assert [translation, tokens] == answers(text, explicit) and tokens == cut
    assert answers(cut, {}) == [translation, cut]  # subwords are read unchanged


def options_of(encoder: str, folder: Path) -> Dict[str, Any]:
    """Options of an encoder by its name and that of its files, as fairseq's parser has them."""
    name, *which = encoder.split()
    if name == "moses":
        return {"tokenizer": name, **{f"moses_no_{option}": option in which for option in ("escape", "dash_splits")}}
    return {"bpe": name, **({"bpe_codes": str(folder / which[0]), "bpe_separator": "@@"} if which else {})}


def translator(folder: Path, tokens: List[str]) -> Any:
    cfg = TranslationConfig(data=str(folder), source_lang="en", target_lang="de")
    return TranslationTask(cfg, dictionary(tokens), dictionary(tokens))


@pytest.mark.parametrize(
    ("trained", "given", "refused"),
    [
        ("subword_nmt own", "subword_nmt own", False),
        ("subword_nmt own", "subword_nmt other", True),
        ("subword_nmt own", "characters", True),
        ("moses escape", "moses escape", False),
        ("moses escape", "moses", True),
    ],
)
def test_what_split_the_training_text_splits_all_text(trained: str, given: str, refused: bool, tmp_path: Path) -> None:
    """Options of a training are kept, and those of a later command are the same."""
    for name in ("own", "other"):
        (tmp_path / name).write_text(name)
    then, now = (options_of(encoder, tmp_path) for encoder in (trained, given))
    (option,) = {"bpe", "tokenizer"} & set(then)
    kind = REGISTRIES[option]["dataclass_registry"].get(then[option])
    values = {key: value for key, value in then.items() if key != option}
    choice = OmegaConf.create({**vars(kind()), **values, "_name": then[option]})  # with all default values
    trainer = SimpleNamespace(task=translator(tmp_path, []), cfg=SimpleNamespace(**{option: choice}))
    task = translator(tmp_path, [])
    task.trained_card = card.card_of_training(trainer)
    entry = next(entry for entry, name in card.OPTIONS.items() if name == option)
    assert task.trained_card[entry]
    later = card.described(option, argparse.Namespace(**now))
    if refused:
        with pytest.raises(card.OtherCard, match=f"^{entry}: --{option} "):
            compared.compare(entry, later, task, True)
    else:
        compared.compare(entry, later, task, True)


@pytest.mark.parametrize("reads_text", [True, False])
@pytest.mark.parametrize(
    ("trained", "own", "warned"),
    [
        ({card.SUBWORDS: "--bpe characters"}, {}, True),
        ({card.SUBWORDS: "0"}, {}, True),
        ({card.SUBWORDS: "0"}, {card.SUBWORDS: "0"}, False),  # by subwords.model of the data folder
        ({}, {}, False),
    ],
)
def test_text_that_nothing_splits(
    trained: Dict[str, str], own: Dict[str, str], warned: bool, reads_text: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning is logged; a command that reads no text needs no encoder."""
    task = SimpleNamespace(data_card=lambda: own, trained_card=trained)
    compared.compare(card.SUBWORDS, "", task, reads_text)
    assert ["subwords: " in line for line in caplog.messages] == [True] * (warned and reads_text)
