"""Data cards: what is the same, what is not, what an earlier checkpoint has, and what has none."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mega.compat import hooks
from fairseq_mega.compat.files import card
from fairseq_mega.data.card import card_of_task, digest_of_dictionary, settings_of_data
from tests.support import tiny_images
from tests.tasks import test_image_classification


def dictionary(*tokens: str, counts: int = 1) -> Dictionary:
    built = Dictionary()
    for token in tokens:
        built.add_symbol(token, n=counts)
    return built


def task_with(own: Optional[Dict[str, str]] = None) -> Any:
    return SimpleNamespace(data_card=lambda: own or {})


@pytest.mark.parametrize(
    ("theirs", "ours", "differ"),
    [
        (dictionary("a", "b"), dictionary("a", "b", counts=7), False),
        (dictionary("a", "b"), dictionary("b", "a"), True),
        (dictionary("a"), dictionary("a", "madeupword0000"), True),
    ],
)
def test_dictionaries(theirs: Dictionary, ours: Dictionary, differ: bool) -> None:
    one, other = ({card.SOURCE: digest_of_dictionary(made)} for made in (theirs, ours))
    assert [line.split(":")[0] for line in card.differences(one, other)] == ["source"] * differ


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ("a\nb", "a\nb", []),
        ("a\nb", "a\nc", ["labels 1: b in the checkpoint, c in the data"]),
        ("a\nb", "a", ["labels 1: b in the checkpoint, nothing in the data"]),
    ],
)
def test_the_first_label_that_differs_is_named(theirs: str, ours: str, found: List[str]) -> None:
    assert card.differences({card.LABELS: theirs, "x": "1"}, {card.LABELS: ours, "y": "2"}) == found


def test_names_of_an_earlier_checkpoint() -> None:
    tokens = "\n".join(dictionary("a").symbols)
    names = {"source": tokens, "labels": "x\ny", "languages": "en\nde", "tokenizer": "--tokenizer moses --b --a"}
    assert card.card_of({"names": names}, "a.pt") == {
        "source": digest_of_dictionary(dictionary("a")),
        "labels": "x\ny",
        "languages": "en-de",
        "tokenizer": "--tokenizer moses --a --b",
    }


def translation(pair: str, folder: Path, *tokens: str) -> TranslationTask:
    source, target = pair.split("-")
    cfg = TranslationConfig(data=str(folder), source_lang=source, target_lang=target)
    return TranslationTask(cfg, dictionary(*tokens), dictionary(*tokens))


@pytest.mark.parametrize(
    ("pair", "anew", "refused"),
    [
        ("de-en", False, True),
        ("en-de", False, False),
        ("de-en", True, False),  # a parent of other languages, with the same tokens
    ],
)
def test_languages(pair: str, anew: bool, refused: bool, tmp_path: Path) -> None:
    theirs, task = card_of_task(translation("en-de", tmp_path, "a")), translation(pair, tmp_path, "a")
    assert set(theirs) == {"languages", "source", "target"}
    if not refused:
        card.check("a.pt", theirs, task, card_of_task(task), anew)
        return
    with pytest.raises(card.OtherCard, match=f"languages: en-de in the checkpoint, {pair} in the data"):
        card.check("a.pt", theirs, task, card_of_task(task), anew)


def test_all_entries_that_differ_are_named() -> None:
    theirs, own = (dict.fromkeys((card.SCALE, card.LENGTH, card.LABELS), text) for text in "ab")
    with pytest.raises(card.OtherCard, match=": labels: .*; length: .*; scale: "):
        card.check("a.pt", theirs, task_with(), own)


@pytest.mark.parametrize("theirs", [{}, {"source": "0"}])
def test_a_checkpoint_without_a_card_is_loaded_with_a_warning(theirs: Dict[str, str], caplog: Any) -> None:
    card.check("a.pt", theirs, task_with(), {"source": "0"})
    assert ["a.pt has no data card" in line for line in caplog.messages] == [True] * (not theirs)


def test_a_training_writes_it_and_fairseq_reads_the_rest(tiny_model: Any) -> None:
    """The entry stands for itself: all that fairseq looks for is as it was, and so is the state of the task."""
    checkpoint = torch.load(tiny_model.checkpoint)
    whole = Dictionary.load(str(tiny_model.data / "dict.en.txt"))
    assert checkpoint["card"]["languages"] == "en-de"
    assert checkpoint["card"]["source"] == checkpoint["card"]["target"] == digest_of_dictionary(whole)
    assert checkpoint["task_state"] == {} and "card" not in checkpoint["extra_state"] and "names" not in checkpoint


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(
    ("theirs", "folders", "numbered"),
    [
        ({"labels": "cat\ndog", "framing": "1"}, False, "data"),
        ({"framing": "1"}, True, "a.pt"),
        ({"labels": "cat\ndog", "framing": "1"}, True, None),
        ({"framing": "1"}, False, None),
    ],
)
def test_classes_that_one_side_numbers(
    theirs: Dict[str, str], folders: bool, numbered: Optional[str], anew: bool, tmp_path: Path, caplog: Any
) -> None:
    """Arrays and models trained on them have numbers for classes, which may mean others than those of folders."""
    data = tmp_path / "data"
    if folders:
        for name in ("cat", "dog"):
            (data / "train" / name).mkdir(parents=True)
    else:
        tiny_images.write(data)
    task = test_image_classification.task_of(data)
    own = {"labels": "cat\ndog"} if folders else {"x": "y"}
    card.check("a.pt", theirs, task, own, anew)
    warned = [line for line in caplog.messages if "labels" in line]
    if numbered is None or anew:
        assert not warned
        return
    (line,) = warned
    assert line.startswith({"a.pt": "a.pt", "data": str(data)}[numbered]) and "cat, dog" in line


@tiny_images.needs_timm
def test_a_training_keeps_the_card_of_its_beginning(tmp_path: Path) -> None:
    """Data that go away while it runs take no entries from its checkpoints."""
    data = tiny_images.write_files(tmp_path / "data")
    trainer: Any = SimpleNamespace(task=test_image_classification.task_of(data), cfg=SimpleNamespace(bpe=None))
    trainer.cfg.ema = SimpleNamespace(store_ema=False)
    hooks.run_with([card.compare_for_training], lambda self: None, trainer)
    trainer.task.cfg.data = str(tmp_path)
    assert hooks.run_with([card.add_card], lambda self: {"model": {}}, trainer)["card"] == {
        "labels": "class0\nclass1\nclass2",
        "framing": "0.875",
    }


@pytest.mark.parametrize(
    ("second", "refused"),
    [("a 9\nb 1\n", False), ("b 1\na 1\n", True), (None, False)],
)
def test_all_data_folders_have_one_dictionary(second: Optional[str], refused: bool, tmp_path: Path) -> None:
    """Compare all of DATA1:DATA2, of which fairseq reads the first dictionary."""
    for name, text in (("one", "a 1\nb 1\n"), ("two", second)):
        (tmp_path / name).mkdir()
        for language in ("en", "de"):
            if text is not None:
                (tmp_path / name / f"dict.{language}.txt").write_text(text)
    task = translation("en-de", tmp_path, "a", "b")
    task.cfg.data = f"{tmp_path / 'one'}:{tmp_path / 'two'}"
    if refused:
        with pytest.raises(card.OtherCard, match=f"source: .*{tmp_path}/one/dict.en.txt.*{tmp_path}/two/dict.en.txt"):
            card_of_task(task)
    else:
        card_of_task(task)


def test_models_of_an_ensemble_agree() -> None:
    """Compare models with each other where the data have no such entry, as images in an array."""
    task = task_with()
    for number, given in enumerate(({"labels": "a\nb"}, {}, {"labels": "a\nb"})):
        card.check(f"{number}.pt", given, task, {})
    with pytest.raises(card.OtherCard, match="3.pt .*labels 0: .*the models before it"):
        card.check("3.pt", {"labels": "b\na"}, task, {})


@pytest.mark.parametrize("entry", [card.RATE, card.FRAMING])
def test_inputs_of_a_use_are_those_of_the_training(entry: str) -> None:
    """Others are refused, or read as the model needs them; which several models have to need alike."""
    task, asked = task_with({entry: "2"}), []

    def use(file: str, text: str) -> None:
        state = {card.KEY: (file, {entry: text}, {}), "rest": 1}
        card.compare_for_use(lambda self, rest: asked.append(rest), task, state)

    if entry not in card.FOLLOWED:
        with pytest.raises(card.OtherCard, match=f"{entry}: 1 in the checkpoint, 2 in the data"):
            use("a.pt", "1")
        assert asked == []
        return
    use("a.pt", "1")
    assert task.trained_card == {entry: "1"} and asked == [{"rest": 1}]
    with pytest.raises(card.OtherCard, match=f"b.pt .*{entry}: "):
        use("b.pt", "2")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"card.json": {"unit": "bytes", "cleaning": "lines blanks", "dataset": "x"}}, ("bytes", "lines blanks", None)),
        ({"unit.json": {"unit": "subwords"}, "cleaning.json": {"cleaning": ["a", "b"]}}, ("subwords", "a\nb", None)),
        ({"SOURCE.json": {"settings": {"length": 9}}}, ("bytes", None, "the first 9 bytes")),
        ({"SOURCE.json": {"settings": {"length": 9, "end": True}}}, ("bytes", None, "the last 9 bytes")),
        ({"SOURCE.json": {"settings": {"dataset": "listops"}}}, ("words", None, None)),
        ({"card.json": {"unit": "bytes"}, "unit.json": {"unit": "words"}}, ("bytes", None, None)),
        ({}, (None, None, None)),
    ],
)
def test_settings_that_folders_record(files: Dict[str, Any], found: Any, tmp_path: Path) -> None:
    """Those of earlier versions are read still."""
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    settings = settings_of_data(tmp_path)
    assert tuple(settings.get(entry) for entry in (card.UNIT, card.CLEANING, card.LENGTH)) == found
