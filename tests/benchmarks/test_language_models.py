"""The language models' benchmarks run, in their --smoke form, and compare what is comparable."""

import re

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, models
from fairseq_mega.lab.benchmarks.decoding import IncrementalDecoder
from fairseq_mega.lab.runs.results import read_result
from tests.support.in_process import call


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_models_have_equally_many_parameters(width):
    mega, full, transformer, llama = (
        models.layer_parameters(models.build(name, width, 2, 8, 20, 30)) for name in (*models.MODELS, "llama")
    )
    assert mega == full
    assert abs(mega - transformer) < 4 * width + 4  # the FFN's width is a whole number
    assert abs(mega - llama) < 6 * width


def run(benchmark, *options):
    done = call(command.main, benchmark, "--smoke", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_decoding(tmp_path):
    output = run("decoding", "--json", str(tmp_path / "decoding.json"))
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
def test_decoding_with_beams_and_several_chunks(tmp_path):
    options = ["--batch", "2", "--beam", "3", "--chunk", "16,4096"]
    output = run("decoding", "--models", "mega,mega-full", *options, "--json", str(tmp_path / "beam.json"))
    found = re.findall(r"^\| (mega, chunk 16|mega, chunk 4096|mega-full) \| [\d,]+ \| (10|90) \|", output, re.M)
    assert len(found) == 6
    scores = read_result(tmp_path / "beam.json")["scores"]
    for position in (10, 90):
        bytes_of = {name: scores[f"{name} position={position} bytes"] for name in ("mega, chunk 4096", "mega-full")}
        assert bytes_of["mega, chunk 4096"] == bytes_of["mega-full"]  # a long chunk reserves what no chunk does


def test_length(tmp_path):
    output = run("lm-length", "--json", str(tmp_path / "length.json"), "--time-limit", "30")
    assert len(re.findall(r"^\| (mega, chunk 16|transformer) \| (32|64) \| [\d,]+ \|", output, re.MULTILINE)) == 4
    assert read_result(tmp_path / "length.json")["examples"] == 2 * (32 + 64)


@pytest.mark.exhaustive
def test_length_within_a_time_limit_and_of_other_models():
    output = run("lm-length", "--time-limit", "0", "--models", "mega")
    assert "| mega | 64 | skipped: would take about" in output
    output = run("lm-length", "--models", "megalodon,llama")
    assert re.findall(r"^\| (megalodon, chunk 16|llama) \| (\d+) \| [\d,]+ \|", output, re.MULTILINE) == [
        *[("megalodon, chunk 16", "32"), ("megalodon, chunk 16", "64"), ("llama", "32"), ("llama", "64")]
    ]


def test_shared_sequences(tmp_path):
    output = run("chunk-parallel", "--json", str(tmp_path / "shared.json"))
    assert re.findall(r"^\| (mega|megalodon), chunk 16 \| (\d) \| (\d+) \|", output, re.MULTILINE) == [
        *[("mega", "1", "64"), ("mega", "2", "32"), ("megalodon", "1", "64"), ("megalodon", "2", "32")]
    ]
    assert read_result(tmp_path / "shared.json")["examples"] == 64
