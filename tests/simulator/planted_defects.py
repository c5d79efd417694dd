"""Plants one defect at a time in the CUDA sources and reports how many the checks in the simulator catch.

    python -m tests.simulator.planted_defects --only ema --jobs 2 --json defects.json

Every barrier is dropped in turn, and every place that a pattern of DEFECTS matches is changed: bounds, limits of loops,
signs, offsets. A defect counts as caught when the operator's check fails: under one of several schedules of the threads
(see cuda_sim.h), or under AddressSanitizer, or because it does not end in time. What survives is either something the
checks should see, or something the kernel does not need.
"""

import argparse
import contextlib
import datetime
import json
import os
import queue
import re
import shutil
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from tests.simulator import build
from tests.simulator.check_server import CheckServer

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
    """Sources of an operator and the cases that test them."""

    name: str  # of its folder under csrc and of its cases
    seconds: int = 120  # of processor time, after which its check is taken not to end
    shared: Tuple[str, ...] = ()  # files of ``common`` in which to plant defects, too
    folders: Tuple[str, ...] = ()  # which the operator needs besides its own and ``common``


OPERATORS = {
    name: Operator(name)
    for name in ("activation", "attention", "fft_conv", "gate", "linear", "rotary", "timestep_norm")
}
OPERATORS["norm"] = Operator("norm", folders=("gate",))
OPERATORS["ema"] = Operator("ema", seconds=60)
OPERATORS["query_key"] = Operator("query_key", shared=("common/cuda_rows.cuh", "common/last_block.cuh"))


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
    for folder in ("common", operator.name, *operator.folders):
        shutil.copytree(build.SOURCES / folder, target / folder, dirs_exist_ok=True)
    kernels = (build.SOURCES / operator.name).iterdir()
    own = (str(path.relative_to(build.SOURCES)) for path in kernels if path.suffix in (".cu", ".cuh"))
    return sorted([*own, *operator.shared])


def check(server: CheckServer, library: Path, orders: Tuple[str, ...], folder: Path) -> Optional[str]:
    """Run the operator's check; returns what it said, or None where it found nothing."""
    status = server.check(library, orders, folder / "said")
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "did not end in time"
    if status != 0:
        said = [line for line in (folder / "said").read_text().strip().split("\n") if line]
        sanitizer = [line for line in said if "ERROR: AddressSanitizer" in line]
        return (sanitizer or said or [f"exit status {status}"])[-1][:200]
    return None


class Checks:
    """An operator's checks, without and, where g++ has it, with AddressSanitizer; a context.

    Args:
        operator: what is tested.
        jobs: how many threads may try defects at a time.
    """

    def __init__(self, operator: Operator, jobs: int) -> None:
        sanitizers = (False, True) if build.sanitizer_library() is not None else (False,)
        self.operator, self.stack = operator, contextlib.ExitStack()
        self.idle: queue.Queue[List[CheckServer]] = queue.Queue()
        for _ in range(jobs):
            servers = [CheckServer(operator.name, operator.seconds, sanitize) for sanitize in sanitizers]
            self.idle.put([self.stack.enter_context(server) for server in servers])

    def __enter__(self) -> "Checks":
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def try_defect(self, defect: Optional[Defect]) -> Tuple[str, str]:
        """("caught", how), ("survived", "") or ("not compiled", the compiler's words)."""
        servers = self.idle.get()
        try:
            with tempfile.TemporaryDirectory() as folder:
                return self.try_with(servers, defect, Path(folder))
        finally:
            self.idle.put(servers)

    def try_with(self, servers: List[CheckServer], defect: Optional[Defect], folder: Path) -> Tuple[str, str]:
        sources = folder / "csrc"
        copy_sources(self.operator, sources)
        if defect is not None:
            (sources / defect.file).write_text(defect.text)
        for server, sanitize, orders in zip(servers, (False, True), (ORDERS, ORDERS[:1])):
            try:
                library = build.build(sources, sanitize=sanitize)
            except RuntimeError as error:
                found = [line for line in str(error).split("\n") if "error" in line]
                return "not compiled", (found or [""])[0][-200:]
            try:
                said = check(server, library, orders, folder)
            finally:
                if defect is not None:
                    library.unlink()
            if said is not None:
                return "caught", ("sanitizer: " if sanitize else "") + said
        return "survived", ""


