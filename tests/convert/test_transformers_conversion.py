"""Checkpoints of transformers' former MegaForMaskedLM: their numbers, converted and back, and what is refused."""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import numpy as np
import pytest
import torch

from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.compat.versions.image_libraries import import_torchvision
from fairseq_mega.convert import command, transformers_mega
from fairseq_mega.convert.building import build_model, check_complete
from fairseq_mega.convert.transformers_limits import DEFAULTS
from fairseq_mega.convert.transformers_mega import convert_transformers, publish_transformers
from tests.support import pickles
from tests.support.plain.comparing import assert_same, largest_difference, run
from tests.support.plain.transformers import masked_language_model

EXPECTED = np.load(Path(__file__).parent.parent / "goldens" / "transformers.expected.npz")
CASES = sorted({name.split("/")[0] for name in EXPECTED})


def published(case: str, **changed: Any) -> Dict[str, Any]:
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
    return {"transformers": config, "model": model}


def write(folder: Path, given: Dict[str, Any]) -> None:
    config = {**given["transformers"], "model_type": "mega"}
    folder.mkdir(parents=True)
    transformers_mega.save_transformers({**given, "transformers": config}, folder)


@pytest.mark.parametrize("case", CASES)
def test_numbers_of_transformers(case: str) -> None:
    """Outputs are transformers', also without the padding of chunks, which its user adds and ours adds itself."""
    given = published(case)
    converted = convert_transformers(given, case)
    check_complete(converted["args"], converted["model"], case)
    model: Any = build_model(converted["args"], converted["model"])
    model.load_state_dict(converted["model"])
    tokens, want = torch.from_numpy(EXPECTED[f"{case}/tokens"]), torch.from_numpy(EXPECTED[f"{case}/log_probs"])
    real = tokens.ne(1)
    assert bool(real[:, 12:].sum() == 1)  # the longest text ends within a chunk
    for columns in (tokens.size(1), 13):
        found = model.eval().get_normalized_probs(model(tokens[:, :columns]), log_probs=True)
        error = (found - want[:, :columns])[real[:, :columns]].abs().max()
        assert error <= 1e-5, error


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(case: str) -> None:
    given = published(case)
    converted = convert_transformers(given, case)
    assert largest_difference(given, converted) < 1e-5
    back = publish_transformers(converted, case)
    assert_same(back["model"], given["model"])
    unused = set() if given["transformers"]["use_normalized_ffn"] else {"nffn_hidden_size"}
    for key in given["transformers"].keys() - unused:
        assert back["transformers"][key] == given["transformers"][key], key


@pytest.mark.parametrize("case", ["rotary", "chunks"])
def test_a_wrong_tensor_shows(case: str) -> None:
    given = published(case)
    converted, missed = convert_transformers(given, case), []
    for name, tensor in converted["model"].items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(5)).abs()
        tied = {other: tensor + noise for other, same in converted["model"].items() if same is tensor}
        changed = {**converted["model"], **tied}
        if not largest_difference(given, {**converted, "model": changed}) > 1e-7:  # in float64
            missed.append(name)
    assert missed == []


def test_the_length_of_samples_comes_back() -> None:
    converted = convert_transformers(published("rotary"), "")
    assert not hasattr(converted["args"], "tokens_per_sample")  # transformers has none
    converted["args"].tokens_per_sample = 32
    assert convert_transformers(publish_transformers(converted, ""), "")["args"].tokens_per_sample == 32


def test_biases_that_no_chunk_reads_come_back_where_they_were_kept() -> None:
    converted = convert_transformers(published("chunks"), "")
    name = "encoder.layers.0.attention.relative_bias.weight"
    assert converted["model"][name].numel() == 9 and converted["args"].encoder_chunk_size == 5
    shorter = publish_transformers({**converted, "extra_state": {}}, "")
    assert shorter["transformers"]["max_positions"] == 5
    assert largest_difference(shorter, convert_transformers(shorter, "")) < 1e-5
    unchunked = published("chunks", use_chunking=False)  # centred at chunk_size all the same
    converted = convert_transformers(unchunked, "")
    assert converted["args"].max_positions == 5 and converted["args"].encoder_chunk_size == -1
    assert_same(publish_transformers(converted, "")["model"], unchunked["model"])


