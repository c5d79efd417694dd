"""scripts/gpu_check.sh, rehearsed on the CPU: all of its stages, and how it goes on after a failure or an end."""

import importlib
import json
import subprocess
import sys
import zipfile

import pytest

from tests.support.documented_commands import help_of
from tests.support.helpers import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("gpu_check")


def test_all_stages_run_and_only_what_is_left_runs_again(gpu_check, monkeypatch, tmp_path):
    """One stage fails until it is mended, one passes, one goes on once, one does not end."""

    def stage(name, command="true"):
        return gpu_check.Stage(name, "tests", [["bash", "-c", f"echo {name} >>begun; {command}"]])

    some = [
        stage("fails", "[ -e mended ]"),
        stage("passes"),
        stage("on", "[ -e half ] || { touch half; exit 75; }"),
        stage("slow", "[ -e mended ] || { sleep 60 & wait; }"),
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_check, "SECONDS", 1)
    assert gpu_check.Check(tmp_path, {}).run(some) == 1
    kept = json.loads((tmp_path / "stages.json").read_text())["stages"]
    assert kept == {"fails": "failed", "passes": "passed", "on": "unfinished", "slow": "failed"}
    (tmp_path / "mended").touch()
    assert gpu_check.Check(tmp_path, {}, minutes=0.5).run(some) == 1  # no time to begin
    for _ in range(2):
        assert gpu_check.Check(tmp_path, {}).run(some) == 0
        assert (tmp_path / "begun").read_text().split()[4:] == ["on", "fails", "slow"]  # failed ones last
    with pytest.raises(SystemExit, match="--out"):
        gpu_check.Check(tmp_path, {"sources": "other"})


def test_a_stage_that_hangs_leaves_time_for_the_others(gpu_check, monkeypatch, tmp_path):
    monkeypatch.setitem(gpu_check.LIMITS, "speed", 1)
    stages = [gpu_check.Stage(name, "speed", [command]) for name, command in (("a", ["sleep", "60"]), ("b", ["true"]))]
    assert gpu_check.Check(tmp_path, {}, minutes=2).run(stages) == 1
    assert json.loads((tmp_path / "stages.json").read_text())["stages"] == {"a": "failed", "b": "passed"}


def test_nothing_runs_without_the_extension(gpu_check, tmp_path):
    build = gpu_check.Stage("build", "setup", [["false"], ["touch", str(tmp_path / "made")]])
    assert gpu_check.Check(tmp_path, {}).run([gpu_check.Stage("test", "tests", [["true"]]), build]) == 1
    assert json.loads((tmp_path / "stages.json").read_text())["stages"] == {"build": "failed"}
    assert not (tmp_path / "made").exists()


def arguments_of(gpu_check, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *map(str, options)])
    return gpu_check.parse_arguments()


def test_the_stages_of_a_gpu(gpu_check, monkeypatch):
    """The whole extension, every file of tests, the EMA under every tool; the programs know their options."""
    found = {stage.name: stage for stage in gpu_check.all_stages(arguments_of(gpu_check, monkeypatch))}
    assert {f"{tool}-ema-{kind}" for tool in gpu_check.TOOLS for kind in ("real", "complex")} <= set(found)
    assert found["build"].environment["FORCE_CUDA"] == "1"
    assert found["memcheck-gate"].commands[0][1:5] == ["--tool", "memcheck", "--kernel-name", "kns=_ZN2fm"]
    given = {part for name in found if name.startswith("tests-") for part in found[name].commands[0]}
    assert {f"tests/ops/{path.name}" for path in (REPOSITORY / "tests" / "ops").glob("test_*.py")} <= given
    speed = gpu_check.all_stages(arguments_of(gpu_check, monkeypatch, "--stage", "speed"))
    assert [stage.part for stage in speed] == ["setup", *["speed"] * 8] and len(speed[0].commands) == 1  # no building
    assert [stage.name for stage in speed].index("tests-new") == 4  # before the longer measurements
    stages = [*found.values(), *speed]
    programs = [stage.commands[0] for stage in stages if {"--json", "--output"} & set(stage.commands[0])]
    assert len(programs) == 8 + 7
    for command in programs:
        module, program, *words = command[command.index("-m") + 1 :]
        known = help_of(module, (program,))
        assert all(f"{word} " in known or f"{word}]" in known for word in words if word.startswith("--")), command
    fewer = gpu_check.all_stages(arguments_of(gpu_check, monkeypatch, "--skip", "benchmarks,sanitizer"))
    assert {stage.part for stage in fewer} == {"setup", "tests"}


def test_a_row_continues_in_the_next_call(gpu_check, monkeypatch, tmp_path):
    """A training that its time ends is left to the next call, and is not a failure."""
    monkeypatch.setattr(gpu_check, "SLACK", 1)
    row = gpu_check.Stage(
        "row", "rows", [["timeout", "{seconds}", "bash", "-c", "[ -e half ] || { touch half; sleep 60; }"]]
    )
    monkeypatch.chdir(tmp_path)
    assert gpu_check.Check(tmp_path, {}, minutes=0.08).run([row]) == 3
    assert gpu_check.Check(tmp_path, {}).run([row]) == 0


def test_the_sanitizer_has_tests_to_run(gpu_check, monkeypatch):
    """Every expression selects some."""
    stages = gpu_check.sanitizer_stages(arguments_of(gpu_check, monkeypatch, "--smoke", "--device", "cpu"))
    runs = [[*stage.commands[0][3:], f"--rootdir={REPOSITORY}"] for stage in stages]
    program = "import sys, json, pytest; sys.exit(max(int(pytest.main(run)) for run in json.load(sys.stdin)))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=json.dumps(runs), capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0 and len(stages) == len(gpu_check.SANITIZED), done.stdout[-2000:]
    assert done.stdout.count("::") > 200


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_stage_works(tmp_path):
    """The whole program in smoke form, with folders given relative to where it is called."""
    pytest.importorskip("matplotlib", reason="the plots need matplotlib: pip install 'matplotlib>=3.6'")
    pytest.importorskip("pip", reason="the wheels are installed with pip")
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        information = "made_up-1.0.dist-info"
        wheel.writestr("made_up.py", "")
        wheel.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: made_up\nVersion: 1.0\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    command = ["bash", str(SCRIPTS / "gpu_check.sh"), "--python", sys.executable, "--device", "cpu", "--smoke"]
    for options in (["--wheels", "wheels", "--skip", "sanitizer"], ["--stage", "speed"], ["--stage", "rows"]):
        done = subprocess.run([*command, "--out", "results", *options], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results"
    kept = json.loads((results / "stages.json").read_text())["stages"]
    assert set(kept.values()) == {"passed"} and len(kept) >= 17 + 8 + 2
    assert len(list(results.glob("speed-*.json"))) == 7 and list((results / "rows").rglob("*seed1*"))
    assert (results / "site" / "made_up.py").exists()
    for dtype in ("float32", "bfloat16"):
        assert (results / f"kernels-lengths-{dtype}.png").exists()
        for name in ("kernels-lengths", "kernels-paper", "layer"):
            lines = (results / f"{name}-{dtype}.rows.jsonl").read_text().splitlines()
            assert len(lines) >= 5 and all(json.loads(line)["settings"]["dtype"] == dtype for line in lines)
