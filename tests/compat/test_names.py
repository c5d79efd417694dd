"""Names of numbers in checkpoints: what is the same, what is not, what an old checkpoint has, and what has none."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_mega.compat.checkpoints import names
from tests.support import helpers, tiny_images
from tests.tasks import test_image_classification


def dictionary(*symbols: str, counts: int = 1) -> Dictionary:
    built = Dictionary()
    for symbol in symbols:
        built.add_symbol(symbol, n=counts)
    return built


def text_of(built: Dictionary) -> str:
    return names.names_of_dictionary(built, "dict.txt").text


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        (dictionary("a", "b"), dictionary("a", "b", counts=7), None),
        (dictionary("a", "b"), dictionary("b", "a"), "number 4 is 'a' in the checkpoint and 'b' in the data"),
        (dictionary("a", "b"), dictionary("a", "c"), "number 5 is 'b' in the checkpoint and 'c' in the data"),
        (
            dictionary("a"),
            dictionary("a", "madeupword0000"),
            "number 5 is nothing in the checkpoint and 'madeupword0000' in the data, of 5 and 6",
        ),
        (
            dictionary("a", "b"),
            dictionary("a"),
            "number 5 is 'b' in the checkpoint and nothing in",
        ),
        (dictionary("\u00e9"), dictionary("e\u0301"), "number 4 is '\u00e9' in the checkpoint"),
        (dictionary("A"), dictionary("a"), "number 4 is 'A' in the checkpoint and 'a' in the data"),
    ],
)
def test_dictionaries(theirs: Dictionary, ours: Dictionary, found: Optional[str]) -> None:
    difference = names.difference(text_of(theirs), text_of(ours))
    assert difference == found or (found is not None and difference is not None and difference.startswith(found))


@pytest.mark.parametrize("key", ["dictionary_fingerprint", "decoder.dictionary_fingerprint", "dictionary_fingerprints"])
def test_fingerprints_of_old_checkpoints(key: str) -> None:
    """The number was the beginning of a SHA-256 of the symbols, one on a line."""
    digest = hashlib.sha256("\n".join(dictionary("a").symbols).encode()).digest()
    number = int.from_bytes(digest[:7], "big")
    found = names.trained_names({"model": {key: torch.tensor([number])}}, "old.pt")
    assert names.difference(found["source"], text_of(dictionary("a"))) is None
    assert names.difference(found["source"], text_of(dictionary("b"))) is not None
    assert names.lasting(found) == {}


@pytest.mark.parametrize("broken", [5, ["a"], {"source": 5}, {5: "a"}])
def test_what_are_no_names(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"broken\.pt: its entry 'names' contains no names"):
        names.trained_names({"names": broken, "model": {}}, "broken.pt")


def translation(pair: str, folder: Path, *symbols: str) -> TranslationTask:
    source, target = pair.split("-")
    cfg = TranslationConfig(data=str(folder), source_lang=source, target_lang=target)
    return TranslationTask(cfg, dictionary(*symbols), dictionary(*symbols))


@pytest.mark.parametrize(
    ("task", "anew", "message"),
    [
        ("de-en", False, r"a\.pt translates en-de, not de-en: give --source-lang en --target-lang de"),
        ("en-fr", False, r"a\.pt translates en-de, not en-fr"),
        ("en-de", False, None),
        ("de-en", True, None),  # a parent of other languages, with the same symbols
    ],
)
def test_languages(task: str, anew: bool, message: Optional[str], tmp_path: Path) -> None:
    theirs = {kind: given.text for kind, given in names.names_of(translation("en-de", tmp_path, "a", "b")).items()}
    assert set(theirs) == {"languages", "source", "target"}
    if message is None:
        names.check("a.pt", theirs, translation(task, tmp_path, "a", "b"), anew=anew)
        return
    with pytest.raises(names.OtherNames, match=message):
        names.check("a.pt", theirs, translation(task, tmp_path, "a", "b"), anew=anew)


def test_what_one_side_does_not_name_is_not_compared(tmp_path: Path) -> None:
    task = translation("en-de", tmp_path, "a")
    names.check("a.pt", {}, task)
    names.check("a.pt", {"labels": "x\ny", "subwords": "0"}, task)


def test_tasks_of_many_languages() -> None:
    """All dictionaries are compared, each by its language: the task decides which of them is the source's."""
    task: Any = SimpleNamespace(args=SimpleNamespace(data="x"), dicts={"de": dictionary("a"), "en": dictionary("b")})
    assert set(names.names_of(task)) == {"de", "en"}
    with pytest.raises(names.OtherNames, match="another dictionary of en than x"):
        names.check("a.pt", {"de": text_of(dictionary("a")), "en": text_of(dictionary("c"))}, task)


