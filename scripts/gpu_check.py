#!/usr/bin/env python3
"""Build, test, sanitize and measure the CUDA kernels on a machine with a GPU, stage by stage.

Every stage has its own log and needs less than eight minutes, of speed less than three; a failed stage does not stop
the others. Passed stages are not repeated: if a command is limited to ten minutes, run this one with --minutes 9 until
its status is 0. Results in DIR: *.rows.jsonl (a JSON line per measurement), kernels-*.json and layer-*.json with GPU
and versions, plots, logs, and stages.json (the outcome of every stage).

--stage speed builds nothing. It measures what a reader compares, the youngest kernels first: a layer and attention in
bfloat16, and decoding. Then it tests these kernels, and measures the EMA, a layer in float32, and training on the Text
task and on enwik8 beside Transformers. --stage rows trains the papers' rows that fit one GPU, and continues them in the
next call.

Exit status: 0 everything passed, 1 something failed, 3 something is left for the next call, 2 bad options.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, UNFINISHED = "passed", "failed", "unfinished"
NOT_YET = (75, 124)  # statuses of a command that continues when it is started again: EX_TEMPFAIL, and of timeout
SLACK = 30  # seconds for a command that watches its time to finish
PARTS = ("tests", "sanitizer", "benchmarks", "plots")
PROCESSES = min(12, os.cpu_count() or 1)  # processes of tests, which share the GPU, with pytest-xdist

# Name of a stage: files, and the expression that selects some of their tests ("" for all but the simulator's).
TESTS: Dict[str, Tuple[Sequence[str], str]] = {
    "ema": (("ops/test_ema.py",), ""),
    "fft": (("ops/test_fft_conv.py",), ""),
    "attention-paths": (("ops/test_attention_paths.py",), ""),
    "attention": (("ops/test_attention.py", "ops/test_attention_dropping.py", "ops/test_triton_flash.py"), ""),
    "norm": (("ops/test_timestep_norm.py",), ""),
    "rows-decoding": (("ops/test_rows.py", "ops/test_decoding.py"), ""),
    "large": (("ops/test_large_tensors.py",), ""),
    "modules": (("modules",), ""),
}
# Tests under compute-sanitizer, which is slow: they reach every kernel, every tail and every kind of mask.
SANITIZED: Dict[str, Tuple[Sequence[str], str]] = {
    "ema-real": (("ops/test_ema.py",), "paths_equal_recurrence and real"),
    "ema-complex": (("ops/test_ema.py",), "paths_equal_recurrence and complex"),
    "ema-widths": (("ops/test_ema.py",), "widths or tiles or half_precision or in_shared_memory"),
    "ema-truncation": (("ops/test_ema.py",), "truncation or step"),
    "fft": (("ops/test_fft_conv.py",), "channels_and_rows or strides or half or rings_of"),
    "attention": (("ops/test_attention_paths.py",), "(equals_the_formula and shape2) or long_rows or groups or chunks"),
    "dropping": (("ops/test_attention_dropping.py",), "formula_with_its_mask and shape1"),
    "norm": (("ops/test_timestep_norm.py",), "(equal or many or padding or half) and not torch and not reference"),
    "gate": (("ops/test_rows.py",), "definition or apart or half"),
}
# No initcheck: only our kernels are instrumented, and it would miss the writes of torch's kernels. Instead the tests
# fill the memory that operators allocate with NaN.
TOOLS = ("memcheck", "racecheck", "synccheck")
# Tests of the youngest kernels, which no GPU has run: the cases that cover all pairs, on the GPU alone.
NEW: Tuple[Sequence[str], str] = (
    (
        *("ops/test_timestep_norm.py", "modules/test_layer_paths.py", "ops/test_linear.py", "ops/test_triton_flash.py"),
        *("ops/test_attention_paths.py", "models/test_decoding_graph.py", "ops/test_ema.py", "ops/test_rows.py"),
        *("ops/test_rotary.py", "ops/test_operator_contract.py", "ops/test_dropout.py"),
    ),
    "cuda or triton or gpu",
)
ROW = ("mega/table2/text/mega_chunk",)
SECONDS = 450  # limit of a stage
LIMITS = {"speed": 170, "rows": 86400}  # of a part, where it is another
BENCHMARK = (sys.executable, "-m", "fairseq_mega.lab.benchmarks")


class Stage(NamedTuple):
    """Commands of one stage; "{seconds}" in a command becomes the time after which it should begin nothing."""

    name: str
    part: str  # part of the check, which can be left out as a whole
    commands: Sequence[Sequence[str]]
    environment: Dict[str, str] = {}


class Check:
    """Runner of stages: their outcomes are in ``folder/stages.json``, their output in ``folder/logs``.

    Args:
        folder: where results go.
        settings: of the results; a folder with results of other settings is an error.
        minutes: time for this call; later stages are left to the next call. None for no limit.

    Raises:
        SystemExit: if the folder was begun with other settings.
    """

    def __init__(self, folder: Path, settings: Dict[str, Any], minutes: Optional[float] = None) -> None:
        self.folder, self.file = folder, folder / "stages.json"
        self.end = time.monotonic() + 60 * (float("inf") if minutes is None else minutes)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.kept: Dict[str, Any] = {"settings": settings, "stages": {}}
        if self.file.exists():
            self.kept = json.loads(self.file.read_text())
            if self.kept["settings"] != settings:
                sys.exit(f"{folder} holds results of {self.kept['settings']}: remove it, or give another --out")

    def status(self, stage: Stage) -> str:
        return str(self.kept["stages"].get(stage.name, "not begun"))

    def run(self, stages: Sequence[Stage]) -> int:
        """Run the stages that have not passed, those that failed before last; none after a set-up that fails.

        Returns 0, 1 if a stage failed, or 3 if some are left.
        """
        for stage in sorted(stages, key=lambda stage: (stage.part != "setup", self.status(stage) == FAILED)):
            if self.status(stage) == PASSED or self.end - time.monotonic() < 2 * SLACK:
                continue
            print(f"{stage.name}: begins", file=sys.stderr, flush=True)
            self.kept["stages"][stage.name] = self.attempt(stage)
            partial = self.file.with_suffix(".partial")
            partial.write_text(json.dumps(self.kept, indent=1))
            partial.replace(self.file)
            if stage.part == "setup" and self.status(stage) != PASSED:
                break
        for stage in stages:
            print(f"{stage.name:32} {self.status(stage)}")
        statuses = {self.status(stage) for stage in stages}
        return 1 if FAILED in statuses else 3 * (statuses != {PASSED})

    def attempt(self, stage: Stage) -> str:
        """Run the commands of one stage, and return its status."""
        seconds_in_all = LIMITS.get(stage.part, SECONDS)
        limit = time.monotonic() + seconds_in_all
        last = min(limit, self.end)
        for command in stage.commands:
            seconds = max(0, int(last - SLACK - time.monotonic()))
            status = self.execute(stage, [part.replace("{seconds}", str(seconds)) for part in command], last)
            if status in NOT_YET or (status is None and last < limit):
                return UNFINISHED
            if status != 0:
                reason = f"did not end within {seconds_in_all} s" if status is None else f"ended with status {status}"
                log = self.log(stage).read_text(errors="replace").splitlines()
                print(f"{stage.name}: {reason}, the end of {self.log(stage)}:", *log[-15:], sep="\n")
                return FAILED
        return PASSED

    def log(self, stage: Stage) -> Path:
        return self.folder / "logs" / f"{stage.name}.log"

    def execute(self, stage: Stage, command: List[str], last: float) -> Optional[int]:
        """Return the exit status of one command, or None if it was ended at the time ``last``."""
        with self.log(stage).open("a") as log:
            print("$", *command, file=log, flush=True)
            environment = {**os.environ, **stage.environment}
            try:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            except OSError as error:
                log.write(f"{error}\n")
                return 127
            try:
                return process.wait(max(0.0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:  # with all processes that it has started
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "outputs" / "gpu_check", help="folder of the results (outputs/gpu_check)")
    add("--wheels", type=Path, help="install the wheels of this folder into DIR/site first, without a network")
    add("--skip", default="", metavar="PARTS", help=f"parts to leave out, comma separated, of {', '.join(PARTS)}")
    add(
        "--stage",
        choices=["check", "speed", "rows"],
        default="check",
        help="check: all of the above (default); speed: measurements alone; rows: trainings",
    )
    add("--data", type=Path, metavar="DIR", help="data of the Text task, for --stage rows (default: download it)")
    add("--minutes", type=float, help="start no stage that would exceed this time (default: no limit)")
    add(
        "--smoke", action="store_true", help="run tiny sizes and few tests, without compiling, as a check of all stages"
    )
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: rehearse without a GPU")
    add("--list", action="store_true", help="only print the stages and their commands")
    arguments = parser.parse_args()
    arguments.skip = [part for part in arguments.skip.split(",") if part]
    unknown = set(arguments.skip) - set(PARTS)
    if unknown:
        parser.error(f"--skip names {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    if arguments.wheels is not None:
        arguments.wheels = arguments.wheels.resolve()  # absolute, because the stages run in another folder
        if not list(arguments.wheels.glob("*.whl")):
            parser.error(f"--wheels {arguments.wheels}: no wheel is in this folder")
    arguments.out = arguments.out.resolve()
    return arguments


def setup_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages that install wheels, build the extension for --stage check, and load it."""
    out, found, device = arguments.out, [], arguments.device
    if arguments.wheels is not None:
        wheels = [str(path) for path in sorted(arguments.wheels.glob("*.whl"))]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        install = [*pip, "--no-index", "--no-deps", "--upgrade", "--target", str(out / "site"), *wheels]
        found.append(Stage("wheels", "setup", [install]))
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--build-temp", str(out / "build")]
    loads = [
        sys.executable,
        "-c",
        f"from fairseq_mega.ops.common import native; assert {device == 'cpu'} or native.HAS_CUDA",
    ]
    kind = "none" if arguments.smoke else device
    variables = {"FAIRSEQ_MEGA_BUILD": kind, "FORCE_CUDA": "1" if kind == "cuda" else "0"}
    found.append(Stage("build", "setup", [build, loads] if arguments.stage == "check" else [loads], variables))
    return found