def try_all(operator: Operator, defects: List[Defect], jobs: int) -> Iterator[Dict[str, object]]:
    """Try each defect; yields what became of them, first done first."""
    started = time.monotonic()
    with Checks(operator, jobs) as checks, ThreadPoolExecutor(jobs) as pool:
        state, said = checks.try_defect(None)
        if state != "survived":
            raise RuntimeError(f"{operator.name}: the check fails without a defect: {said}")
        waiting = {pool.submit(checks.try_defect, defect): defect for defect in defects}
        for number, future in enumerate(as_completed(waiting), 1):
            defect, (state, said) = waiting[future], future.result()
            minutes = (time.monotonic() - started) / 60
            print(f"{number}/{len(defects)} {minutes:5.1f} min  {state:12} {defect.title()}  {said[:80]}", flush=True)
            result = {"operator": operator.name, **defect._asdict(), "result": state, "how": said}
            del result["text"]
            yield result


def report(results: List[Dict[str, object]]) -> None:
    """Print the share that was caught per operator and kind of defect, and what survived."""
    for kind in sorted({(str(r["operator"]), str(r["name"])) for r in results}):
        some = [r["result"] for r in results if (r["operator"], r["name"]) == kind and r["result"] != "not compiled"]
        print(f"{kind[0]:14} {kind[1]:22} {some.count('caught'):3} of {len(some):3} noticed")
    valid = [r for r in results if r["result"] != "not compiled"]
    caught = sum(r["result"] == "caught" for r in valid)
    print(f"noticed {caught} of {len(valid)} ({len(results) - len(valid)} did not compile)")
    for r in valid:
        if r["result"] == "survived":
            print(f"survived: {r['file']}:{r['line']}  {r['name']}: {r['before']}")


def summarise(results: List[Dict[str, object]], planted: Dict[str, int], path: Path) -> None:
    """Enter the shares of operators in a JSON file, beside those that are there.

    Args:
        results: what became of the defects that were tried.
        planted: how many there are of each operator, tried or not.
        path: of the file.
    """
    summary = json.loads(path.read_text()) if path.exists() else {}
    for operator, total in planted.items():
        valid = [r for r in results if r["operator"] == operator and r["result"] != "not compiled"]
        survivors = [r for r in valid if r["result"] == "survived"]
        summary[operator] = {
            "noticed": len(valid) - len(survivors),
            "tried": len(valid),
            "not compiled": sum(r["operator"] == operator and r["result"] == "not compiled" for r in results),
            "planted": total,
            "command": f"python -m tests.simulator.planted_defects --only {operator}",
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "machine": f"{os.cpu_count()}-core CPU",
            "survivors": [f"{r['file']}:{r['line']}  {r['name']}: {r['before']}" for r in survivors],
        }
    path.write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=sorted(OPERATORS), action="append", help="operator to test (default: all)")
    parser.add_argument("--match", default="", help="only defects whose title contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="defects tried side by side")
    parser.add_argument("--json", type=Path, help="file for the results; what stands there already is not tried again")
    parser.add_argument("--summary", type=Path, help="file with the share of each operator, to be updated")
    parser.add_argument("--list", action="store_true", help="only print the defects")
    arguments = parser.parse_args()
    results: List[Dict[str, object]] = []
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    done = {tuple(result[field] for field in ("file", "line", "column", "name", "before")) for result in results}
    planted: Dict[str, int] = {}
    for name in arguments.only or sorted(OPERATORS):
        operator = OPERATORS[name]
        with tempfile.TemporaryDirectory() as folder:
            files = copy_sources(operator, Path(folder))
        found = [d for path in files for d in defects_in(path, (build.SOURCES / path).read_text())]
        planted[name] = len(found)
        found = [defect for defect in found if arguments.match in defect.title() and defect[:5] not in done]
        if arguments.list:
            print("\n".join(defect.title() for defect in found))
            continue
        for result in try_all(operator, found, arguments.jobs) if found else ():
            results.append(result)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    if not arguments.list:
        report(results)
    if arguments.summary:
        summarise(results, planted, arguments.summary)


if __name__ == "__main__":
    main()
