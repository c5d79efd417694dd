"""The encoder that options give is the one that cut the training text, wherever it is given."""

import argparse
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq.data import Dictionary, encoders
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_mega.compat.checkpoints import names, pieces
from fairseq_mega.data.text_cleaning import SENTENCES, mark_model
from fairseq_mega.lab.inspect import attention
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.tasks.lra_text import FIRST, SECOND, LRATextTask
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingConfig, MegaLanguageModelingTask
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
    bpe = SimpleNamespace(_name="sentencepiece", sentencepiece_model=str(models[given])) if given else None
    task = TranslationTask(cfg, dictionary(["a"]), dictionary(["a"]))
    trainer = SimpleNamespace(task=task, cfg=SimpleNamespace(bpe=bpe))
    if kept is ValueError:
        with pytest.raises(names.OtherNames, match=f"{models['other']} did not split .*-model {tmp_path}"):
            names.names_of_training(trainer)
        return
    found = names.names_of_training(trainer).get(names.SUBWORDS)
    digest = names.names_of_subwords(models[kept])[names.SUBWORDS].text if kept else None
    assert (found and found.text) == digest


@pytest.mark.parametrize(("road", "in_folder"), [("training", True), ("use", True), ("use", False)])
def test_a_model_whose_copy_records_the_cleaning(
    road: str, in_folder: bool, models: Dict[str, Path], tmp_path: Path
) -> None:
    """fairseq-mega-prepare own-pairs --model writes such a copy."""
    given, copied = tmp_path / "given.model", tmp_path / "data" / names.SUBWORDS_FILE
    given.write_bytes(models["own"].read_bytes())
    copied.parent.mkdir()
    shutil.copy(given, copied)
    mark_model(copied, SENTENCES)
    task = translator(copied.parent, symbols_of(given))
    task.trained_names = {names.SUBWORDS: names.names_of_subwords(copied)[names.SUBWORDS].text}
    bpe = argparse.Namespace(bpe="sentencepiece", sentencepiece_model=str(given))
    message = (
        f"{given} lacks the record of .* cleaned, which its copy {copied} has: give .*{copied}, or leave --bpe out"
    )
    if not in_folder:
        copied.unlink()
        message = f"{given} is not the file that split the training text: give .* FILE, as for .*subwords.model of its"
    if road == "use":
        with pytest.raises(names.OtherNames, match=message):
            task.build_bpe(bpe)
    else:
        with pytest.raises(names.OtherNames, match=message):
            names.names_of_training(SimpleNamespace(task=task, cfg=SimpleNamespace(bpe=bpe)))


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [("own", "own", False), ("own", "other", True), ("own", None, False), (None, None, False)],
)
@pytest.mark.parametrize("kind", ["translation", "retrieval"])
def test_all_data_folders_have_one_model(
    kind: str, first: Optional[str], second: Optional[str], refused: bool, models: Dict[str, Path], tmp_path: Path
) -> None:
    """Compare those of DATA1:DATA2 and of the two documents of retrieval, of which the first alone is read."""
    folders = [tmp_path / name for name in (FIRST, SECOND)]
    for folder, model in zip(folders, (first, second)):
        folder.mkdir()
        if model:
            shutil.copy(models[model], folder / names.SUBWORDS_FILE)
    task: Any
    if kind == "translation":
        task = translator(folders[0], ["a"])
        task.cfg.data = ":".join(map(str, folders))
    else:
        task = LRATextTask(argparse.Namespace(data=str(tmp_path)), dictionary(["a"]), dictionary(["0"]))
    if refused:
        wanted = f"{folders[1]}/subwords.model is another model of pieces than {folders[0]}/subwords.model"
        with pytest.raises(names.OtherNames, match=wanted):
            names.names_of(task)
    else:
        assert (names.SUBWORDS in names.names_of(task)) == bool(first)


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["a b", "\u2581c d"], True),
        (["\u2581c d", "a b"], True),
        (["\u2581c d", "", "\u2581a"], False),
        (["a b"], True),
    ],
)
def test_pieces_come_out_where_all_texts_were_pieces(texts: List[str], joined: bool) -> None:
    """Whatever the order of the texts of a buffer, and whatever the buffer before."""
    encoder = pieces.TextOrPieces(SimpleNamespace(encode=lambda text: f"cut {text}", decode=lambda text: "joined"))
    for before in (["\u2581e"], ["e"]):
        for buffer in (before, texts):
            cut = [encoder.encode(text) for text in buffer]
            found = [encoder.decode("\u2581e") for _ in buffer]
        assert cut == [text if "\u2581" in text else f"cut {text}" for text in texts]
        assert found == (["joined"] if joined else ["\u2581e"]) * len(texts)


