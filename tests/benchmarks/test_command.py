"""The one command of all benchmarks: its options, and what it records."""

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, layer, lra_speed, measuring
from fairseq_mega.lab.report.benchmark_tables import classifier_speed
from fairseq_mega.lab.runs.results import read_result, write_result


def test_given_options_win_over_those_of_smoke():
    arguments = command.parse(["decoding", "--smoke", "--chunk", "4096"])
    assert (arguments.chunk, arguments.width, arguments.smoke) == (4096, 32, True)
    assert command.parse(["decoding"]).width == 256


@pytest.mark.parametrize(
    "given",
    [
        ["lm-length", "--models", "mega,rnn"],
        ["kernels", "--shape", "2,8,4,60,8,16,7"],  # a chunk that does not divide the length
        ["layer", "--smoke", "--json", "/dev/null/x.json"],
    ],
)
def test_options_that_cannot_be_measured(given, capsys):
    with pytest.raises(SystemExit):
        command.main(given)
    printed = capsys.readouterr()
    assert printed.out == "" and f"{given[-2]} {given[-1]}" in printed.err


def test_the_result_says_how_it_was_measured(tmp_path, capsys):
    """All layers are measured with the options of the command, which are recorded with the command itself."""
    file = tmp_path / "layer.json"
    given = ["layer", "--smoke", "--json", str(file)]
    command.main(given)
    out = capsys.readouterr().out
    assert all(f"| {model} L=16 |" in out for model in layer.MODELS)
    result = read_result(file)
    keys = ("seconds", "memory_mib", "speed", "memory")
    assert set(result["scores"]) == {f"{model} L=16 {key}" for model in layer.MODELS for key in keys}
    assert result["scores"]["transformer L=16 speed"] == 1.0
    assert result["command"] == " ".join(["python -m fairseq_mega.lab.benchmarks", *given])
    assert (result["benchmark"], result["label"]) == ("layer", "layer-cpu")
    assert result["settings"]["tokens"] == 32 and not {"json", "given", "benchmark"} & set(result["settings"])


@pytest.mark.parametrize(
    ("ours", "other"), [("mega-chunk", "published-chunk"), ("megalodon-chunk", "megalodon-published")]
)
def test_arrangements_of_a_layer_agree(ours, other, device):
    """Outputs and all gradients of the layers that ours are compared with."""
    arguments = command.parse(["layer", "--smoke"])
    length = 3 * arguments.chunk_size + 5
    torch.manual_seed(0)
    one, two = (layer.build(name, length, arguments).to(device) for name in (ours, other))
    with torch.no_grad():
        for target, source in zip(two.parameters(), one.parameters()):
            target.copy_(source.add_(0.05 * torch.randn_like(source)))
    x = torch.randn(2, length, arguments.embed_dim, device=device, requires_grad=True)
    results = []
    for module in (one, two):
        y = layer.output(module, x)
        results.append([y, *torch.autograd.grad(y.square().mean(), [x, *module.parameters()])])
    for got, want in zip(*results):
        assert (got - want).norm() <= 1e-4 * want.norm().clamp(min=1e-6)


def test_the_table_of_speed_names_what_was_measured(tmp_path, monkeypatch, capsys):
    """The fastest pass counts; a file from before architectures were recorded names none."""
    seconds = iter((4.0, 9.0, 2.0, 8.0, 5.0, 1.0, 3.0, 8.0))
    found = lambda *_: {"seconds": next(seconds), "memory_mib": 1.0, "parameters": 1}
    monkeypatch.setattr(measuring, "measure_here", found)
    command.main(["lra-speed", "--smoke", "--sweeps", "2", "--json", str(tmp_path / "speed.json")])
    titles = [row[0] for row in classifier_speed(tmp_path, ["speed.json"]).rows]
    assert titles[0] == "Transformer, attention written out (`transformer_lra_imdb`)"
    assert titles[3] == "MEGA-chunk, C = 16 (`mega_lra_imdb`)"
    result = read_result(tmp_path / "speed.json")
    assert [result["scores"][f"{model} speed"] for model in lra_speed.MODELS] == [1.0, 4.0, 2.0, 0.5]
    del result["settings"]["architectures"]
    write_result(tmp_path / "old.json", result)
    assert classifier_speed(tmp_path, ["old.json"]).rows[0][0] == "Transformer, attention written out"


def test_each_measurement_is_a_process_of_its_own():
    arguments = command.parse(["layer", "--smoke"])
    cases = ({"model": "mega", "length": length} for length in (16, 32))
    first, second = (measuring.measure_apart(arguments, case) for case in cases)
    assert first["seconds"] > 0 and second["memory_mib"] > 0
    with pytest.raises(TypeError):
        measuring.measure_apart(arguments, {"model": "mega", "length": "none"})
