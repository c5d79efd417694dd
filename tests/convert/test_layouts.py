"""The contract of all published layouts: there and back bit for bit, equal outputs, and what does not fit is listed."""

import json
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple

import numpy as np
import pytest
import torch

from fairseq_mega.compat.files.card import EARLIER, KEY, card_of
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import layouts
from fairseq_mega.convert.transformers_mega import DEFAULTS, save_transformers
from tests.support import pickles, published_images, published_layouts, published_megalodon
from tests.support.plain.comparing import assert_same, largest_difference, run

GOLDENS = Path(__file__).parent.parent / "goldens"
EXPECTED = np.load(GOLDENS / "transformers.expected.npz")  # their outputs, see make_transformers.py
TRANSFORMERS = sorted({name.split("/")[0] for name in EXPECTED})


def transformers_checkpoint(case: str, **changed: Any) -> Dict[str, Any]:
    """The model whose numbers tests/goldens/make_transformers.py kept, filled as it says."""
    config = {**DEFAULTS, **json.loads(str(EXPECTED[f"{case}/configuration"])), **changed}
    model: Dict[str, torch.Tensor] = {}
    for i, (name, shape) in enumerate(sorted(json.loads(str(EXPECTED[f"{case}/shapes"])).items())):
        wave = np.sin(np.arange(1.0, np.prod(shape, dtype=int) + 1)).reshape(shape) * 0.4 * (1 + i / 100)
        wave = wave**2 + 0.5 if name.endswith("running_var") else wave
        model[name] = torch.as_tensor(wave, dtype=torch.float32)
        if name.endswith(("num_batches_tracked", "_float_tensor")):  # of no effect: as in every new model
            model[name] = torch.tensor(0) if name.endswith("tracked") else torch.zeros(1)
    if config["tie_word_embeddings"]:
        model["mlm_head.weight"] = model["mega.embedding_layer.word_embeddings.weight"]
    return {"transformers": {**config, "model_type": "mega"}, "model": model}


def write_folder(given: Dict[str, Any], path: Path) -> None:
    path.mkdir()
    save_transformers(given, path)


class Layout(NamedTuple):
    """A published layout.

    Attributes:
        read: makes a checkpoint.
        write: writes it as its own code does.
        first: prefix of the first layer in our names.
        gone, wrong: published names of a tensor to remove, and of one to change to (3, 5).
    """

    read: Callable[[], Dict[str, Any]]
    write: Callable[[Dict[str, Any], Path], Any]
    first: str
    gone: str
    wrong: str


def of_mega(name: str) -> Layout:
    make = published_layouts.LAYOUTS.get(name, lambda: load_checkpoint(GOLDENS / f"{name}.official.pt"))
    side = next(s for s in ("encoder.encoder", "decoder") if any(n.startswith(f"{s}.layers.") for n in make()["model"]))
    parts = (f"{side}.layers.0.mega_layer.v_proj.bias", f"{side}.layers.0.nffn.fc1.weight")
    return Layout(make, torch.save, ".layers.0.", *parts)


def of_megalodon(ranks: int) -> Layout:
    return Layout(
        lambda: {"model": published_megalodon.model()},
        lambda given, path: published_megalodon.write(path, given["model"], ranks),
        ".layers.0.",
        "layers.1.mega.wv.bias",
        "layers.1.nffn.fc2.weight",
    )


IMAGES = ("blocks.0.mega_layer.move.alpha", "blocks.1.nffn.fc2.weight")
THEIRS = ("mega.layers.0.mega_layer.ema_gate.decay_factor", "mega.layers.1.nffn.fc1.weight")
LAYOUTS: Dict[str, Layout] = {
    **{n: of_mega(n) for n in ("translator", "language_model", "lra_classifier", *published_layouts.LAYOUTS)},
    **{
        f"images, {kind}": Layout(partial(published_images.checkpoint, kind=kind), torch.save, "", *IMAGES)
        for kind in ("layernorm", "batchnorm")
    },
    **{f"megalodon, {ranks} ranks": of_megalodon(ranks) for ranks in (1, 2)},
    **{
        f"transformers, {case}": Layout(partial(transformers_checkpoint, case), write_folder, "", *THEIRS)
        for case in TRANSFORMERS
    },
}
FEW = ("translator", "lra_classifier", "images, layernorm", "megalodon, 2 ranks", "transformers, rotary")
some = pytest.mark.parametrize("name", FEW)


def written(name: str, path: Path) -> Dict[str, Any]:
    """Write a checkpoint of a layout, and read it."""
    LAYOUTS[name].write(LAYOUTS[name].read(), path)
    return layouts.read(path)


def same_options(back: Dict[str, Any], given: Dict[str, Any]) -> None:
    for part in ("config", "transformers"):
        if part in given:
            unused = {"nffn_hidden_size"} if not given[part].get("use_normalized_ffn", True) else set()
            inner = (back[part]["model"], given[part]["model"]) if part == "config" else (back[part], given[part])
            for key in inner[1].keys() - unused:
                assert inner[0][key] == inner[1][key] or inner[1][key] is None, key
            return
    assert vars(given["args"]).items() <= vars(back["args"]).items()


