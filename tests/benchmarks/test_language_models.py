"""The language models' benchmarks run, in their --smoke form, and compare what is comparable."""

import re

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, models
from fairseq_mega.lab.benchmarks.decoding import IncrementalDecoder
from fairseq_mega.lab.runs.results import read_result


@pytest.mark.parametrize("width", [32, 256])
def test_models_have_equally_many_parameters(width):
    mega, full, transformer, llama = (
        models.layer_parameters(models.build(name, width, 2, 8, 20, 30)) for name in (*models.MODELS, "llama")
    )
    assert mega == full
    assert abs(mega - transformer) < 4 * width + 4  # the FFN's width is a whole number
    assert abs(mega - llama) < 6 * width


@pytest.fixture
def run(capsys):
    def run_benchmark(*given):
        command.main(list(map(str, given)))
        return capsys.readouterr().out

    return run_benchmark


def test_decoding(tmp_path, run):
    output = run("decoding", "--smoke", "--json", tmp_path / "decoding.json")
    found = re.findall(r"^\| (mega, chunk 16|mega-full|transformer) \| [\d,]+ \| (10|90) \|", output, re.MULTILINE)
    assert len(found) == 6
    scores = read_result(tmp_path / "decoding.json")["scores"]
    assert all(scores[f"{name} position=90 limit"] > 0.0 for name in models.MODELS)
    states = [scores[f"{name} position=90 bytes"] / scores[f"{name} position=10 bytes"] for name in models.MODELS]
    assert states[0] < 1.5 < states[1] and states[2] > 1.5  # only the chunked model's memory does not grow


def test_step_reads_the_weights_and_the_filled_memory():
    width, steps = 32, 2
    weights = {}
    for name in ("mega", "mega-int8"):
        model = models.build(name, width, 1, 16, 50, 20).eval()
        decoder = IncrementalDecoder(model)
        with torch.no_grad():
            for length in range(1, steps + 1):
                decoder.step(torch.full((1, length), 4))
        keys_and_values, ema = steps * (width // 2 + 2 * width), width * 16
        weights[name] = decoder.bytes_of_step() - 4 * (keys_and_values + ema)
        parameters = sum(x.numel() for x in model.parameters())
        assert name != "mega" or weights[name] == 4 * parameters  # the table is the output's matrix
    assert weights["mega-int8"] < 0.5 * weights["mega"]


@pytest.mark.exhaustive
def test_decoding_with_beams(tmp_path, run):
    """A long chunk reserves what no chunk does."""
    options = ["--batch", 2, "--beam", 3, "--chunk", 4096]
    run("decoding", "--smoke", "--models", "mega,mega-full", *options, "--json", tmp_path / "beam.json")
    scores = read_result(tmp_path / "beam.json")["scores"]
    for position in (10, 90):
        assert scores[f"mega position={position} bytes"] == scores[f"mega-full position={position} bytes"]


def test_length(tmp_path, run):
    file = tmp_path / "length.json"
    output = run("lm-length", "--smoke", "--models", "mega,megalodon/figure4/11m/llama", "--json", file)
    rows = re.findall(r"^\| (mega, chunk 16|megalodon/figure4/11m/llama) \| (32|64) \| [\d,]+ \|", output, re.MULTILINE)
    assert len(rows) == 4
    result = read_result(file)
    assert result["examples"] == 2 * (32 + 64) and result["settings"]["width"] == 32
    assert "skipped" in run("lm-length", "--smoke", "--models", "mega", "--time-limit", 0)
    run("lm-length", "--smoke", "--models", "megalodon/figure4/11m/llama", "--json", file)
    assert "width" not in read_result(file)["settings"]  # the recipe has its own sizes
