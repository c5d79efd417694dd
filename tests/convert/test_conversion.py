"""Conversion of MEGA's published layout: chunks, options, and what either code lacks; see also test_layouts.py."""

from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Set

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.compat.files.settings import Role, options_of
from fairseq_mega.convert import checkpoints, convert_checkpoint, layouts, publish_checkpoint
from fairseq_mega.convert.building import build_model, check_complete
from fairseq_mega.convert.options import CLASSIFIER_OPTIONS
from fairseq_mega.models.mega import MegaConfig
from fairseq_mega.models.mega_classifier import MegaClassifierConfig
from fairseq_mega.models.mega_lm import MegaLanguageModelConfig
from tests.models.test_published_defaults import parse, stub_task
from tests.support import tiny_mega
from tests.support.plain.comparing import largest_difference, run
from tests.support.published_layouts import LAYOUTS
from tests.support.tiny_classifier import task as classification

GOLDENS = Path(__file__).parent.parent / "goldens"


def published(name: str) -> Dict[str, Any]:
    return LAYOUTS[name]() if name in LAYOUTS else load_checkpoint(GOLDENS / f"{name}.official.pt")


CHUNKED = [
    {"encoder_chunk_size": 5, "attention_activation_fn": "laplace", "decoder_chunk_size": 7},
    {"encoder_chunk_size": 16, "attention_activation_fn": "relu2", "rel_pos_bias": "rotary"},
    {"encoder_chunk_size": 100, "decoder_chunk_size": -1, "max_source_positions": 200},
    {"decoder_chunk_size": 6},
]


def chunked(options: Dict[str, Any]) -> Dict[str, Any]:
    """A checkpoint of ours with these chunks, as a training with the defaults of other options writes it."""
    built = tiny_mega.lively(tiny_mega.build(**options)).float()
    args = Namespace(arch="mega", task="translation", **{**tiny_mega.TINY, **options, "published_source_padding": True})
    return {"args": args, "model": built.state_dict()}