def test_the_command_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    given = published("rotary")
    write(tmp_path / "theirs", given)
    assert run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt", "--verify") == 0
    assert run("--input", tmp_path / "ours.pt", "--output", tmp_path / "back", "--to", "official", "--verify") == 0
    assert capsys.readouterr().out.count("equal, bit for bit") == 2
    assert_same(torch.load(tmp_path / "back" / "pytorch_model.bin"), given["model"])
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["model_type"] == "mega" and config["hidden_size"] == 8 and config["vocab_size"] == 24
    options = load_checkpoint(tmp_path / "ours.pt")["args"]
    assert options.task == options.criterion == "masked_lm"


class StandIn(torch.nn.Module):
    """transformers.MegaForMaskedLM by its formulas."""

    def __init__(self, config: Namespace) -> None:
        super().__init__()
        self.config = vars(config)
        self.weights: Dict[str, torch.Tensor] = {}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        self.weights = {name: tensor.double() for name, tensor in state_dict.items() if tensor.is_floating_point()}

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Namespace:
        assert bool((input_ids == 1).eq(attention_mask == 0).all())
        return Namespace(logits=masked_language_model(self.weights, self.config, input_ids))


@pytest.fixture(params=["stand-in", "installed"])
def with_transformers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "stand-in":
        module = SimpleNamespace(MegaConfig=Namespace, MegaForMaskedLM=StandIn)
        monkeypatch.setitem(sys.modules, "transformers", module)
    else:
        import_torchvision()
        installed = pytest.importorskip("transformers", reason="needs transformers 4.30 to 4.46")
        if not hasattr(installed, "MegaForMaskedLM"):
            pytest.skip("needs transformers 4.30 to 4.46")


