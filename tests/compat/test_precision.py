"""--precision and --bf16: which one a device gets, and the flags of fairseq that it stands for."""

import argparse

import pytest
import torch
from fairseq import options

from fairseq_mega.compat.features import precision
from tests.support import helpers

ARGUMENTS = ["data", "--arch", "mega_tiny", "--cpu"]


@pytest.fixture
def cpu_with(monkeypatch):
    """Let this CPU multiply bfloat16 so many times as fast as float32."""

    def measured(speedup):
        seconds = {torch.float32: speedup, torch.bfloat16: 1.0}
        monkeypatch.setattr(precision, "product_seconds", lambda: seconds)
        precision.bfloat16_speedup.cache_clear()

    yield measured
    precision.bfloat16_speedup.cache_clear()


def gpu_with(monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla")


@pytest.mark.parametrize(("speedup", "chosen"), [(2.0, "bf16"), (1.9, "fp32")])
def test_auto_takes_bfloat16_where_it_is_twice_as_fast(cpu_with, speedup, chosen):
    cpu_with(speedup)
    choice = precision.choose("auto", "cpu")
    assert choice.precision == chosen and f" {speedup:g} times" in choice.reason


def test_the_measurement():
    assert all(0 < seconds < 60 for seconds in precision.product_seconds().values())


@pytest.mark.parametrize(("capability", "chosen"), [((8, 0), "bf16"), ((7, 5), "fp32")])
def test_auto_on_a_gpu(monkeypatch, capability, chosen):
    gpu_with(monkeypatch, capability)
    assert precision.choose("auto", "cuda").precision == chosen


@pytest.mark.parametrize(("name", "device"), [("tf32", "cpu"), ("bf16", "cuda")])
def test_a_precision_that_the_device_lacks(monkeypatch, name, device):
    gpu_with(monkeypatch, (7, 5))
    with pytest.raises(ValueError, match=f"--precision {name}"):
        precision.choose(name, device)


def parsed(*arguments):
    return options.parse_args_and_arch(options.get_training_parser(), [*ARGUMENTS, *arguments])


def flags(namespace: argparse.Namespace):
    return [name for name in precision.FLAGS if getattr(namespace, name)]


def test_flags_of_fairseq(cpu_with):
    cpu_with(3.0)
    assert flags(parsed()) == flags(parsed("--precision", "fp32")) == []
    assert flags(parsed("--precision", "bf16")) == flags(parsed("--precision", "auto")) == ["bf16", "amp"]
    assert parsed("--precision", "bf16").tpu is parsed("--bf16").tpu is False
    assert [precision.of(vars(parsed("--precision", name))) for name in ("fp32", "bf16")] == ["fp32", "bf16"]
    assert precision.of({"fp16": True}) == "fp16" and precision.of({}) == "fp32"
    with pytest.raises(ValueError, match="--precision fp32 and --amp"):
        parsed("--precision", "fp32", "--amp")


@pytest.fixture
def products(monkeypatch):
    """The dtypes of the loss's logits, of every batch that a criterion scores."""
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion as Criterion

    found = []
    original = Criterion.compute_loss

    def compute_loss(self, model, net_output, sample, reduce=True):
        found.append(net_output[0].dtype)
        return original(self, model, net_output, sample, reduce)

    monkeypatch.setattr(Criterion, "compute_loss", compute_loss)
    return found


@pytest.fixture
def scored(monkeypatch):
    """The dtypes of the logits of every step that is generated or scored."""
    from fairseq.models.fairseq_decoder import FairseqDecoder

    found = []
    original = FairseqDecoder.get_normalized_probs

    def get_normalized_probs(self, net_output, *args, **kwargs):
        found.append(net_output[0].dtype)
        return original(self, net_output, *args, **kwargs)

    monkeypatch.setattr(FairseqDecoder, "get_normalized_probs", get_normalized_probs)
    return found


def test_commands(tiny_corpus, products, scored, tmp_path):
    """Training, validating and translating with products in bfloat16, from the same kind of checkpoint as ever."""
    common = [tiny_corpus, "--cpu", "--num-workers", 0]
    stop = ["--max-update", 3, "--save-dir", tmp_path, "--no-epoch-checkpoints"]
    helpers.run_fairseq("train", [*common, *helpers.TINY_TRAINING, *stop, "--precision", "bf16"])
    assert set(products) == {torch.bfloat16}
    checkpoint = torch.load(tmp_path / "checkpoint_last.pt")
    common_settings = checkpoint["cfg"]["common"]
    assert common_settings["amp"] is True and common_settings["bf16"] is True
    for name, weight in checkpoint["model"].items():
        assert weight.dtype == torch.float32 or not weight.is_floating_point(), name

    path = ["--path", tmp_path / "checkpoint_last.pt"]
    for chosen, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        products.clear()
        options_given = ["--task", "translation", "--max-tokens", 200, "--precision", chosen]
        helpers.run_fairseq("validate", [*common, *path, *options_given])
        assert set(products) == {dtype}
    for chosen, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        translating = [*common, *path, "--gen-subset", "valid", "--max-tokens", 800, "--max-len-b", 5]
        translating += ["--precision", chosen]
        for command in ([], ["--score-reference"]):
            scored.clear()
            helpers.run_fairseq("generate", [*translating, *command])
            assert set(scored) == {dtype}
