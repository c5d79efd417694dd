"""scripts/gpu_check.sh, rehearsed on the CPU: all of its stages, and how it goes on after a failure or an end."""

import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.documented_commands import help_of

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture
def modules(monkeypatch):
    """gpu_check and stages, as the script sees them."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("gpu_check"), importlib.import_module("stages")


def shell(*commands):
    return [["bash", "-c", command] for command in commands]


def stages_of(stages, folder):
    """Stages that write to folder/begun: one passes, one fails the first time, one goes on once."""
    begun = f"echo $NAME >> {folder}/begun"
    return [
        stages.Stage("fails", "a", shell(f"{begun}; [ -e {folder}/mended ]"), environment={"NAME": "fails"}),
        stages.Stage("needs it", "a", shell(begun), ("fails",), environment={"NAME": "needs"}),
        stages.Stage("passes", "b", shell(begun), environment={"NAME": "passes"}),
        stages.Stage(
            "goes on",
            "b",
            shell(f"{begun}; [ -e {folder}/half ] || {{ touch {folder}/half; exit 75; }}"),
            environment={"NAME": "on"},
        ),
    ]


def test_all_stages_run_and_only_what_is_left_runs_again(modules, tmp_path, capsys):
    _, stages = modules
    job = lambda: stages.Job(tmp_path, {"device": "cpu"})
    some = stages_of(stages, tmp_path)
    assert job().run(some) == 1
    assert (tmp_path / "begun").read_text().split() == ["fails", "passes", "on"]
    kept = json.loads((tmp_path / "stages.json").read_text())["stages"]
    assert {name: outcome["status"] for name, outcome in kept.items()} == {
        "fails": "failed",
        "needs it": "left out",
        "passes": "passed",
        "goes on": "unfinished",
    }
    (tmp_path / "mended").touch()
    for _ in range(2):
        assert job().run(some) == 0
        # What failed comes after what did not, and what needs it last.
        assert (tmp_path / "begun").read_text().split()[3:] == ["on", "fails", "needs"]
    assert "goes on                          passed" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="device changed.*remove it, or give another --out"):
        stages.Job(tmp_path, {"device": "cuda"})


def test_limits(modules, tmp_path, capsys):
    _, stages = modules
    slow = stages.Stage("slow", "a", shell("sleep 60 & wait"), seconds=1)
    assert stages.Job(tmp_path, {}).run([slow]) == 1
    kept = json.loads((tmp_path / "stages.json").read_text())["stages"]
    assert "did not end within 1 s" in kept["slow"]["said"] and kept["slow"]["seconds"] < 20
    quick = stages.Stage("quick", "a", shell("true"))
    assert stages.Job(tmp_path / "b", {}, minutes=0.5).run([quick]) == 3  # no time to begin
    assert "quick                            not begun" in capsys.readouterr().out


def arguments_of(gpu_check, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *map(str, options)])
    return gpu_check.parse_arguments()


def test_the_stages_of_a_gpu(modules, monkeypatch):
    """Less than eight minutes each, both precisions, MEGA's own shapes, the EMA under every tool."""
    gpu_check, _ = modules
    found = {stage.name: stage for stage in gpu_check.all_stages(arguments_of(gpu_check, monkeypatch))}
    assert all(stage.seconds < 480 for stage in found.values())
    assert {f"{tool}-ema-{kind}" for tool in gpu_check.TOOLS for kind in ("real", "complex", "truncation")} <= set(
        found
    )
    for name in ("kernels-paper-bfloat16", "kernels-lengths-float32", "layer-bfloat16"):
        (command,) = found[name].commands
        assert command[command.index("--stop-after") + 1] == "{seconds}" and "--rows" in command
    assert found["build"].environment["FORCE_CUDA"] == "1"
    (command,) = found["memcheck-gate"].commands
    assert command[1:5] == ["--tool", "memcheck", "--kernel-name", "kns=_ZN2fm"]
    given = {part for name in found if name.startswith("tests-") for part in found[name].commands[0]}
    here = {f"tests/ops/{path.name}" for path in (SCRIPTS.parent / "tests" / "ops").glob("test_*.py")}
    assert here <= given
    fewer = gpu_check.all_stages(arguments_of(gpu_check, monkeypatch, "--skip", "benchmarks,sanitizer"))
    assert {stage.part for stage in fewer} == {"setup", "tests"}