@pytest.mark.parametrize("case", CASES)
def test_outputs_of_an_installed_transformers_are_compared(
    case: str, with_transformers: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write(tmp_path / "theirs", published(case))
    assert run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt", "--verify") == 0
    assert run("--input", tmp_path / "ours.pt", "--output", tmp_path / "back", "--to", "official", "--verify") == 0
    found = re.findall(r"outputs: largest difference (\S+) from transformers' on", capsys.readouterr().out)
    assert len(found) == 2 and all(float(difference) < 1e-5 for difference in found)


@pytest.mark.parametrize(
    "changes", [{"activation_fn": "relu"}, {"attention_activation_fn": "laplace"}, {"truncation_length": 3}]
)
def test_options_of_another_model_fail(
    changes: Dict[str, Any],
    with_transformers: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option that the layouts read differently is an error, and nothing is written."""
    given = published("rotary")
    converted = convert_transformers(given, "")
    vars(converted["args"]).update(changes)
    monkeypatch.setattr(command.layouts, "to_ours", lambda *unused: converted)
    write(tmp_path / "theirs", given)
    with pytest.raises(SystemExit) as end:
        run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt", "--verify")
    assert end.value.code == 2 and "--verify: the outputs differ by" in capsys.readouterr().err
    assert not (tmp_path / "ours.pt").exists()


@pytest.mark.parametrize("module", [None, SimpleNamespace(__version__="5.0")])
def test_outputs_are_not_compared_without_transformers(
    module: Any, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is installed, or one that lacks the model."""
    monkeypatch.setitem(sys.modules, "transformers", module)
    write(tmp_path / "theirs", published("rotary"))
    assert run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt", "--verify") == 0
    printed = capsys.readouterr().out
    assert "equal, bit for bit" in printed and "outputs: not compared, transformers' MegaForMaskedLM" in printed


def test_safetensors_hold_tied_tensors_once(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    given = published("chunks, softmax")
    write(tmp_path / "theirs", given)
    (tmp_path / "theirs" / "pytorch_model.bin").unlink()
    tensors = {name: tensor for name, tensor in given["model"].items() if name != "mlm_head.weight"}
    library.save_file(tensors, tmp_path / "theirs" / "model.safetensors", metadata={"format": "pt"})
    assert run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.safetensors", "--verify") == 0
    back = publish_transformers(load_checkpoint(tmp_path / "ours.safetensors"), "")
    assert_same(back["model"], given["model"])


def test_what_does_not_fit_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    given = published("rotary")
    model = given["model"]
    del model["mega.layers.0.mega_layer.ema_gate.decay_factor"]
    model["mega.layers.1.nffn.fc1.weight"] = torch.zeros(3, 8)
    model["mega.pooler.dense.bias"] = torch.zeros(8)
    write(tmp_path / "theirs", given)
    with pytest.raises(SystemExit):
        run("--input", tmp_path / "theirs", "--output", tmp_path / "ours.pt")
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert "missing: mega.layers.0.mega_layer.ema_gate.decay_factor (16, 3)" in lines
    assert "wrong shape: mega.layers.1.nffn.fc1.weight is (3, 8), the options require (10, 8)" in lines
    assert "left over: mega.pooler.dense.bias (8,)" in lines and not (tmp_path / "ours.pt").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"is_decoder": True}, "only encoders are supported"),
        ({"normalization_type": "rmsnorm"}, "normalization_type rmsnorm: transformers' rmsnorm .* not normalize"),
        ({"norm_affine": False}, "norm_affine false"),
        ({"normalize_before_ffn": False}, "normalize_before_ffn differs"),
        ({"pad_token_id": 0}, "pad_token_id 0: fairseq's dictionaries pad with token 1"),
        ({"use_chunking": True}, "use_chunking with chunk_size -1"),
        ({"relative_positional_bias": "simple", "chunk_size": 25}, "chunk_size 25 exceeds max_positions 24"),
        ({"activation": "quick_gelu"}, "activation quick_gelu: supported are silu"),
    ],
)
def test_what_no_model_here_has_is_refused(changed, message) -> None:
    with pytest.raises(ValueError, match=message):
        convert_transformers(published("rotary", **changed), "x")


def test_what_transformers_have_not_is_refused() -> None:
    converted = convert_transformers(published("rotary"), "x")
    vars(converted["args"]).update(no_final_norm=False, no_scale_embedding=False)
    with pytest.raises(ValueError, match=r"(?s)a norm after the last layer.*embeddings scaled by sqrt\(d\)"):
        publish_transformers(converted, "x")
    given = published("rotary")
    given["model"]["mlm_head.weight"] = given["model"]["mlm_head.weight"] + 1
    with pytest.raises(ValueError, match="mlm_head.weight differs from word_embeddings.weight, to which it is tied"):
        convert_transformers(given, "x")


def test_folders_of_other_models(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write(tmp_path / "bert", published("rotary"))
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("bert", "model_type 'bert' is not a MEGA"),
        ("empty", "holds neither consolidate_config.json"),
    ):
        with pytest.raises(SystemExit):
            run("--input", tmp_path / name, "--output", tmp_path / "ours.pt")
        assert message in capsys.readouterr().err


def test_no_folder_runs_code(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = published("rotary")
    write(Path("theirs"), given)
    pickles.write({**given["model"], "x": pickles.Call(Path.touch, (Path("made"),))}, "theirs/pytorch_model.bin")
    with pytest.raises(SystemExit):
        run("--input", "theirs", "--output", "ours.pt")
    assert "pytorch_model.bin is refused: it contains" in capsys.readouterr().err
    assert not Path("made").exists() and not Path("ours.pt").exists()
