"""Texts that are read once: their files, and what is written after them."""

import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import safetensors.torch
import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_mega.data.card import write_settings
from fairseq_mega.data.text_units import MODEL_FILE, SubwordVocabulary
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from fairseq_mega.models.streams.context import ContextError, read_tokens
from fairseq_mega.models.streams.generator import TextGenerator
from fairseq_mega.modules.state import named_tensors
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingConfig, MegaLanguageModelingTask
from fairseq_mega.tasks.megalodon_pretrain import MegalodonPretrainConfig, MegalodonPretrainTask
from tests.support import json_texts, tiny_lm, tiny_megalodon
from tests.support.tiny_mega import lively

MODELS: Dict[str, Any] = {
    "mega": (MegaLanguageModel, tiny_lm.TINY),
    "megalodon": (MegalodonLanguageModel, tiny_megalodon.TINY),
}
MOSES = {"source_lang": "en", "target_lang": "en", "moses_no_escape": False, "moses_no_dash_splits": False}
UNITS = ("words", "bytes", "subwords", "documents")
LINES = "\n".join(json_texts.documents(2, seed=4))
# Ends: of a line, of a word and a blank, within a word.
DOCUMENTS = (f"{LINES}\n", f"{LINES}\nthe sea ", f"{LINES}\nthe se", "the sea", "\n", "")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """A folder of data for each unit, without texts."""
    found = {unit: tmp_path_factory.mktemp(unit) for unit in UNITS}
    model = found["documents"] / MODEL_FILE
    train_model([line for text in json_texts.documents(80, 3) for line in text.split("\n")], model.with_suffix(""), 60)
    shutil.copy(model, found["subwords"])
    symbols = {
        "words": sorted({*LINES.split(), "x"}),
        "bytes": map(str, range(256)),
        "subwords": SubwordVocabulary(model).dictionary.symbols[4:],
    }
    for unit, names in symbols.items():
        (found[unit] / "dict.txt").write_text("".join(f"{name} 1\n" for name in names))
        write_settings(found[unit], {"unit": unit})
    return found


def generator_of(
    kind: str, folder: Path, count: int = 1, seed: int = 0, tokenizer: Optional[str] = None, **options: Any
) -> TextGenerator:
    """Models of random weights in float64, for the unit of a folder."""
    documents = not (folder / "dict.txt").exists()
    task_class: Any = MegalodonPretrainTask if documents else MegaLanguageModelingTask
    config: Any = MegalodonPretrainConfig if documents else MegaLanguageModelingConfig
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.task = config(data=str(folder))
    cfg.tokenizer = {"_name": tokenizer, **(MOSES if tokenizer == "moses" else {})} if tokenizer else None
    task = task_class.setup_task(cfg.task)
    model, tiny = MODELS[kind]
    built: List[Any] = []
    for number in range(count):
        torch.manual_seed(seed + number)
        built.append(lively(model.build_model(Namespace(**{**tiny, **options}), task)))
    return TextGenerator(cfg, task, built)


def following(generator: TextGenerator, prompt: str, context: Any, steps: int = 7) -> torch.Tensor:
    """Log probabilities (steps, V) of the tokens that follow a prompt, each time the likeliest one."""
    tokens: List[int] = generator.tokens_of(prompt, context)
    states: Any = (None,) * len(generator.models) if context is None else context.states
    found = []
    for _ in range(steps):
        scores, states = read_tokens(list(generator.models), tokens, states)
        found.append(torch.cat(scores))
        tokens = [int(scores[0].argmax())]
    return torch.stack(found)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", MODELS)