@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, ".pt") for name in LAYOUTS), *((name, ".safetensors") for name in FEW)]
)
def test_there_and_back(name: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    given = written(name, tmp_path / "theirs")
    assert_same(given["model"], LAYOUTS[name].read()["model"])
    ours = tmp_path / f"ours{suffix}"
    assert run("--input", tmp_path / "theirs", "--output", ours, "--verify") == 0
    assert largest_difference(given, load_checkpoint(ours)) < 1e-5
    assert run("--input", ours, "--output", tmp_path / "back", "--to", "official", "--verify") == 0
    assert capsys.readouterr().out.count("equal, bit for bit") == 2
    back = layouts.read(tmp_path / "back")
    assert_same(back["model"], given["model"])
    if suffix == ".pt":  # with the options of a training
        same_options(back, given)


@pytest.mark.parametrize(
    "name",
    [
        *FEW[:3],
        "adaptive language model",
        "image",
        "megalodon, 1 ranks",
        "transformers, rotary",
        "transformers, chunks",
    ],
)
def test_a_wrong_tensor_shows(name: str, tmp_path: Path) -> None:
    """The comparison of both layouts sees each tensor, of the first layer where layers are alike."""
    given = written(name, tmp_path / "theirs")
    converted = layouts.to_ours(given, name)
    before, missed = largest_difference(given, converted), []
    for key, tensor in converted["model"].items():
        without_effect = key.endswith(("num_batches_tracked", "key_proj.bias"))  # softmax does not see the bias
        if without_effect or LAYOUTS[name].first not in key:
            continue
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(5)).abs()
        tied = {other: tensor + noise for other, same in converted["model"].items() if same is tensor}
        changed = {**converted, "model": {**converted["model"], **tied}}
        if not largest_difference(given, changed) > 1e-7 + before:
            missed.append(key)
    assert not missed


@some
def test_what_does_not_fit_is_listed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    layout = LAYOUTS[name]
    given = layout.read()
    del given["model"][layout.gone]
    given["model"][layout.wrong] = torch.zeros(3, 4)
    spare = layout.gone.replace("v_proj", "spare").replace("move", "spare").replace("wv", "spare")
    given["model"][spare + ".spare"] = torch.zeros(2)
    layout.write(given, tmp_path / "theirs")
    with pytest.raises(SystemExit):
        run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt")
    error = capsys.readouterr().err
    assert not (tmp_path / "ours.pt").exists()
    assert all(words in error for words in ("Missing key", "size mismatch", "Unexpected key"))


CARDS = {KEY: {"source": "0", "labels": "salt\n\udce9"}, EARLIER: {"source": "salt\nmilk\n\udce9"}}


@pytest.mark.parametrize("key", CARDS)
@some
def test_cards_come_back(name: str, key: str, tmp_path: Path) -> None:
    """Without the card, other data would be read with the converted model."""
    ours = layouts.to_ours(written(name, tmp_path / "theirs"), name)
    assert KEY not in ours
    torch.save({**ours, key: CARDS[key]}, tmp_path / "trained.pt")
    there = tmp_path / "there"
    assert run("--input", tmp_path / "trained.pt", "--output", there, "--to", "official", "--verify") == 0
    assert run("--input", there, "--output", tmp_path / "back.pt") == 0
    assert load_checkpoint(tmp_path / "back.pt")[KEY] == card_of({key: CARDS[key]}, key)


@pytest.mark.parametrize(
    ("name", "file"), [("megalodon, 2 ranks", "consolidated.01.pth"), ("transformers, rotary", "pytorch_model.bin")]
)
def test_no_folder_runs_code(name: str, file: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    written(name, Path("theirs"))
    harmful = {**torch.load(f"theirs/{file}"), "x": pickles.Call(Path.touch, (Path("made"),))}
    pickles.write(harmful, f"theirs/{file}")
    with pytest.raises(SystemExit):
        run("--input", "theirs", "--output", "ours.pt")
    assert f"{file} is refused" in capsys.readouterr().err
    assert not Path("made").exists() and not Path("ours.pt").exists()


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *(("language_model", "reset_at_document_ends", True), ("megalodon, 1 ranks", "reset_at_document_ends", True)),
        *(("megalodon, 1 ranks", "residual_hops", 1), ("megalodon, 1 ranks", "statistics_window", 1)),
        ("megalodon, 1 ranks", "adaptive_softmax_cutoff", "10,30"),
        ("transformers, rotary", "residual_hops", 1),
    ],
)
def test_models_that_the_published_code_lacks_are_refused(
    name: str, option: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    ours = layouts.to_ours(written(name, tmp_path / "theirs"), name)
    setattr(ours["args"], option, value)
    torch.save(ours, tmp_path / "ours.pt")
    with pytest.raises(SystemExit):
        run("--input", tmp_path / "ours.pt", "--output", tmp_path / "there", "--to", "official")
    assert f"--{option.replace('_', '-')}" in capsys.readouterr().err
    assert not (tmp_path / "there").exists()