def pytest_command(
    arguments: argparse.Namespace, files: Sequence[str], selected: str, processes: int = 1, every: bool = True
) -> List[str]:
    """Return the command for every case of some tests on the device, without the simulator's tests."""
    expression = "not simulator" + (f" and ({selected})" if selected else "")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *["--exhaustive"] * every]
    command += ["--device", arguments.device]
    if processes > 1 and importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(processes)]
    if arguments.smoke:
        command.append("--collect-only")  # fails where a file is missing or nothing is selected
    return [*command, "-k", expression, *(f"tests/{name}" for name in files)]


def test_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages of the groups of TESTS, and one stage of the other files of tests/ops."""
    grouped = {name for files, _ in TESTS.values() for name in files}
    others = [f"ops/{path.name}" for path in sorted((ROOT / "tests" / "ops").glob("test_*.py"))]
    groups: Dict[str, Tuple[Sequence[str], str]] = {**TESTS, "others": ([n for n in others if n not in grouped], "")}
    return [
        Stage(f"tests-{name}", "tests", [pytest_command(arguments, *group, PROCESSES)])
        for name, group in groups.items()
        if group[0]
    ]


def sanitizer_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages for each tool and group of tests. Only our kernels are instrumented. Torch does not cache memory, so that
    memory beyond a tensor is unallocated.
    """
    found = []
    ours = ["--kernel-name", "kns=_ZN2fm", "--error-exitcode", "9"]
    for tool in TOOLS:
        for name, (files, selected) in SANITIZED.items():
            where = "cpu" if arguments.device == "cpu" and not arguments.smoke else "cuda"
            command = pytest_command(arguments, files, f"{where} and ({selected})")
            if arguments.device == "cuda":
                command = [sanitizer(), "--tool", tool, *ours, *command]
            variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
            found.append(Stage(f"{tool}-{name}", "sanitizer", [command], variables))
    return found if not arguments.smoke else found[: len(SANITIZED)]


