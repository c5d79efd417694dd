"""The language models' benchmarks run, in their --smoke form, and compare what is comparable."""

import pytest

from fairseq_mega.lab.benchmarks import command, models
from fairseq_mega.lab.runs.results import read_result
from tests.support import eager_graphs


@pytest.mark.parametrize("width", [32, 256])
def test_models_have_equally_many_parameters(width):
    mega, full, transformer, llama, megalodon = (
        models.layer_parameters(models.build(name, width, 2, 8, 20, 30))
        for name in (*models.MODELS, "llama", "megalodon")
    )
    assert mega == full
    assert abs(mega - transformer) < 4 * width + 4  # the FFN's width is a whole number
    assert abs(mega - llama) < 6 * width
    assert abs(mega - megalodon) < 0.01 * mega


@pytest.fixture
def run(capsys):
    def run_benchmark(*given):
        command.main(list(map(str, given)))
        return capsys.readouterr().out

    return run_benchmark


def test_decoding(tmp_path, run):
    output = run("decoding", "--smoke", "--json", tmp_path / "decoding.json")
    scores = read_result(tmp_path / "decoding.json")["scores"]
    assert all(f"| {name} position={position} |" in output for name in models.MODELS for position in (10, 90))
    assert scores["transformer position=90 speed"] == 1.0 and scores["mega position=90 parameters"] == 15440
    states = [scores[f"{name} position=90 bytes"] / scores[f"{name} position=10 bytes"] for name in models.MODELS]
    assert states[0] < 1.5 < states[1] and states[2] > 1.5  # only the chunked model's memory does not grow


def test_decoding_with_and_without_a_graph(tmp_path, run, monkeypatch):
    captured = eager_graphs.use(monkeypatch)
    file = tmp_path / "decoding.json"
    run("decoding", "--smoke", "--models", "mega,mega-eager", "--positions", "90", "--json", file)
    assert len(captured) == 1 and read_result(file)["scores"]["mega position=90 bytes"] > 0


def test_length(tmp_path, run):
    file = tmp_path / "length.json"
    output = run("lm-length", "--smoke", "--models", "mega,megalodon/figure4/11m/llama", "--json", file)
    assert output.count("| mega L=") == output.count("| megalodon/figure4/11m/llama L=") == 2
    result = read_result(file)
    assert result["examples"] == 4 and result["settings"]["width"] == 32
    assert "skipped" in run("lm-length", "--smoke", "--models", "mega", "--time-limit", 0)
    run("lm-length", "--smoke", "--models", "megalodon/figure4/11m/llama", "--json", file)
    assert "width" not in read_result(file)["settings"]  # the recipe has its own sizes