@pytest.mark.parametrize("options", CHUNKED)
def test_chunks_of_both_sides(options: Dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The random input is padded where chunks lie in the same places in both layouts."""
    given = chunked(options)
    torch.save(given, tmp_path / "ours.pt")
    assert run("--input", tmp_path / "ours.pt", "--output", tmp_path / "there.pt", "--to", "official", "--verify") == 0
    assert run("--input", tmp_path / "there.pt", "--output", tmp_path / "back.pt", "--verify") == 0
    assert capsys.readouterr().out.count(f"the {len(given['model'])} weights of the input are equal, bit for bit") == 2
    there, wanted = load_checkpoint(tmp_path / "there.pt"), options.get("decoder_chunk_size")
    assert largest_difference(there, given) < 1e-5
    assert there["args"].decoder_chunk_size == (options.get("encoder_chunk_size") if wanted is None else wanted)


@pytest.mark.parametrize("change", [torch.Tensor.double, lambda tensor: tensor + 1e-7])
def test_a_tensor_that_comes_back_otherwise_fails(
    change: Callable[[torch.Tensor], torch.Tensor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A number or a type that a conversion changes is an error of --verify, and nothing is written."""
    given = published("translator")
    converted = convert_checkpoint(given, "")
    name = "encoder.layers.1.attention.kappa"
    converted["model"][name] = change(converted["model"][name])
    monkeypatch.setattr(layouts, "to_ours", lambda *unused: converted)
    torch.save(given, tmp_path / "there.pt")
    with pytest.raises(SystemExit) as end:
        run("--input", tmp_path / "there.pt", "--output", tmp_path / "ours.pt", "--verify")
    assert end.value.code == 2 and not (tmp_path / "ours.pt").exists()
    assert "--verify: converting back would change encoder.layers.1.mega_layer.gamma" in capsys.readouterr().err


PRINTED = {"published_source_padding"}  # with a warning, see test_other_positions_of_padded_sources_are_printed
WITHOUT_EFFECT = {"no_scale_embedding"}  # in classifiers


@pytest.mark.parametrize(
    ("name", "kind", "published_too"),
    [
        ("translator", MegaConfig, PRINTED),
        ("language_model", MegaLanguageModelConfig, set()),
        ("lra_classifier", MegaClassifierConfig, WITHOUT_EFFECT),
    ],
)
def test_what_the_published_code_lacks_is_refused(name: str, kind: Any, published_too: Set[str]) -> None:
    """Each option that decides outputs is one of the published code, or a model with another value is not published."""
    official = published(name)
    known = {CLASSIFIER_OPTIONS.get(option, option) for option in vars(official["args"])} | published_too
    ours = convert_checkpoint(official, name)
    assert publish_checkpoint(ours, name)
    for option in fields(kind):
        if option.name in options_of(Role.OUTPUTS) and option.name not in known:
            args = Namespace(**{**vars(ours["args"]), option.name: not option.default})
            with pytest.raises(ValueError, match=f"--{option.name.replace('_', '-')}"):
                layouts.to_official({**ours, "args": args}, name)


@pytest.mark.parametrize(("ours", "theirs"), [(0, None), (-1, None), (9, 9)])
def test_no_truncation_is_none_in_the_published_code(ours: int, theirs: Optional[int], tmp_path: Path) -> None:
    """There 0 is a moving average of no step."""
    given = convert_checkpoint(published("language_model"), "")
    given["args"].truncation_length = ours
    torch.save(given, tmp_path / "ours.pt")
    run("--input", tmp_path / "ours.pt", "--output", tmp_path / "there.pt", "--to", "official")
    there = torch.load(tmp_path / "there.pt", weights_only=False)
    assert there["args"].truncation_length == theirs
    assert convert_checkpoint(there, "")["args"].truncation_length in (theirs, 0)


@pytest.mark.parametrize("name", ["translator", "language_model", "lra_classifier"])
def test_a_published_checkpoint_without_truncation_can_be_loaded(name: str) -> None:
    """None is the published default; fairseq puts the options into dataclasses, which --verify does not."""
    given = published(name)
    given["args"].truncation_length = None
    cfg = convert_namespace_to_omegaconf(convert_checkpoint(given, name)["args"])
    assert cfg.model.truncation_length == 0


def test_missing_options_are_read_off_the_tensors() -> None:
    """All that shapes tell; activations and the like keep the defaults."""
    for name, kept in (("translator", ["share_all_embeddings"]), ("lra_classifier", ["chunk_size", "max_positions"])):
        given = published(name)
        for option in list(vars(given["args"])):
            if option not in kept:
                delattr(given["args"], option)
        converted = convert_checkpoint(given, name)
        check_complete(converted["args"], converted["model"], name)
        build_model(converted["args"], converted["model"]).load_state_dict(converted["model"])
        assert largest_difference(given, converted) < 1e-5


def test_a_shared_table_with_another_copy_is_refused() -> None:
    given = published("translator")
    given["model"]["decoder.output_projection.weight"] += 1
    with pytest.raises(ValueError, match="decoder.output_projection.weight differs from decoder.embed_tokens.weight"):
        convert_checkpoint(given, "x.pt")


def test_other_positions_of_padded_sources_are_printed(
    tiny_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A translator reads padded batches there as it was not trained to, and as before when it comes back."""
    words = ["--input", tiny_model.checkpoint, "--to", "official", "--output"]
    assert run(*words, tmp_path / "there.pt") == 0
    assert "--published-source-padding" in capsys.readouterr().err
    known = checkpoints.convert_options
    monkeypatch.setattr(checkpoints, "convert_options", lambda *given: {**known(*given), **OTHER})
    with pytest.raises(SystemExit):
        run(*words, tmp_path / "lost.pt")
    assert "--to official loses --published-source-padding False, not True" in capsys.readouterr().err
    assert not (tmp_path / "lost.pt").exists()


OTHER = {"published_source_padding": True}
SIZES = ["--encoder-embed-dim", "8", "--encoder-hidden-dim", "8", "--encoder-layers", "1"]
OF_OURS = {  # architecture and options here -> what the published build reads without a default, and more
    ("mega_tiny", "translation"): {"arch": "mega", "activation_dropout": 0.0},
    ("mega_lm_enwik8_base", "mega_language_modeling"): {"arch": "mega_lm_enwik8_base", "decoder_input_dim": 512},
    ("mega_lra_miniature", "lra-image"): {"arch": "lra", "input_type": "image", "classifier_in_dim": 32},
    ("mega_lra_aan", "lra-text"): {"arch": "mega_lra_aan", "input_type": "text", "classifier_in_dim": 256},
    ("mega_lra", "lra-text", "--classifier-layers", "0", *SIZES): {"arch": "lra", "classifier_out_dim": 8},
    ("mega_sc_raw_big", "speech_commands"): {"arch": "mega_sc_raw_big", "input_type": "image", "classifier_in_dim": 72},
}
OF_CLASSIFIERS = {"layer_type": "mega", "use_p": False}


@pytest.mark.parametrize(("given", "wanted"), OF_OURS.items(), ids=map(" ".join, OF_OURS))
def test_the_published_code_can_build_what_is_published(given: Any, wanted: Dict[str, Any]) -> None:
    """It builds an encoder of Transformer layers where no type of layers is named, and one of images for no input."""
    arch, task, *options = given
    cfg = parse("--arch", arch, "--task", task, *options)
    data = classification(documents=2) if arch == "mega_lra_aan" else stub_task(task)
    built = ARCH_MODEL_REGISTRY[arch].build_model(cfg.model, data)
    saved = {"cfg": {"model": {**cfg.model, "_name": arch}, "task": {**cfg.task, "_name": task}}}
    there = publish_checkpoint({**saved, "model": built.state_dict()}, "ours")
    classifier = {} if task in ("translation", "mega_language_modeling") else OF_CLASSIFIERS
    read = vars(there["args"])
    assert {key: read.get(key, "missing") for key in {**wanted, **classifier}} == {**wanted, **classifier}
    again = convert_checkpoint(there, "there")
    assert again["args"].arch in ARCH_MODEL_REGISTRY
    build_model(again["args"], again["model"]).load_state_dict(again["model"])