def sanitizer() -> str:
    """Return the path of compute-sanitizer, which some images have in the toolkit's folder only."""
    return shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"


def benchmark_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages that measure kernels over lengths and at MEGA's shapes, and whole layers, in both precisions."""
    out, device = arguments.out, arguments.device
    common = ["--device", device, "--stop-after", "{seconds}"]
    lengths = ["--shape", "8,1024,16", "--lengths", "256,1024,4096,8192,16384,32768,65536", "--repeat", "20"]
    sizes = {"lengths": [*lengths, "--sweeps", "1"], "paper": ["--preset", "paper", "--repeat", "20", "--sweeps", "1"]}
    layers = ["--tokens", "65536", "--repeat", "10", "--sweeps", "1"]
    if arguments.smoke:
        sizes = {"lengths": ["--smoke"], "paper": ["--smoke", "--preset", "paper", "--shrink", "64"]}
        layers = ["--smoke"]
    found = []
    for dtype in ("float32", "bfloat16"):
        measured: List[Tuple[str, str, List[str]]] = [
            *((f"kernels-{name}-{dtype}", "kernels", options) for name, options in sizes.items()),
            (f"layer-{dtype}", "layer", layers),
        ]
        for name, benchmark, options in measured:
            files = ["--rows", str(out / f"{name}.rows.jsonl"), "--json", str(out / f"{name}.json")]
            command = [*BENCHMARK, benchmark, *options, "--dtype", dtype, *common, *files]
            found.append(Stage(name, "benchmarks", [command]))
    return found


