"""Plants one defect at a time in the CUDA sources and reports how many the checks in the simulator catch.

    python -m tests.simulator.planted_defects --only ema --jobs 2 --json defects.json

Every barrier is dropped in turn, and every place that a pattern of DEFECTS matches is changed: bounds, limits of loops,
signs, offsets. A defect counts as caught when the operator's check fails: under one of several schedules of the threads
(see cuda_sim.h), or under AddressSanitizer, or because it does not end in time. What survives is either something the
checks should see, or something the kernel does not need.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from tests.simulator import build

ORDERS = ("0", "1", "2", "3", "4", "5", "6")
NO_DEFECT = re.compile(r"^\s*(//|#|static_assert|using|template)|FM_LAUNCH|kInvalid")

# (name, pattern, what it becomes): one defect for every match in a line of code
DEFECTS: Tuple[Tuple[str, str, str], ...] = (
    ("barrier dropped", r"__syncthreads\(\);", ""),
    ("warp barrier dropped", r"__syncwarp\([^)]*\);", ""),
    ("< becomes <=", r" < ", " <= "),
    ("<= becomes <", r" <= ", " < "),
    ("> becomes >=", r" > ", " >= "),
    (">= becomes >", r" >= ", " > "),
    ("- 1 dropped", r" - 1\b(?!u)", ""),
    ("+ 1 dropped", r" \+ 1\b", ""),
    ("loop ends early", r"(\bfor \(.*?; \w+ <) ([^;]+);", r"\1 \2 - 1;"),
    ("modulo dropped", r" % \w[\w.]*", ""),
)


class Operator(NamedTuple):
    """Which sources are tested by which cases."""

    name: str  # of its folder under csrc, which with ``common`` is enough for a library, and of its cases
    seconds: int = 120  # of processor time, after which its check is taken not to end


OPERATORS = {name: Operator(name) for name in ("attention", "fft_conv", "gate", "timestep_norm")}
OPERATORS["ema"] = Operator("ema", seconds=60)


class Defect(NamedTuple):
    file: str  # under csrc
    line: int
    column: int
    name: str
    before: str
    text: str  # of the whole file, with the defect

    def title(self) -> str:
        return f"{self.file}:{self.line}:{self.column}  {self.name:22}  {self.before}"


def code_part(line: str) -> str:
    return line.split("//")[0]


def defects_in(path: str, text: str) -> Iterator[Defect]:
    """Every defect of DEFECTS in a source file."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if NO_DEFECT.search(line):
            continue
        for name, pattern, replacement in DEFECTS:
            for match in re.finditer(pattern, code_part(line)):
                changed = line[: match.start()] + match.expand(replacement) + line[match.end() :]
                text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
                yield Defect(path, number + 1, match.start(), name, line.strip(), text)


def copy_sources(operator: Operator, target: Path) -> List[str]:
    """Copy what the operator's library needs; returns the files in which to plant defects."""
    for folder in ("common", operator.name):
        shutil.copytree(build.SOURCES / folder, target / folder, dirs_exist_ok=True)
    kernels = (build.SOURCES / operator.name).iterdir()
    return sorted(str(path.relative_to(build.SOURCES)) for path in kernels if path.suffix in (".cu", ".cuh"))


def check(operator: Operator, library: Path, orders: Tuple[str, ...], sanitize: bool) -> Optional[str]:
    """Run the operator's check; returns what it said, or None where it found nothing."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.simulator.check_operators", operator.name, str(library), *orders],
        cwd=build.REPOSITORY,
        env={**os.environ, **(build.sanitizer_environment() if sanitize else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # Not by the clock: on a busy machine that would end checks that only wait for their turn.
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (operator.seconds, operator.seconds))
    output, _ = process.communicate()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "did not end in time"
    if process.returncode != 0:
        said = [line for line in output.strip().split("\n") if line]
        sanitizer = [line for line in said if "ERROR: AddressSanitizer" in line]
        return (sanitizer or said or [f"exit status {process.returncode}"])[-1][:200]
    return None


def try_defect(operator: Operator, defect: Optional[Defect]) -> Tuple[str, str]:
    """("caught", how), ("survived", "") or ("not compiled", the compiler's words)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_sources(operator, folder)
        if defect is not None:
            (folder / defect.file).write_text(defect.text)
        for sanitize, orders in ((False, ORDERS), (True, ORDERS[:1])):
            if sanitize and build.sanitizer_library() is None:
                continue
            try:
                library = build.build(folder, sanitize=sanitize)
            except RuntimeError as error:
                found = [line for line in str(error).split("\n") if "error" in line]
                return "not compiled", (found or [""])[0][-200:]
            try:
                said = check(operator, library, orders, sanitize)
            finally:
                if defect is not None:
                    library.unlink()
            if said is not None:
                return "caught", ("sanitizer: " if sanitize else "") + said
    return "survived", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted(OPERATORS), action="append", help="operator to test (default: all)")
    parser.add_argument("--match", default="", help="only defects whose title contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="defects tried side by side")
    parser.add_argument("--json", type=Path, help="file for the results; what stands there already is not tried again")
    parser.add_argument("--list", action="store_true", help="only print the defects")
    arguments = parser.parse_args()
    results: List[Dict[str, object]] = []
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    done = {tuple(result[field] for field in ("file", "line", "column", "name", "before")) for result in results}
    for name in arguments.only or sorted(OPERATORS):
        operator = OPERATORS[name]
        with tempfile.TemporaryDirectory() as folder:
            files = copy_sources(operator, Path(folder))
        found = [d for path in files for d in defects_in(path, (build.SOURCES / path).read_text())]
        found = [defect for defect in found if arguments.match in defect.title() and defect[:5] not in done]
        if arguments.list:
            print("\n".join(defect.title() for defect in found))
            continue
        state, said = try_defect(operator, None)
        if state != "survived":
            print(f"{name}: the check fails without a defect: {said}", file=sys.stderr)
            return 1
        started = time.monotonic()
        with ThreadPoolExecutor(arguments.jobs) as pool:
            waiting = {pool.submit(try_defect, operator, defect): defect for defect in found}
            for number, future in enumerate(as_completed(waiting), 1):
                defect, (state, said) = waiting[future], future.result()
                results.append({"operator": name, **defect._asdict(), "result": state, "how": said})
                del results[-1]["text"]
                minutes = (time.monotonic() - started) / 60
                print(f"{number}/{len(found)} {minutes:5.1f} min  {state:12} {defect.title()}  {said[:80]}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    report(results)
    return 0


def report(results: List[Dict[str, object]]) -> None:
    """Print the share that was caught per operator and kind of defect, and what survived."""
    for kind in sorted({(str(r["operator"]), str(r["name"])) for r in results}):
        some = [r["result"] for r in results if (r["operator"], r["name"]) == kind and r["result"] != "not compiled"]
        print(f"{kind[0]:14} {kind[1]:22} {some.count('caught'):3} of {len(some):3} caught")
    valid = [r for r in results if r["result"] != "not compiled"]
    caught = sum(r["result"] == "caught" for r in valid)
    print(f"caught {caught} of {len(valid)} ({len(results) - len(valid)} did not compile)")
    for r in valid:
        if r["result"] == "survived":
            print(f"survived: {r['file']}:{r['line']}  {r['name']}: {r['before']}")


if __name__ == "__main__":
    sys.exit(main())
