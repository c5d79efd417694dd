"""Benchmarks of operators and layers: they run, print nothing where a path is wrong, and name what they omit."""

import json
import os
import subprocess
import sys

import pytest
import torch

from fairseq_mega.lab.benchmarks import command, kernels, kernels_report, measuring, operators
from fairseq_mega.lab.report import benchmark_tables as tables
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.ops.common import native
from tests.support.helpers import REPOSITORY


def run(*arguments):
    """Run a benchmark; returns the finished process."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "fairseq_mega.lab.benchmarks", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=REPOSITORY)


def call_main(monkeypatch, *arguments):
    """The kernel benchmark's main function in this process."""
    monkeypatch.setattr(measuring, "run_apart", kernels.measure)
    threads = torch.get_num_threads()
    try:
        command.main(["kernels", *arguments])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", operators.OPS)
def test_tables_show_the_compiled_path_of_a_cpu(name):
    """Beside the path that the benchmark compares with."""
    paths = {path: {"path": path} for path in operators.OPS[name].paths}
    chosen = "blocks" if name.startswith("attention") else "scan" if name.startswith("ema") else "native"
    assert tables.first(paths, tables.COMPILED) == {"path": chosen}
    assert tables.first(paths, tables.BASELINES) == {"path": operators.OPS[name].baseline}


def test_smoke_of_the_kernel_benchmark(tmp_path, device):
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.6'")
    result, plot = tmp_path / "kernels.json", tmp_path / "kernels.png"
    done = run("kernels", "--smoke", "--device", device.type, "--json", result)
    assert done.returncode == 0, done.stderr
    written = read_result(result)
    measured = [row for row in written["rows"] if not row["skipped"]]
    assert written["examples"] == len(measured)
    paths = {(row["op"], row["path"]) for row in measured}
    everything = {
        (name, path): operators.missing(op.paths[path], device)
        for name, op in operators.OPS.items()
        for path in op.paths
    }
    assert paths == {key for key, problem in everything.items() if problem is None}
    reasons = {"a path for CUDA", "a path for CPUs", *([] if native.PROBLEM is None else ["no compiled kernels"])}
    assert {problem for problem in everything.values() if problem} <= reasons
    for row in measured:
        assert row["seconds"] > 0 and row["forward_seconds"] > 0
        assert any(row["title"] in line and f"| {row['path']} |" in line for line in done.stdout.splitlines())
    assert "GB/s" in done.stdout
    kernels_report.plot_rows(written["rows"], plot)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_measurement_runs_in_a_process_of_its_own():
    arguments = command.parse(["kernels", "--repeat", "1"])
    found = kernels.measure_apart("timestep-norm:torch:2,256,1,512", arguments)
    assert found["seconds"] > 0 and found["forward_seconds"] > 0
    assert found["memory_mib"] > 1  # at the very least the input's gradient, 1 MiB