def test_what_is_missing_is_named_first(modules, monkeypatch, tmp_path):
    gpu_check, _ = modules
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pytest" else name)
    options = ["--device", "cpu", "--out", tmp_path / "out"]
    with pytest.raises(SystemExit, match="has no pytest: install it, .*--wheels, or give --skip tests"):
        gpu_check.check_prerequisites(arguments_of(gpu_check, monkeypatch, *options))
    (tmp_path / "pytest-9.0-py3-none-any.whl").touch()
    gpu_check.check_prerequisites(arguments_of(gpu_check, monkeypatch, *options, "--wheels", tmp_path))


def make_wheel(folder):
    """A wheel of one module, made_up."""
    with zipfile.ZipFile(folder / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        information = "made_up-1.0.dist-info"
        wheel.writestr("made_up.py", "")
        wheel.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: made_up\nVersion: 1.0\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")


def test_the_sanitizer_has_tests_to_run(modules, monkeypatch):
    """Every expression selects some, and the EMA's are many."""
    gpu_check, _ = modules
    arguments = arguments_of(gpu_check, monkeypatch, "--smoke", "--device", "cpu")
    stages = gpu_check.sanitizer_stages(arguments)
    runs = [[*stage.commands[0][3:], f"--rootdir={SCRIPTS.parent}"] for stage in stages]
    program = "import sys, json, pytest; [print(int(pytest.main(run)), flush=True) for run in json.load(sys.stdin)]"
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(runs), capture_output=True, text=True, cwd=SCRIPTS.parent
    )
    counts = {}
    names = iter(stages)
    seen = 0
    for line in done.stdout.splitlines():
        seen += "::" in line
        if line.isdigit():
            assert line == "0", done.stdout[-2000:]
            counts[next(names).name], seen = seen, 0
    assert len(counts) == len(gpu_check.SANITIZED) and min(counts.values()) >= 5, counts
    assert sum(count for name, count in counts.items() if "-ema-" in name) >= 140


@pytest.mark.parametrize("smoke", [False, True])
def test_the_programs_have_the_options_of_the_stages(smoke, modules, monkeypatch):
    """Benchmarks and plots; with --exhaustive they run, too."""
    gpu_check, _ = modules
    arguments = arguments_of(gpu_check, monkeypatch, *(["--smoke", "--device", "cpu"] if smoke else []))
    stages = [*gpu_check.benchmark_stages(arguments), *gpu_check.plot_stages(arguments)]
    assert len(stages) == 8
    for command in (command for stage in stages for command in stage.commands):
        module, program, *words = command[command.index("-m") + 1 :]
        known = help_of(module, (program,))
        given = {word for word in words if word.startswith("--")}
        assert given and all(f"{option} " in known or f"{option}]" in known for option in given), command


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_stage_works(tmp_path):
    """The whole program in smoke form, with folders given relative to where it is called."""
    pytest.importorskip("matplotlib", reason="the plots need matplotlib: pip install 'matplotlib>=3.6'")
    pytest.importorskip("pip", reason="the wheels are installed with pip")
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels")
    command = ["bash", SCRIPTS / "gpu_check.sh", "--python", sys.executable, "--device", "cpu", "--smoke"]
    command += ["--out", "results", "--wheels", "wheels", "--skip", "sanitizer"]
    run = lambda: subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results"
    kept = json.loads((results / "stages.json").read_text())["stages"]
    assert {outcome["status"] for outcome in kept.values()} == {"passed"} and len(kept) >= 17
    assert (results / "site" / "made_up.py").exists()
    for dtype in ("float32", "bfloat16"):
        assert (results / f"kernels-lengths-{dtype}.png").exists()
        for name in ("kernels-lengths", "kernels-paper", "layer"):
            lines = (results / f"{name}-{dtype}.rows.jsonl").read_text().splitlines()
            assert len(lines) >= 5 and all(json.loads(line)["settings"]["dtype"] == dtype for line in lines)
    before = (results / "stages.json").read_bytes()
    again = run()
    assert again.returncode == 0 and (results / "stages.json").read_bytes() == before
