"""Scores of language models as result files: streams and blocks, against fairseq-eval-lm."""

import json
import re
import shutil

import pytest
import torch

from fairseq_mega.lab.evaluate import language_model as evaluate_lm
from fairseq_mega.lab.report import command as reports
from tests.support.helpers import random_sentences, run_fairseq

TOKENS = 449
TRAINING = ["--optimizer", "adam", "--lr", 0.01, "--num-workers", 0, "--max-update", 20, "--disable-validation"]
TRAINING += ["--decoder-layers", 1, "--decoder-embed-dim", 16, "--no-epoch-checkpoints"]
ADAPTIVE = ["--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16"]
MODELS = {
    "mega": ["--task", "mega_language_modeling", "--arch", "mega_lm_tiny", "--decoder-hidden-dim", 32]
    + ["--decoder-chunk-size", 8, "--max-tokens", 100],
    "llama": ["--task", "mega_language_modeling", "--arch", "llama_lm", "--decoder-attention-heads", 2]
    + ["--tokens-per-sample", 8, "--max-tokens", 100],
    "transformer": ["--task", "language_modeling", "--arch", "transformer_lm", "--tokens-per-sample", 30]
    + ["--decoder-ffn-embed-dim", 32, "--decoder-input-dim", 16, "--decoder-output-dim", 16]
    + ["--decoder-attention-heads", 2, "--max-tokens", 90, *ADAPTIVE],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, device_flags):
    """A data folder, and a checkpoint of each model."""
    folder = tmp_path_factory.mktemp("evaluate")
    for seed, (split, count) in enumerate((("train", 120), ("test", 80))):
        lines = random_sentences(count, seed + 3)
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    data = folder / "data-bin"
    preprocess = ["--only-source", "--trainpref", folder / "train.txt", "--testpref", folder / "test.txt"]
    run_fairseq("preprocess", [*preprocess, "--destdir", data])
    for name, options in MODELS.items():
        run_fairseq("train", [data, *options, *TRAINING, *device_flags, "--save-dir", folder / name])
    return data, {name: folder / name / "checkpoint_last.pt" for name in MODELS}


def evaluate(trained, device, name, output, *options):
    data, checkpoints = trained
    command = [data, "--path", checkpoints[name], "--label", name, "--output", output, "--device", device, *options]
    assert evaluate_lm.main([str(part) for part in command]) == 0
    return {path.stem: json.loads(path.read_text()) for path in output.glob("*.json")}


def loss_of(data, checkpoint, task, device_flags, *options):
    """Return the loss of fairseq-eval-lm on the test set, in bits."""
    command = [data, "--task", task, "--path", checkpoint, "--gen-subset", "test", "--num-workers", 0, *options]
    loss = re.search(r"Loss \(base 2\): ([\d.]+)", run_fairseq("eval-lm", [*command, *device_flags]))
    assert loss is not None
    return float(loss.group(1))


def test_streams(trained, device, device_flags, tmp_path):
    contexts = ["--segments", "1,5", "--contexts", "16", "--exact-contexts", "16,1000"]
    contexts += ["--softmax-batch", "7", "--max-tokens", "80", "--chunk-nums", "1"]  # pieces, which change nothing
    found = evaluate(trained, device, "mega", tmp_path, *contexts, "--chunk-size", "8,12")
    names = ("k1-c{}", "k5-c{}", "t16-c{}", "c{}-x16", "c{}-x1000")
    assert set(found) == {f"mega-test-{name.format(chunk)}" for name in names for chunk in (8, 12)}
    for result in found.values():
        assert result["examples"] == TOKENS
        assert result["scores"]["perplexity"] == pytest.approx(2 ** result["scores"]["bits_per_token"])
    assert found["mega-test-k1-c8"]["settings"]["longest_segment"] == TOKENS
    assert 8 < found["mega-test-t16-c8"]["settings"]["mean_segment"] <= 16
    assert found["mega-test-c8-x16"]["settings"]["longest_segment"] == 16
    bits = {name: result["scores"]["bits_per_token"] for name, result in found.items()}
    assert (
        bits["mega-test-c8-x1000"]
        == bits["mega-test-k1-c8"]
        not in (bits["mega-test-k1-c12"], bits["mega-test-c8-x16"])
    )
    data, checkpoints = trained
    split = ("--valid-block", "splits:5")
    loss = loss_of(data, checkpoints["mega"], "mega_language_modeling", device_flags, *split)
    assert abs(bits["mega-test-k5-c8"] - loss) < 6e-5  # four digits