def test_a_training_writes_them_and_fairseq_reads_the_rest(tiny_model: Any, tmp_path: Path) -> None:
    """The entry stands for itself: all that fairseq looks for is as it was, and so is the state of the task."""
    checkpoint = torch.load(tiny_model.checkpoint)
    symbols = (tiny_model.data / "dict.en.txt").read_text().splitlines()
    assert checkpoint["names"]["languages"] == "en\nde"
    assert checkpoint["names"]["source"].split("\n")[4:] == [line.split()[0] for line in symbols]
    assert checkpoint["names"]["target"] == checkpoint["names"]["source"]
    assert checkpoint["task_state"] == {} and not any("fingerprint" in name for name in checkpoint["model"])


@pytest.mark.parametrize("direction", ["generate", "interactive"])
def test_the_other_direction(direction: str, tiny_model: Any, device_flags: List[str]) -> None:
    flags = ["--source-lang", "de", "--target-lang", "en", "--max-len-b", 3, *device_flags]
    with pytest.raises(names.OtherNames, match="translates en-de, not de-en: give --source-lang en --target-lang de"):
        helpers.run_fairseq(direction, [tiny_model.data, "--path", tiny_model.checkpoint, *flags], "w1\n")


def test_a_model_of_another_task(tiny_model: Any, tmp_path: Path, device_flags: List[str]) -> None:
    """Whose encoders and decoders, one for each language, only its own task can build."""
    task = ["--task", "multilingual_translation", "--lang-pairs", "en-de"]
    options = ["--arch", "multilingual_transformer", "--max-update", 1, "--disable-validation", "--save-dir", tmp_path]
    sizes = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim", "ffn-embed-dim")]
    options += [
        "--optimizer",
        "adam",
        "--max-tokens",
        200,
        *device_flags,
        *(word for size in sizes for word in (size, 8)),
    ]
    helpers.run_fairseq("train", [tiny_model.data, *task, *options])
    given = [tiny_model.data, "--path", tmp_path / "checkpoint_last.pt", "-s", "en", "-t", "de", *device_flags]
    asked = "was trained with --task multilingual_translation, .* --task translation: give --task multilingual_transl"
    with pytest.raises(ValueError, match=asked):
        helpers.run_fairseq("generate", given)
    assert "Generate test" in helpers.run_fairseq("generate", [*given, *task, "--max-len-b", 3])


def test_a_checkpoint_without_names_goes_on_loading(tiny_model: Any, tmp_path: Path, device_flags: List[str]) -> None:
    checkpoint: Dict[str, Any] = torch.load(tiny_model.checkpoint)
    del checkpoint["names"]
    torch.save(checkpoint, tmp_path / "old.pt")
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "old.pt")], {"data": str(tiny_model.data)}
    )
    assert isinstance(task, tasks.FairseqTask) and model is not None


@pytest.mark.parametrize("split", ["train", "valid", "val", "extra"])
def test_class_folders_of_any_split(split: str, tmp_path: Path) -> None:
    """Another split numbers the classes if that of training is gone."""
    for name in ("cat", "dog"):
        (tmp_path / split / name).mkdir(parents=True)
    task = test_image_classification.task_of(tmp_path)
    names.check("a.pt", {"labels": "cat\ndog"}, task)
    assert task.labels() == ["cat", "dog"]
    with pytest.raises(names.OtherNames, match=f"another list of labels than {tmp_path / split} .number 0 is 'ape'"):
        names.check("a.pt", {"labels": "ape\ncat"}, task)


def test_classes_without_folders_have_the_names_of_the_training(tmp_path: Path) -> None:
    task = test_image_classification.task_of(tmp_path)
    assert task.labels() == []
    names.check("a.pt", {"labels": "cat\ndog"}, task)
    assert task.labels() == ["cat", "dog"]