DAMAGES = {
    "scaled": lambda y: y * 1.001,
    "not a number": lambda y: y * float("nan"),
    "only the gradient": lambda y: y.detach() + 0 * y,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_nothing_is_printed_where_a_path_is_wrong(damage, monkeypatch, capsys):
    op = operators.OPS["ema"]
    path = op.paths["fft"]
    broken = path._replace(run=lambda inputs, shape: damage(path.run(inputs, shape)))
    monkeypatch.setitem(operators.OPS, "ema", op._replace(paths={**op.paths, "fft": broken}))
    with pytest.raises(SystemExit, match="nothing is measured.*\n.*EMA, causal, fft, L = 1: ") as error:
        call_main(monkeypatch, "--smoke", "--ops", "ema")
    assert "DxNxL" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_what_does_not_fit_is_omitted_with_the_reason(monkeypatch, capsys):
    limit = operators.OPS["ema"].paths["DxNxL"].needs(operators.Shape(1, 8, 4, 512)) / 2**30 * 0.9
    options = ["--ops", "ema", "--shape", "1,8,4", "--lengths", "64,512", "--memory-limit", str(limit)]
    call_main(monkeypatch, "--smoke", *options)
    lines = capsys.readouterr().out.splitlines()
    omitted = [line for line in lines if "skipped" in line and "compiled" not in line and "CUDA" not in line]
    assert len(omitted) == 1
    assert "1, 8, 4, 512 | DxNxL | skipped: may need" in omitted[0]
    assert any("1, 8, 4, 512 | fft" in line and "skipped" not in line and " - |" in line for line in lines)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_goes_on_from_its_rows(dtype, monkeypatch, capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    shape = ["--shape", "2,16,4,60,8,24,20"]
    options = ["--smoke", "--ops", "ema,attention-laplace", *shape, "--dtype", dtype, "--rows", str(rows)]
    with pytest.raises(SystemExit) as ended:
        call_main(monkeypatch, *options, "--stop-after", "0")
    assert ended.value.code == 75 and not rows.exists()
    call_main(monkeypatch, *options)
    whole = capsys.readouterr().out
    assert whole.count("| 2, 16, 4, 60, 8, 24, 20 |") == 9 and f"\n{dtype}, 1 thread" in whole
    lines = rows.read_text().splitlines(keepends=True)
    attention = [json.loads(line)["what"] for line in lines if "attention-laplace" in line]
    assert attention[0]["shape"] == operators.Shape(2, 16, 4, 60, 8, 24, 20)._asdict()
    rows.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote the last line
    module_calls = []

    def count(*_):
        module_calls.append(1)
        return {"seconds": 1, "memory_mib": 0}

    monkeypatch.setattr(measuring, "time_and_memory", count)
    call_main(monkeypatch, *options, "--stop-after", "600")
    assert len(module_calls) == 1
    call_main(monkeypatch, *options, "--stop-after", "0")
    assert len(module_calls) == 1 and rows.read_text().count("\n") == len(lines) + 1


def test_chunks_are_attended_to_one_by_one():
    shape = operators.Shape(2, 16, 4, 60, z=8, v=24, chunk=20)
    inputs = operators.OPS["attention-softmax"].draw(shape, torch.Generator().manual_seed(1))
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {
        "q": (6, 20, 8),
        "k": (6, 20, 8),
        "v": (6, 20, 24),
        "bias": (39,),
    }
    assert operators.shrunk(shape, 5) == shape._replace(batch=1, length=12, chunk=4)


def test_a_gpu_is_measured_in_this_process(monkeypatch):
    """A process of its own for each of some hundred measurements would take longer than they do."""
    arguments = command.parse(["kernels", "--device", "cuda"])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(measuring, "run_apart", lambda *_: pytest.fail("a process was started"))

    def measure_with(measure):
        monkeypatch.setattr(measuring, "find", lambda _: kernels.BENCHMARK._replace(measure=measure))

    measure_with(lambda what, _: {"seconds": 1.0, "what": what})
    assert kernels.measure_apart("bandwidth", arguments) == {"seconds": 1.0, "what": "bandwidth"}

    def too_large(*_):
        raise torch.cuda.OutOfMemoryError

    measure_with(too_large)
    assert "memory does not suffice" in kernels.measure_apart("ema:scan:1,1,1,1", arguments)["skipped"]


def test_what_takes_too_long_is_omitted(monkeypatch, capsys):
    options = ["--ops", "timestep-norm", "--shape", "1,8,1", "--lengths", "64,128", "--time-limit", "1e-6"]
    call_main(monkeypatch, "--smoke", *options)
    out = capsys.readouterr().out
    assert "1, 8, 1, 128 | torch | skipped: would take about" in out
    assert "1, 8, 1, 64 | torch | skipped" not in out


def test_nothing_within_the_memory_is_an_error(monkeypatch):
    with pytest.raises(SystemExit, match="nothing could be measured:\n(.*\n)*.*--memory-limit"):
        call_main(monkeypatch, "--smoke", "--ops", "ema", "--memory-limit", "1e-9")