@pytest.mark.parametrize("window", [[], ["--context-window", 10]])
def test_blocks(trained, device, device_flags, tmp_path, window):
    (result,) = evaluate(trained, device, "transformer", tmp_path, *window).values()
    assert result["examples"] == TOKENS
    data, checkpoints = trained
    options = ["--tokens-per-sample", 30, *window]
    loss = loss_of(data, checkpoints["transformer"], "language_modeling", device_flags, *options)
    assert abs(result["scores"]["bits_per_token"] - loss) < 6e-5


def test_results_are_printed(trained, device, tmp_path, capsys):
    evaluate(trained, device, "mega", tmp_path, "--segments", "1,3")
    evaluate(trained, device, "transformer", tmp_path)
    capsys.readouterr()
    assert reports.main(["language-models", str(tmp_path)]) == 0
    head, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert head.split()[:3] == ["result", "seed", "segments"] and "perplexity" in head
    assert [row.split()[0:3:2] for row in rows] == [["mega", "1"], ["mega", "3"], ["transformer", "-"]]


def test_a_window_of_attention(trained, device, tmp_path):
    """With one layer a token reads the window, whatever the context; the first tokens of a stream have less before."""
    options = ["--exact-contexts", "64,1000", "--attention-window", "16,64,1000"]
    found = evaluate(trained, device, "llama", tmp_path / "windows", *options)
    assert set(found) == {f"llama-test-x{x}-a{a}" for x in (64, 1000) for a in (16, 64, 1000)}
    bits = {name: result["scores"]["bits_per_token"] for name, result in found.items()}
    whole = evaluate(trained, device, "llama", tmp_path / "whole", "--exact-contexts", "64,1000")
    for x, equal in ((64, (64, 1000)), (1000, (1000,))):
        wanted = whole[f"llama-test-x{x}"]["scores"]["bits_per_token"]
        assert {a for a in (16, 64, 1000) if abs(bits[f"llama-test-x{x}-a{a}"] - wanted) < 1e-6} == {*equal}


@pytest.mark.parametrize("option", ["--exact-contexts", "--chunk-size", "--context-window", "--attention-window"])
def test_settings_that_a_model_does_not_have(trained, tmp_path, capsys, option):
    data, checkpoints = trained
    command = [str(data), "--path", str(checkpoints["transformer"]), "--label", "x", "--output", str(tmp_path)]
    assert evaluate_lm.main([*command, "--device", "cpu", option, "30"]) == 1
    assert option in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_result_of_another_checkpoint_is_not_reused(trained, device, tmp_path, capsys):
    """The same name for another model, or another text, ends in words, not in the first one's number."""
    found = evaluate(trained, device, "mega", tmp_path, "--segments", "1")
    assert found["mega-test-k1"]["seed"] == 1
    assert found["mega-test-k1"]["settings"]["updates"] == found["mega-test-k1"]["settings"]["max_update"] == 20
    assert found["mega-test-k1"]["settings"]["precision"] == "fp32"
    assert evaluate(trained, device, "mega", tmp_path, "--segments", "1") == found
    data, checkpoints = trained
    options = ["--label", "mega", "--output", tmp_path, "--device", device, "--segments", 1]
    other = tmp_path / "other.pt"
    state = torch.load(checkpoints["mega"], weights_only=False)
    torch.save({**state, "extra_state": {**state["extra_state"], "another": 1}}, other)
    assert evaluate_lm.main([str(part) for part in [data, "--path", other, *options]]) == 1
    assert "mega-test-k1.json was measured on another checkpoint" in capsys.readouterr().err
    text = tmp_path / "text"
    shutil.copytree(data, text)
    (text / "test.bin").write_bytes((text / "test.bin").read_bytes()[::-1])
    assert evaluate_lm.main([str(part) for part in [text, "--path", checkpoints["mega"], *options]]) == 1
    assert "mega-test-k1.json was measured on another text" in capsys.readouterr().err
    assert json.loads((tmp_path / "mega-test-k1.json").read_text()) == found["mega-test-k1"]
