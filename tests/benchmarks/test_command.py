"""The one command of all benchmarks: its options, and what it records."""

import json
import subprocess
import sys

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, layer, measuring
from fairseq_mega.lab.report.benchmark_tables import classifier_speed
from fairseq_mega.lab.runs.results import read_result, write_result
from fairseq_mega.ops.common import native


def test_given_options_win_over_those_of_smoke():
    arguments = command.parse(["decoding", "--smoke", "--chunk", "16,4096"])
    assert (arguments.chunk, arguments.width, arguments.smoke) == ("16,4096", 32, True)
    assert command.parse(["decoding"]).width == 256


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["lra-speed", "--models", "rnn"], "--models rnn: 'rnn' is unknown, choose from transformer-explicit, "),
        (["lm-length", "--models", "mega,rnn"], "--models mega,rnn: 'rnn' is unknown, choose from mega, "),
        (["kernels", "--ops", "convolution"], "--ops convolution: 'convolution' is unknown"),
        (["kernels", "--shape", "2,8,4,60,8,16,7"], "--shape 2,8,4,60,8,16,7"),
        (["layer", "--smoke", "--json", "/"], "--json /"),
        (["layer", "--smoke", "--json", "/dev/null/x.json"], "--json /dev/null/x.json"),
        (["layer", "--tokens", "16"], "--tokens 16: give at least the longest of --lengths 512,"),
        (["peers", "--python", "mega=python"], "--python mega: 'mega' is unknown"),
    ],
)
def test_options_that_cannot_be_measured(given, message, capsys):
    with pytest.raises(SystemExit, match=message):
        command.main(given)
    assert capsys.readouterr().out == ""


def test_the_result_says_how_it_was_measured(tmp_path, capsys):
    """All layers are measured with the options of the command, which are recorded with the command itself."""
    file = tmp_path / "layer.json"
    given = ["layer", "--smoke", "--json", str(file)]
    command.main(given)
    out = capsys.readouterr().out
    assert out.count("| 16 |") == len(layer.MODELS) == 7 and out.count("| 16 | mega-chunk 8 |") == 1
    assert ("mega-chunk, L = 16: products make" in out) == (native.PROBLEM is None)
    result = read_result(file)
    assert result["command"] == " ".join(["python -m fairseq_mega.lab.benchmarks", *given])
    assert (result["benchmark"], result["label"]) == ("layer", "layer-cpu")
    assert result["settings"]["tokens"] == 32 and not {"json", "given", "benchmark"} & set(result["settings"])


@pytest.mark.parametrize(
    ("given", "said", "unsaid"),
    [
        (["lra-speed", "--models", "mega,transformer"], {"architectures": {"mega": "mega_lra_imdb"}}, ()),
        (["lm-length", "--models", "megalodon/figure4/11m/llama"], {}, ("width", "layers", "chunk")),
        (["lm-length", "--models", "mega"], {"width": 32, "layers": 1, "chunk": 16}, ()),
    ],
)
def test_settings_are_those_of_the_models(given, said, unsaid, tmp_path, monkeypatch, capsys):
    """Recipes have sizes of their own; architectures are recorded where a benchmark chooses them."""
    found = {"seconds": 1.0, "memory_mib": 1.0, "parameters": 1}
    monkeypatch.setattr(measuring, "run_apart", lambda *unused: found)
    command.main([*given, "--smoke", "--json", str(tmp_path / "found.json")])
    settings = read_result(tmp_path / "found.json")["settings"]
    assert all(settings[key] == value or value.items() <= settings[key].items() for key, value in said.items())
    assert set(unsaid).isdisjoint(settings)


def test_the_table_of_speed_names_what_was_measured(tmp_path, monkeypatch, capsys):
    """A file from before architectures were recorded names none."""
    monkeypatch.setattr(measuring, "run_apart", lambda *unused: {"seconds": 1.0, "memory_mib": 1.0, "parameters": 1})
    command.main(["lra-speed", "--smoke", "--json", str(tmp_path / "speed.json")])
    titles = [row[0] for row in classifier_speed(tmp_path, ["speed.json"]).rows]
    assert titles[0] == "Transformer, attention written out (`transformer_lra_imdb`)"
    assert titles[3] == "MEGA-chunk, C = 16 (`mega_lra_imdb`)"
    found = read_result(tmp_path / "speed.json")
    del found["settings"]["architectures"]
    write_result(tmp_path / "old.json", found)
    assert classifier_speed(tmp_path, ["old.json"]).rows[0][0] == "Transformer, attention written out"