@pytest.mark.parametrize("road", ["interactive", "generate", "hub"])
@pytest.mark.parametrize(
    ("remembers", "given", "message"),
    [
        ("words", "words", None),
        ("words", "own", "--bpe sentencepiece --sentencepiece-model .* is not the file that split the training text"),
        (None, "words", None),
        (None, "own", None),
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


@pytest.mark.parametrize("road", ["interactive", "hub"])
def test_the_data_folder_has_what_cut_its_text(
    road: str, models: Dict[str, Path], tiny_model: Any, tmp_path: Path, device_flags: List[str]
) -> None:
    """Without --bpe, text is cut by the sentencepiece model of the folder."""
    data = Path(shutil.copytree(tiny_model.data, tmp_path / "data"))
    shutil.copy(models["words"], data / names.SUBWORDS_FILE)
    symbols = symbols_of(models["words"])
    for path in data.glob("dict.*.txt"):
        path.write_text("".join(f"{symbol} 1\n" for symbol in symbols[: len(path.read_text().splitlines())]))
    checkpoint = torch.load(tiny_model.checkpoint)
    torch.save({**checkpoint, "names": {}}, tmp_path / "model.pt")
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
    other, tokens = answers(cut, {})  # pieces in, pieces out
    assert tokens == cut and other != translation
    assert other.replace(" ", "").replace("\u2581", " ").strip() == translation


@pytest.mark.parametrize("road", ["interactive", "constraint", "hub", "inspect"])
@pytest.mark.parametrize("text", ["name: \u2581 w1", "name: \u00e9", "\u2581 w1"])
def test_plain_text_with_the_mark_of_pieces(
    road: str, text: str, models: Dict[str, Path], tiny_model: Any, tmp_path: Path, device_flags: List[str], caplog: Any
) -> None:
    """It is read as pieces, so nearly all of it is unknown; the warning names the cause where symbols are unknown."""
    data = Path(shutil.copytree(tiny_model.data, tmp_path / "data"))
    shutil.copy(models["words"], data / names.SUBWORDS_FILE)
    symbols = symbols_of(models["words"])
    for path in data.glob("dict.*.txt"):
        path.write_text("".join(f"{symbol} 1\n" for symbol in symbols[: len(path.read_text().splitlines())]))
    torch.save({**torch.load(tiny_model.checkpoint), "names": {}}, tmp_path / "model.pt")
    if road == "hub":
        hub = MegaModel.from_pretrained(str(tmp_path), "model.pt", str(data))
        hub.translate(["w2", text], beam=1)
        printed = caplog.messages
    elif road == "inspect":
        attention.attention_for(tmp_path / "model.pt", data, text, None)
        printed = caplog.messages
    else:
        flags = ["--path", tmp_path / "model.pt", *device_flags, *(["--constraints"] if road == "constraint" else [])]
        lines = f"w2\t{text}\n" if road == "constraint" else f"w2\n{text}\n"
        printed = helpers.run_fairseq("interactive", [data, *flags], lines).splitlines()
    [found] = [message for message in printed if "unknown to the model" in message]
    cause = "(<unk>): \u2581 (U+2581) makes a text be read as pieces, so remove it from plain text"
    assert found.endswith(cause if "\u2581" in text else "(<unk>)")


@pytest.mark.parametrize("bpe", ["sentencepiece", "characters"])
def test_an_encoder_that_no_checkpoint_names_is_told(bpe: str, models: Dict[str, Path], caplog: Any) -> None:
    symbols = symbols_of(models["own"]) if bpe == "sentencepiece" else ["a", "b", "\u2581"]
    task = SimpleNamespace(source_dictionary=dictionary(symbols))
    encoder = encoders.build_bpe(argparse.Namespace(bpe=bpe, sentencepiece_model=str(models["own"])))
    for _ in range(2):
        pieces.compare(names.SUBWORDS, encoder, task, True)
    (told,) = caplog.messages
    assert told.startswith("the checkpoint does not name what split its training text into pieces: --bpe " + bpe)


def through(road: str, task: Any, tokenizer: Optional[str] = None) -> None:
    """Build the encoders of a task without ``--bpe``, as a command or the hub does, or as inspect does without any."""
    given = argparse.Namespace(tokenizer=tokenizer, source_lang="en", target_lang="de")
    if road == "hub":
        hub = SimpleNamespace(tokenizer=encoders.build_tokenizer(given), bpe=None)
        for _ in range(2):  # from_pretrained of a language model builds two interfaces
            pieces._comparing(lambda *_: None, SimpleNamespace(**vars(hub)), None, task, [])
    elif road == "inspect":
        attention._source_symbols(task, "a")
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pieces, "reads_lines", lambda: road == "interactive")
            task.build_tokenizer(given)
            task.build_bpe(argparse.Namespace(bpe=None))


def language_model(folder: Path, symbols: List[str]) -> Any:
    return MegaLanguageModelingTask(MegaLanguageModelingConfig(data=str(folder)), dictionary(symbols))


CHARACTERS = {names.SUBWORDS: "--bpe characters"}
MOSES = {names.TOKENIZER: "--tokenizer moses --moses-no-escape"}


@pytest.mark.parametrize(
    ("model", "road"),
    [
        *(("translator", road) for road in ("interactive", "hub", "inspect", "generate")),
        *(("language model", road) for road in ("interactive", "hub", "generate")),
    ],
)
@pytest.mark.parametrize(
    ("remembers", "in_folder", "warned"),
    [
        ("own", None, ["COPYWANT --bpe sentencepiece --sentencepiece-model"]),
        (CHARACTERS, None, ["^WANT --bpe characters"]),
        (MOSES, None, ["^WANT --tokenizer moses --moses-no-escape"]),
        ({**MOSES, **CHARACTERS}, None, ["^WANT --tokenizer", "^WANT --bpe"]),
        ("own", "own", []),
        ({}, None, []),
    ],
)
def test_text_that_nothing_splits(
    model: str,
    road: str,
    remembers: Any,
    in_folder: Optional[str],
    warned: List[str],
    models: Dict[str, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The training text was split into words or pieces, and text is read without their options; generate reads none."""
    task = (translator if model == "translator" else language_model)(tmp_path, symbols_of(models["own"]))
    if in_folder:
        shutil.copy(models[in_folder], tmp_path / names.SUBWORDS_FILE)
    if remembers == "own":
        remembers = {names.SUBWORDS: names.names_of_subwords(models["own"])[names.SUBWORDS].text}
    task.trained_names = remembers
    through(road, task)
    copy = "^.*subwords.model does not exist: copy it .*, or " if model == "translator" else "^"
    want = "--attention: give the text split into its (words|pieces) with" if road == "inspect" else "give"
    found = sorted(warnings_in(caplog), key=lambda text: "--bpe" in text)
    assert len(found) == (0 if road == "generate" else len(warned))
    patterns = [pattern.replace("COPY", copy).replace("WANT", want) for pattern in warned]
    assert all(map(re.search, patterns, found))


def warnings_in(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("road", ["interactive", "hub"])
@pytest.mark.parametrize(
    ("remembers", "warned"),
    [
        (
            CHARACTERS,
            "--tokenizer moses: the checkpoint records --bpe characters of .*, and no --tokenizer: leave it out",
        ),
        ({}, None),
        ({**CHARACTERS, names.TOKENIZER: "--tokenizer moses"}, None),
    ],
)
def test_a_tokenizer_that_the_training_did_not_have(
    road: str, remembers: Dict[str, str], warned: Optional[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, unless the checkpoint records no encoder at all."""
    task = language_model(tmp_path, ["it", "is"])
    task.trained_names = remembers
    through(road, task, "moses")
    found = [message for message in warnings_in(caplog) if "--tokenizer" in message]
    assert len(found) == (warned is not None)
    assert warned is None or re.search(warned, found[0])


@pytest.mark.parametrize("settings", ["absent", "without the file", "whole"])
def test_attention_of_a_language_model(
    settings: str, codes: Dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads plain text with the encoders of the training, or else the pieces of text, which a warning demands."""
    task = language_model(tmp_path, [])
    task.trained_names = {**MOSES, names.SUBWORDS: "--bpe subword_nmt --bpe-codes " + 64 * "0"}
    file = codes["own"] if settings == "whole" else tmp_path / "codes"
    bpe = {"_name": "subword_nmt", "bpe_codes": str(file), "bpe_separator": "@@"}
    absent = settings == "absent"
    cfg = OmegaConf.create({"bpe": None if absent else bpe, "tokenizer": None if absent else {"_name": "moses"}})
    attention._choose_encoders(cfg, task)
    assert len(warnings_in(caplog)) == (0 if settings == "whole" else 2)
    assert (cfg.bpe is None) == (cfg.tokenizer is None) == (settings != "whole")


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
        pieces.compare(names.SUBWORDS, bpe, task, True)
        return
    file = tmp_path / names.SUBWORDS_FILE if in_folder else "FILE"
    with pytest.raises(names.OtherNames, match=f"give --bpe sentencepiece --sentencepiece-model {file}"):
        pieces.compare(names.SUBWORDS, bpe, task, False)


TEXT = [f"the {a} {b}er is {b}ing a well-known {a}est {b}" for a in ("low", "new", "wide") for b in ("read", "writ")]


@pytest.fixture(scope="session")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Merges of subword-nmt: of a text, and of another one."""
    from subword_nmt.learn_bpe import learn_bpe

    folder = tmp_path_factory.mktemp("codes")
    texts = {"own": TEXT, "other": [line[::-1] for line in TEXT]}
    for name, lines in texts.items():
        with (folder / name).open("w") as out:
            learn_bpe(lines, out, 40)
    return {name: folder / name for name in texts}


def options_of(encoder: str, folder: Path, codes: Dict[str, Path], models: Dict[str, Path]) -> Dict[str, Any]:
    """Options of an encoder by its name and that of its files, as fairseq's parser has them."""
    name, *which = encoder.split()
    if name.startswith("subword_nmt"):
        return {"bpe": "subword_nmt", "bpe_codes": str(codes[which[0]]), "bpe_separator": name[11:] or "@@"}
    if name == "byte_bpe":
        return {"bpe": name, "sentencepiece_model_path": str(models[which[0]])}
    if name == "gpt2":
        (folder / f"{which[0]}.json").write_text(json.dumps({letter: number for number, letter in enumerate(which[0])}))
        (folder / "merges").write_text("#version: 0.2\n")
        return {
            "bpe": name,
            "gpt2_encoder_json": str(folder / f"{which[0]}.json"),
            "gpt2_vocab_bpe": str(folder / "merges"),
        }
    if name == "moses":
        return {"tokenizer": name, **{f"moses_no_{option}": option in which for option in ("escape", "dash_splits")}}
    return {"tokenizer" if name in ("space", "nltk") else "bpe": name}


def kind_of(options: Dict[str, Any]) -> str:
    return names.SUBWORDS if "bpe" in options else names.TOKENIZER


def build(options: Dict[str, Any], task: Any) -> Any:
    """The encoder of options, as a command builds it: compared."""
    given = argparse.Namespace(source_lang="en", target_lang="de", **options)
    return task.build_bpe(given) if "bpe" in options else task.build_tokenizer(given)


def translator(folder: Path, symbols: List[str]) -> Any:
    cfg = TranslationConfig(data=str(folder), source_lang="en", target_lang="de")
    return TranslationTask(cfg, dictionary(symbols), dictionary(symbols))


@pytest.mark.parametrize(
    ("trained", "given", "remedy"),
    [
        ("subword_nmt own", "subword_nmt own", None),
        ("subword_nmt own", "subword_nmt other", "--bpe subword_nmt --bpe-codes FILE, as"),
        ("subword_nmt own", "subword_nmt| own", "--bpe subword_nmt --bpe-codes FILE, as"),
        ("subword_nmt| own", "subword_nmt own", r"--bpe-codes FILE --bpe-separator \|, as"),
        ("subword_nmt own", "characters", "--bpe subword_nmt --bpe-codes FILE, as"),
        ("byte_bpe own", "byte_bpe own", None),
        ("byte_bpe own", "byte_bpe other", "--bpe byte_bpe --sentencepiece-model-path FILE, as"),
        ("gpt2 abc", "gpt2 abc", None),
        ("gpt2 abc", "gpt2 bca", "--bpe gpt2 --gpt2-encoder-json FILE --gpt2-vocab-bpe FILE, as"),
        ("characters", "characters", None),
        ("characters", "bytes", "--bpe characters, as"),
        ("bytes", "characters", "--bpe bytes, as"),
        ("moses escape", "moses escape", None),
        ("moses escape", "moses", "--tokenizer moses --moses-no-escape, as"),
        ("moses", "moses dash_splits", "--tokenizer moses, as"),
        ("moses escape dash_splits", "space", "--tokenizer moses --moses-no-escape --moses-no-dash-splits, as"),
        ("space", "moses", "--tokenizer space, as"),
    ],
)
def test_what_cut_the_training_text_cuts_all_text(
    trained: str, given: str, remedy: Optional[str], codes: Dict[str, Path], models: Dict[str, Path], tmp_path: Path
) -> None:
    """Options of a training are kept, and those of a later command are the same."""
    then, now = (options_of(encoder, tmp_path, codes, models) for encoder in (trained, given))
    option = names.OPTIONS[kind_of(then)]
    cfg = SimpleNamespace(**{option: SimpleNamespace(_name=then.pop(option), **then)})
    trainer = SimpleNamespace(task=translator(tmp_path, []), cfg=cfg)
    task = translator(tmp_path, [])
    task.trained_names = {kind: found.text for kind, found in names.names_of_training(trainer).items()}
    assert set(task.trained_names) >= {kind_of(now)}
    if remedy is None:
        assert build(now, task) is not None
    else:
        with pytest.raises(names.OtherNames, match=f"did not split the training text: give .*{remedy} for the"):
            build(now, task)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bpe": "sentencepiece", "sentencepiece_model": "none"}, "--sentencepiece-model none does not exist: give"),
        (
            {"bpe": "sentencepiece", "sentencepiece_model": "text"},
            "--sentencepiece-model text: the encoder cannot be built",
        ),
        ({"bpe": "byte_bpe", "sentencepiece_model_path": "none"}, "--sentencepiece-model-path none does not exist"),
        (
            {"bpe": "byte_bpe", "sentencepiece_model_path": "text"},
            "--sentencepiece-model-path text: the encoder cannot be built",
        ),
        ({"bpe": "subword_nmt", "bpe_codes": "none", "bpe_separator": "@@"}, "--bpe-codes none does not exist"),
        (
            {"bpe": "subword_nmt", "bpe_codes": "text", "bpe_separator": "@@"},
            "--bpe-codes text: the encoder cannot be built",
        ),
        ({"bpe": "gpt2", "gpt2_encoder_json": "text", "gpt2_vocab_bpe": "none"}, "--gpt2-vocab-bpe none does not"),
        ({"bpe": "gpt2", "gpt2_encoder_json": "text", "gpt2_vocab_bpe": "text"}, "--gpt2-encoder-json text --gpt2-voc"),
    ],
)
def test_files_that_make_no_encoder(
    options: Dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a text of no use\n")
    with pytest.raises(ValueError, match=message):
        build(options, translator(tmp_path, []))