def test_going_on_from_a_file_equals_reading_the_whole(
    kind: str, unit: str, document: str, folders: Dict[str, Path], tmp_path: Path
) -> None:
    generator, file = generator_of(kind, folders[unit]), tmp_path / "text.safetensors"
    generator.save_context(generator.read(document), file)
    context = generator_of(kind, folders[unit]).load_context(file)
    for prompt in ("a ship came\nhome", "", "\nquiet"):
        assert_same(following(generator, prompt, context), following(generator, document + prompt, None))
        whole = generator.complete(document + prompt, 9, seed=1)
        assert generator.complete(prompt, 9, seed=1, context=context) == whole
        pieces = generator.stream(document + prompt, temperature=0.0)
        ours = generator.stream(prompt, temperature=0.0, context=context)
        assert [next(ours) for _ in range(4)] == [next(pieces) for _ in range(4)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", MODELS)
def test_reading_in_parts(kind: str, unit: str, folders: Dict[str, Path]) -> None:
    options: Dict[str, Any] = {"statistics_window": 2} if kind == "megalodon" else {}
    generator, context = generator_of(kind, folders[unit], **options), None
    for begin in range(0, len(LINES), 37):
        context = generator.read(LINES[begin : begin + 37], context)
    assert_same(following(generator, " x", context), following(generator, LINES + " x", None))


@pytest.mark.parametrize("kind", MODELS)
def test_going_on_changes_no_context(kind: str, folders: Dict[str, Path]) -> None:
    generator = generator_of(kind, folders["bytes"])
    context = generator.read(LINES)
    before = {name: tensor.clone() for name, tensor in named_tensors(context.states).items()}
    first = following(generator, "the sea", context)
    generator.read("and many words more\n", context)
    assert torch.equal(following(generator, "the sea", context), first)
    for name, tensor in named_tensors(context.states).items():
        assert torch.equal(tensor, before[name]), name


def test_several_models(folders: Dict[str, Path], tmp_path: Path) -> None:
    two = generator_of("mega", folders["bytes"], count=2)
    two.save_context(two.read(LINES), tmp_path / "two.safetensors")
    context = two.load_context(tmp_path / "two.safetensors")
    assert two.complete("x", 9, seed=1, context=context) == two.complete(LINES + "x", 9, seed=1)
    with pytest.raises(ContextError, match="with other options"):
        generator_of("mega", folders["bytes"]).load_context(tmp_path / "two.safetensors")


@pytest.mark.parametrize("kind", MODELS)
def test_documents_within_a_row(kind: str, folders: Dict[str, Path], tmp_path: Path) -> None:
    """A document that begins within a chunk leaves a mask in the cache."""
    generator, file = generator_of(kind, folders["words"], reset_at_document_ends=True), tmp_path / "text.safetensors"
    text = "x\nthe "
    generator.save_context(generator.read(text + "sea "), file)
    assert any(tensor.dtype == torch.bool for tensor in safetensors.torch.load_file(file).values())
    context = generator.load_context(file)
    assert_same(following(generator, "and", context), following(generator, text + "sea and", None))


@pytest.mark.parametrize("kind", MODELS)
def test_the_size_does_not_depend_on_the_length(kind: str, folders: Dict[str, Path]) -> None:
    generator = generator_of(kind, folders["bytes"])
    few, many = (generator.read("x" * length) for length in (7, 1007))
    assert many.states[0] is not None and many.states[0].step == 1007
    sizes = [{name: tensor.shape for name, tensor in named_tensors(context.states).items()} for context in (few, many)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("kind", MODELS)
def test_another_precision(kind: str, folders: Dict[str, Path], tmp_path: Path) -> None:
    """The weights decide: products of bfloat16 go on from a context of float32 and the other way."""
    generator, file = generator_of(kind, folders["bytes"]).float(), tmp_path / "text.safetensors"
    for reads, goes_on in ((True, False), (False, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=reads):
            generator.save_context(generator.read(LINES), file)
        with torch.autocast("cpu", torch.bfloat16, enabled=goes_on):
            found = following(generator, "the sea", generator.load_context(file), steps=1)
            whole = following(generator, LINES + "the sea", None, steps=1)
        torch.testing.assert_close(found, whole, atol=0.02, rtol=0)  # without the context 0.05 and more
    with pytest.raises(ContextError, match="with other weights"):
        generator.bfloat16().load_context(file)


@pytest.mark.parametrize(
    ("options", "unit", "words"),
    [
        ({"seed": 1}, "bytes", "weights"),
        ({"decoder_chunk_size": 8}, "bytes", "--decoder-chunk-size 8"),
        ({"reset_at_document_ends": True}, "bytes", "--reset-at-document-ends True"),
        ({"attention_activation_fn": "laplace"}, "bytes", "--attention-activation-fn laplace"),
        ({}, "words", "dictionary"),
    ],
)
def test_contexts_of_others(options: Any, unit: str, words: str, folders: Dict[str, Path], tmp_path: Path) -> None:
    generator, file = generator_of("mega", folders["bytes"]), tmp_path / "text.safetensors"
    generator.save_context(generator.read(LINES), file)
    with pytest.raises(ContextError, match=words) as found:
        generator_of("mega", folders[unit], **options).load_context(file)
    assert str(file) in str(found.value) and "\n" not in str(found.value)


def test_damaged_files(folders: Dict[str, Path], tmp_path: Path) -> None:
    generator, file = generator_of("mega", folders["bytes"]), tmp_path / "text.safetensors"
    generator.save_context(generator.read(LINES), file)
    good = file.read_bytes()
    (place,) = [index for index in range(len(good)) if good.startswith(b'\\"last\\": ', index)]
    weights = safetensors.torch.save({"weight": torch.ones(2)})
    tensor, token = (good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in (len(good) - 9, place + 10))
    for content in (good[:-3], b"text", tensor, token, weights):
        file.write_bytes(content)
        with pytest.raises(ContextError, match=str(file)):
            generator.load_context(file)
