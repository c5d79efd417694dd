"""Counts the instructions of CUDA kernels for compute capability 9.0, from their machine code; nothing runs.

    python -m tests.simulator.instructions timestep_norm/cuda.cu --kernel forward_kernelILi4Ef

For each kernel: registers, bytes spilled, instructions, and every loop, the code from a branch's target to the branch
back to it: its address, its instructions without those of loops inside, and the commonest. A count per output is these
times how often a warp runs a loop, over the outputs of the warp. A rare path within a loop is counted as well.
Needs nvcc, and cuobjdump, of the CUDA toolkit or of the package triton.
"""

import argparse
import collections
import importlib.util
import re
import shutil
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from tests.simulator import build

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)(.*?);", re.MULTILINE)
RESOURCES = re.compile(r"Function properties for (\S+)\n.*?(\d+) bytes spill stores, (\d+).*?\n.*?Used (\d+) registers")


class Loop(NamedTuple):
    start: int
    instructions: "collections.Counter[str]"


class Kernel(NamedTuple):
    name: str
    registers: int
    spilled: int  # bytes
    instructions: int
    loops: List[Loop]


def tool(name: str) -> Optional[str]:
    """Return the path of a program of the CUDA toolkit, or None."""
    triton = importlib.util.find_spec("triton")
    homes = [build.cuda_home() or Path("/"), *(map(Path, triton.submodule_search_locations or ()) if triton else ())]
    places = (home / folder / name for home in homes for folder in ("bin", "backends/nvidia/bin"))
    return next((str(place) for place in places if place.is_file()), shutil.which(name))


def loops_of(code: List[Tuple[int, str, str]]) -> Iterator[Loop]:
    """Find the loops of a kernel's instructions (address, name, operands)."""
    ends: Dict[int, int] = {}
    for address, name, operands in code:
        target = re.search(r"0x([0-9a-f]+)\s*$", operands)
        if name.startswith("BRA") and target and int(target[1], 16) < address:  # a kernel ends by a branch to itself
            ends[int(target[1], 16)] = address
    for loop in sorted(ends.items()):
        inside = [other for other in ends.items() if other != loop and loop[0] <= other[0] and other[1] <= loop[1]]
        own = [name for at, name, _ in code if loop[0] <= at <= loop[1] and not any(a <= at <= b for a, b in inside)]
        yield Loop(loop[0], collections.Counter(name.split(".")[0] for name in own))


def kernels_of(source: Path) -> List[Kernel]:
    """Compile a source file and count the instructions of its kernels."""
    nvcc, cuobjdump = tool("nvcc"), tool("cuobjdump")
    if nvcc is None or cuobjdump is None:
        raise RuntimeError("needs nvcc, and cuobjdump of the CUDA toolkit or of the package triton")
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-arch=sm_90", "-DFM_WITH_CUDA=1", "-cubin"]
        command += ["-Xptxas", "-v", f"-I{build.SOURCES}", "-o", f"{folder}/code", str(source)]
        messages = build.run(["sh", "-c", 'exec "$@" 2>&1', "sh", *command])
        listing = build.run([cuobjdump, "-sass", f"{folder}/code"])
    resources = {name: (int(used), int(out) + int(back)) for name, out, back, used in RESOURCES.findall(messages)}
    found = []
    for part in listing.split("Function : ")[1:]:
        code = [(int(address, 16), name, operands) for address, name, operands in INSTRUCTION.findall(part)]
        name = part.split(None, 1)[0]
        found.append(Kernel(name, *resources[name], len(code), list(loops_of(code))))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a file, of fairseq_mega/csrc if its path is not absolute")
    parser.add_argument("--kernel", default="", help="pattern in the kernel's mangled name (default: all)")
    arguments = parser.parse_args()
    for kernel in kernels_of(build.SOURCES / arguments.source):
        if re.search(arguments.kernel, kernel.name):
            print(kernel.name)
            print(f"  {kernel.registers} registers, {kernel.spilled} bytes spilled, {kernel.instructions} instructions")
            for loop in kernel.loops:
                most = ", ".join(f"{count} {name}" for name, count in loop.instructions.most_common(6))
                print(f"  loop at {loop.start:#06x}: {loop.instructions.total()} instructions ({most})")