def speed_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages that measure what a reader compares, and test the youngest kernels."""
    out = arguments.out
    layers = ["--tokens", "65536", "--lengths", "512,2048,8192", "--repeat", "10", "--sweeps", "1"]
    layers += ["--models", "transformer,mega,mega-chunk,megalodon-chunk"]
    attention = ["--ops", "attention,attention-softmax,attention-laplace", "--shape", "16,128,16", "--sweeps", "1"]
    enwik8 = ["--width", "512", "--layers", "12", "--chunk", "2048", "--symbols", "208", "--lengths", "8192"]
    decoders = "mega,mega-eager,megalodon,megalodon-eager,transformer"  # with and without a CUDA graph
    measured: Dict[str, List[str]] = {
        "layer-bfloat16": ["layer", *layers, "--dtype", "bfloat16"],
        "attention-bfloat16": ["kernels", *attention, "--lengths", "1024,4096", "--dtype", "bfloat16"],
        "decoding": ["decoding", "--width", "512", "--positions", "100,1000", "--models", decoders],
        "ema-float32": ["kernels", "--preset", "paper", "--ops", "ema,ema-bidirectional", "--sweeps", "1"],
        "layer-float32": ["layer", *layers],
        "text": ["lra-speed", "--batch", "25"],
        "enwik8-bfloat16": ["lm-length", *enwik8, "--dtype", "bfloat16"],
    }
    found = []
    for name, options in measured.items():
        if arguments.smoke:  # the program and its dtype
            options = [options[0], "--smoke", *(["--dtype", "bfloat16"] if "bfloat16" in options else [])]
        files = ["--rows", str(out / f"speed-{name}.rows.jsonl"), "--json", str(out / f"speed-{name}.json")]
        common = ["--device", arguments.device, "--stop-after", "{seconds}"]
        found.append(Stage(f"speed-{name}", "speed", [[*BENCHMARK, *options, *common, *files]]))
    tests = Stage("tests-new", "speed", [pytest_command(arguments, *NEW, PROCESSES, every=False)])
    return [*found[:3], tests, *found[3:]]


def row_stages(arguments: argparse.Namespace) -> List[Stage]:
    """Stages that train rows of the papers' tables; each seed continues where it was interrupted."""
    command = ["timeout", "--kill-after", "60", "{seconds}", sys.executable, "-m", "fairseq_mega.lab.reproduce"]
    command += [*ROW, "--out", str(arguments.out / "rows"), "--gpus", str(int(arguments.device == "cuda"))]
    if arguments.data is not None:
        command += ["--data", str(arguments.data.resolve())]
    if arguments.smoke:
        command.append("--smoke")
    return [
        Stage(f"row-seed{seed}", "rows", [[*command, "--seeds", str(seed)]])
        for seed in ([1] if arguments.smoke else range(1, 6))
    ]


def plot_stages(arguments: argparse.Namespace) -> List[Stage]:
    found = []
    for dtype in ("float32", "bfloat16"):
        name = f"kernels-lengths-{dtype}"
        files = ["--json", str(arguments.out / f"{name}.json"), "--output", str(arguments.out / f"{name}.png")]
        command = [sys.executable, "-m", "fairseq_mega.lab.report", "kernels", *files]
        found.append(Stage(f"plot-{dtype}", "plots", [command]))
    return found


def all_stages(arguments: argparse.Namespace) -> List[Stage]:
    parts = {
        "tests": test_stages,
        "benchmarks": benchmark_stages,
        "plots": plot_stages,
        "sanitizer": sanitizer_stages,  # last, because it is the longest
    }
    found = setup_stages(arguments)
    if arguments.stage != "check":
        return found + {"speed": speed_stages, "rows": row_stages}[arguments.stage](arguments)
    for part, stages in parts.items():
        if part not in arguments.skip and not (part == "plots" and "benchmarks" in arguments.skip):
            found += stages(arguments)
    return found


def settings(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Return the settings of results: their sources, the machine and the options."""
    digest = hashlib.sha256()
    for folder in ("fairseq_mega", "tests", "scripts", "setup.py"):
        for path in sorted([ROOT / folder, *(ROOT / folder).rglob("*")]):
            if path.is_file() and path.suffix in (".py", ".h", ".cuh", ".cu", ".cpp", ".sh"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return {"sources": digest.hexdigest()[:16], "device": arguments.device, "smoke": arguments.smoke}


def main() -> None:
    arguments = parse_arguments()
    stages = all_stages(arguments)
    if arguments.list:
        for stage in stages:
            print(f"{stage.name}: {'; '.join(' '.join(command) for command in stage.commands)}")
        return
    os.chdir(ROOT)
    # The site folder is last: packages of the given Python have precedence.
    folders = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(arguments.out / "site")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    os.environ.update(FAIRSEQ_MEGA_NATIVE="require", PYTHONWARNINGS="ignore")
    sys.exit(Check(arguments.out, settings(arguments), arguments.minutes).run(stages))


if __name__ == "__main__":
    main()