@pytest.mark.parametrize("use", ["use", "resumption", "new training"])
@pytest.mark.parametrize(
    ("theirs", "folders", "numbered"),
    [
        ({"labels": "cat\ndog", "framing": "1"}, False, "data"),
        ({"framing": "1"}, True, "a.pt"),
        ({"labels": "cat\ndog", "framing": "1"}, True, None),
        ({"framing": "1"}, False, None),
        ({}, True, None),  # of an older version
    ],
)
def test_classes_that_one_side_numbers(
    theirs: Dict[str, str],
    folders: bool,
    numbered: Optional[str],
    use: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Arrays and models trained on them have numbers for classes, which may mean others than those of folders."""
    data = tmp_path / "data"
    if folders:
        for name in ("cat", "dog"):
            (data / "train" / name).mkdir(parents=True)
    else:
        tiny_images.write(data)
    task = test_image_classification.task_of(data)
    own = {"labels": names.Names("cat\ndog", str(data / "train"), "")} if folders else {}
    names.check("a.pt", theirs, task, None if use == "use" else own, anew=use == "new training")
    warned = "\n".join(record.getMessage() for record in caplog.records)
    if numbered is None or use == "new training":
        assert not warned
        return
    where = {"a.pt": "a.pt", "data": str(data)}[numbered]
    assert warned.startswith(f"{where} has no names of classes to compare with those of ")
    assert "make sure that its numbers mean the same classes (0 is 'cat', 1 is 'dog'):" in warned


@tiny_images.needs_timm
def test_a_training_keeps_the_names_of_its_beginning(renamed: Any, tmp_path: Path) -> None:
    """Data that go away while it runs take no names from its checkpoints."""
    made = renamed["images"]
    trainer: Any = SimpleNamespace(task=test_image_classification.task_of(made.data), cfg=SimpleNamespace(bpe=None))
    names._load_for_training(lambda *given: None, trainer, "absent.pt")
    trainer.task.cfg.data = str(tmp_path)
    assert names._with_names(lambda self: {"model": {}}, trainer)["names"] == {
        "labels": "class0\nclass1\nclass2",
        "framing": "0.875",
    }


@pytest.mark.parametrize("road", ["training", "loading"])
@pytest.mark.parametrize(
    ("second", "refused"),
    [("a 9\nb 1\n", False), ("b 1\na 1\n", True), ("a 1\n", True), ("a 1\nb 1\nc 1\n", True), (None, False)],
)
def test_all_data_folders_have_one_dictionary(road: str, second: Optional[str], refused: bool, tmp_path: Path) -> None:
    """Compare all of DATA1:DATA2, of which fairseq reads the first dictionary."""
    for name, text in (("one", "a 1\nb 1\n"), ("two", second)):
        (tmp_path / name).mkdir()
        for language in ("en", "de"):
            if text is not None:
                (tmp_path / name / f"dict.{language}.txt").write_text(text)
    task = translation("en-de", tmp_path, "a", "b")
    task.cfg.data = f"{tmp_path / 'one'}:{tmp_path / 'two'}"
    trainer: Any = SimpleNamespace(task=task, cfg=SimpleNamespace(bpe=None))
    ours = text_of(dictionary("a", "b"))

    def use() -> None:
        if road == "training":
            names.names_of_training(trainer)
        else:
            names.check("a.pt", {"source": ours, "target": ours}, task)

    if refused:
        with pytest.raises(names.OtherNames, match=f"{tmp_path}/one/dict.en.txt.* {tmp_path}/two/dict.en.txt"):
            use()
    else:
        use()


@pytest.mark.parametrize("kind", ["labels", "subwords", "source"])
@pytest.mark.parametrize(("second", "third", "refused"), [("a\nb", "a\nb", 0), ("b\na", "a\nb", 2), (None, "b\na", 3)])
def test_models_of_an_ensemble_agree(kind: str, second: Optional[str], third: str, refused: int) -> None:
    """Compare models with each other where the data name no numbers, as images in an array."""
    task: Any = SimpleNamespace(names_of_numbers=dict)
    for number, text in enumerate(("a\nb", second, third), 1):
        given = {} if text is None else {kind: text}
        if number == refused:
            with pytest.raises(
                names.OtherNames, match=f"{number}.pt was trained with another .* than the models before"
            ):
                names.check(f"{number}.pt", given, task)
            return
        names.check(f"{number}.pt", given, task)
    assert task.trained_names == {kind: "a\nb"}


@pytest.mark.parametrize("kind", sorted(names.INPUTS))
@pytest.mark.parametrize(
    ("theirs", "use", "refused"),
    [("1", "new training", False), ("1", "resumption", True), ("2", "resumption", False), (None, "resumption", False)],
)
def test_other_inputs(kind: str, theirs: Optional[str], use: str, refused: bool) -> None:
    """A training that begins with the weights alone has those of its data, and its checkpoint remembers these."""
    own = {kind: names.Names("2", "clips.pt", "give others")}
    task: Any = SimpleNamespace(names_of_numbers=lambda: own)
    given = {} if theirs is None else {kind: theirs}
    if refused:
        with pytest.raises(
            names.OtherNames, match="another .* than clips.pt .'1' in the checkpoint and '2' in the data"
        ):
            names.check("a.pt", given, task, own, anew=use == "new training")
        return
    names.check("a.pt", given, task, own, anew=use == "new training")
    assert task.trained_names.get(kind, "2") == "2"


@pytest.mark.parametrize("kind", sorted(names.INPUTS))
def test_inputs_of_a_use_are_those_of_the_training(kind: str) -> None:
    """Others are refused, or read as the model needs them; which several models have to need alike."""
    task: Any = SimpleNamespace(names_of_numbers=lambda: {kind: names.Names("2", "clips.pt", "give others")})
    if kind not in names.FOLLOWED:
        with pytest.raises(names.OtherNames, match="'1' in the checkpoint and '2' in the data"):
            names.check("a.pt", {kind: "1"}, task)
        return
    names.check("a.pt", {kind: "1"}, task)
    assert task.trained_names == {kind: "1"}
    with pytest.raises(names.OtherNames, match="b.pt was trained with another .* than the models before it"):
        names.check("b.pt", {kind: "2"}, task)