def test_a_layer_is_measured_without_what_takes_long_to_import():
    """Every measurement is a process of its own: neither fairseq nor torch's compiler is loaded for it."""
    program = (
        "import json, sys; from fairseq_mega.lab.benchmarks import command; "
        "found = command.find('layer').measure('mega:16', command.parse(sys.argv[1:])); "
        "print(json.dumps(found)); print(*sys.modules)"
    )
    given = [sys.executable, "-c", program, "layer", "--smoke"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    measured, loaded = done.stdout.splitlines()
    assert json.loads(measured)["kept_mib"] > 0
    assert "fairseq_mega.lab.benchmarks.layer" in loaded.split() and not {"fairseq", "torch._dynamo"} & set(
        loaded.split()
    )


def test_the_help_names_every_benchmark(capsys):
    with pytest.raises(SystemExit):
        command.parse(["--help"])
    help_text = capsys.readouterr().out
    assert all(name in help_text for name in command.NAMES)


def test_each_measurement_is_a_process_of_its_own(capfd):
    """Its output is shown only if it fails."""
    arguments = command.parse(["layer", "--smoke"])
    first, second = (measuring.run_apart(f"mega:{length}", arguments) for length in (16, 32))
    assert first["seconds"] > 0 and second["kept_mib"] > first["kept_mib"] > 0
    with pytest.raises(SystemExit, match=r"(?s)measuring mega:none failed \(exit status 1\):.*ValueError.*'none'"):
        measuring.run_apart("mega:none", arguments)
    assert capfd.readouterr() == ("", "")


def test_products_of_a_layer_are_counted():
    """Tokens times weights for each of three products, and attention within chunks."""
    arguments = command.parse(["layer", "--smoke"])  # d 8, v 16, z 4, chunks of 8; 32 tokens
    maps = 8 * 16 + 8 * (8 + 4 + 16 + 8) + 16 * 8 + 2 * 8 * 16
    assert layer.products("mega-chunk", 16, arguments) == 2 * 32 * (3 * maps + 8 * (4 * 4 + 3 * 16))
    assert layer.products("mega", 16, arguments) == 2 * 32 * (3 * maps + 16 * (4 * 4 + 3 * 16))
    maps = 8 * 16 + 8 * (8 + 4 + 16) + 16 * 8 + 2 * 8 * 16
    assert layer.products("megalodon-chunk", 16, arguments) == 2 * 32 * (3 * maps + 4 * (4 * 4 + 3 * 16))  # causal
    assert layer.products("transformer", 16, arguments) == layer.products("published-chunk", 16, arguments) == 0


def test_layers_are_measured_under_autocast(monkeypatch):
    """The layer computes in bfloat16, its parameters and the norm of its input in float32."""
    types = []
    given = ["layer", "--smoke", "--models", "mega-chunk", "--dtype", "autocast"]
    inner = layer.output

    def output(module, x):
        y = inner(module, x)
        types.append((module.feed_forward.fc1(x).dtype, module.feed_forward.fc1.weight.dtype, y.dtype))
        return y

    monkeypatch.setattr(layer, "output", output)
    layer.measure("mega-chunk:16", command.parse(given))
    assert set(types) == {(torch.bfloat16, torch.float32, torch.float32)}


def test_what_backward_keeps_is_counted():
    """The exponential keeps its result, the sum nothing of its own; what is freed on the way does not count."""
    x = torch.zeros(1 << 18, requires_grad=True)
    assert measuring.kept_mib(lambda: (x * 2.0).exp().sum(), torch.device("cpu")) == pytest.approx(1.0, abs=1e-3)


def test_device(tmp_path, capsys):
    command.main(["device", "--device", "cpu", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["gpu"] is None and found["python"] == sys.version.split()[0]
    assert json.loads(capsys.readouterr().out) == found
