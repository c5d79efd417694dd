"""The benchmark of operators: its paths agree, it continues from its rows, and it names what it omits."""

import json

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, kernels, measuring
from fairseq_mega.lab.report import benchmark_tables as tables
from fairseq_mega.lab.report.pictures import COMPILED, plot_rows
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.ops.common import native

# Paths that a device does not have.
ABSENT = {"cpu": {"fft_kernel", "triton"}, "cuda": {"blocks"}}
if native.PROBLEM is not None:
    ABSENT = {kind: {"fft_kernel", "triton", *COMPILED} for kind in ABSENT}


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    """Measure no kernel in Triton's interpreter."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")


@pytest.mark.parametrize("length", [1, 67])
@pytest.mark.parametrize("name", kernels.OPS)
def test_paths_agree(name, length, device):
    """Outputs and all gradients of the paths that ours are compared with, and of ours."""
    op, shape = kernels.OPS[name], kernels.Shape(2, 64, 4, length)
    drawn = op.draw(shape, torch.Generator().manual_seed(1))
    results = {}
    for path, run in op.paths.items():
        if path not in ABSENT[device.type]:
            inputs = kernels.leaves(drawn, torch.float32, device)
            y = run(inputs, shape)
            gradients = torch.autograd.grad(y.square().mean(), list(inputs.values()), allow_unused=True)
            given = zip(inputs.values(), gradients)
            results[path] = [y, *(torch.zeros_like(x) if g is None else g for x, g in given)]
    for path, found in results.items():
        for got, want in zip(found, results[op.baseline]):
            # A gradient that is exactly zero, for instance with a single softmax weight, has an error too.
            assert (got - want).norm() <= 1e-4 * want.norm().clamp(min=1e-2), path


@pytest.mark.parametrize("name", kernels.OPS)
def test_tables_show_the_compiled_path_of_a_cpu(name):
    """Beside the path that the benchmark compares with."""
    paths = {path: {"path": path} for path in kernels.OPS[name].paths}
    chosen = "blocks" if name.startswith("attention") else "scan" if name.startswith("ema") else "native"
    assert tables.first(paths, tables.COMPILED) == {"path": chosen}
    assert tables.first(paths, tables.BASELINES) == {"path": kernels.OPS[name].baseline}


def test_smoke_of_the_kernel_benchmark(tmp_path, device, capsys):
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.6'")
    result, plot = tmp_path / "kernels.json", tmp_path / "kernels.png"
    command.main(["kernels", "--smoke", "--device", device.type, "--json", str(result)])
    out, written = capsys.readouterr().out, read_result(result)
    measured = [row for row in written["rows"] if not row["skipped"]]
    assert written["examples"] == len(measured)
    paths = {(name, path) for name, op in kernels.OPS.items() for path in op.paths if path not in ABSENT[device.type]}
    assert {(row["op"], row["path"]) for row in measured} == paths
    for row in measured:
        assert row["seconds"] > 0 and row["forward_seconds"] > 0
        assert f"| {row['op']} {','.join(map(str, row['shape'].values()))} {row['path']} |" in out
    plot_rows(written["rows"], plot)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_from_its_rows(monkeypatch, capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    options = ["kernels", "--smoke", "--ops", "ema,attention-laplace", "--shape", "2,16,4,60,8,24,20"]
    options += ["--dtype", "bfloat16", "--rows", str(rows)]
    with pytest.raises(SystemExit) as ended:
        command.main([*options, "--stop-after", "0"])
    assert ended.value.code == 75 and not rows.exists()
    command.main(options)
    whole = capsys.readouterr().out
    assert whole.count(" 2,16,4,60,8,24,20 ") == 10
    lines = rows.read_text().splitlines(keepends=True)
    attention = [json.loads(line)["what"] for line in lines if "attention-laplace" in line]
    assert attention[0]["shape"] == kernels.Shape(2, 16, 4, 60, 8, 24, 20)._asdict()
    rows.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote the last line
    measured = []

    def count(*_):
        measured.append(1)
        return {"seconds": 1, "memory_mib": 0}

    monkeypatch.setattr(measuring, "time_and_memory", count)
    command.main([*options, "--stop-after", "600"])
    assert len(measured) == 1
    command.main([*options, "--stop-after", "0"])
    assert len(measured) == 1 and rows.read_text().count("\n") == len(lines)


def test_chunks_are_attended_to_one_by_one():
    shape = kernels.Shape(2, 16, 4, 60, z=8, v=24, chunk=20)
    inputs = kernels.OPS["attention-softmax"].draw(shape, torch.Generator().manual_seed(1))
    sizes = {"q": (6, 20, 8), "k": (6, 20, 8), "v": (6, 20, 24), "bias": (39,)}
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == sizes
    assert kernels.shrunk(shape, 5) == shape._replace(batch=1, length=12, chunk=4)


@pytest.mark.parametrize("limit", ["seconds", "memory_mib"])
def test_what_would_not_fit_is_omitted(limit, monkeypatch, capsys):
    """A length is omitted if the measurement of a shorter one predicts too much time or memory."""
    monkeypatch.setattr(measuring, "time_and_memory", lambda *_: {"seconds": 1.0, "memory_mib": 1024.0})
    monkeypatch.setattr(measuring, "available_mib", lambda _: 2048.0 / measuring.MOST_MEMORY)
    options = ["--ops", "attention", "--shape", "1,8,1", "--lengths", "64,128"]
    options += ["--time-limit", "2"] if limit == "seconds" else []
    command.main(["kernels", "--smoke", *options])
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.endswith(" explicit") or " explicit" in line]
    assert [f" {limit}, the limit is 2" in line for line in lines] == [False, True]  # of L = 64 and 128


def test_a_gpu_whose_memory_is_too_small_skips_a_path(monkeypatch, capsys):
    def too_large(*_):
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(measuring, "time_and_memory", too_large)
    with pytest.raises(SystemExit):
        command.main(["kernels", "--smoke", "--ops", "timestep-norm"])
    assert "memory" in capsys.readouterr().err
