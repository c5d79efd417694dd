"""Builds the CUDA kernels and their bindings as a library that runs on the CPU (see cuda_sim.h)."""

import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Optional

import torch

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SOURCES = REPOSITORY / "fairseq_mega" / "csrc"
NAMESPACE = "fairseq_mega_sim"
CUDA_HOMES = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")


def cuda_home() -> Optional[Path]:
    """Folder of the CUDA toolkit, whose headers the simulator needs; or None."""
    for home in CUDA_HOMES:
        if home and (Path(home) / "include" / "cuda_runtime.h").is_file():
            return Path(home)
    return None


def build(sources: Path = SOURCES, sanitize: bool = False, optimize: str = "-O1") -> Path:
    """Compile all of ``cuda/`` and ``bindings/`` under ``sources``; returns the library (built before: at once).

    Args:
        sources: a copy of fairseq_mega/csrc.
        sanitize: with AddressSanitizer, to be run with libasan preloaded.
        optimize: the compiler's level.

    Raises:
        RuntimeError: without the CUDA toolkit's headers, or where the compiler fails, with its messages.
    """
    home = cuda_home()
    if home is None:
        raise RuntimeError("the simulator needs the CUDA toolkit's headers: set CUDA_HOME")
    torch_root = Path(torch.__file__).parent
    flags: List[str] = [
        *("-std=c++20", optimize, "-g", "-fPIC", "-fopenmp-simd", "-Wno-psabi", "-Wno-unknown-pragmas"),
        *("-DFM_CUDA_SIM", "-DFM_WITH_CUDA=1", f"-DFM_NAMESPACE={NAMESPACE}"),
        "-DTORCH_TARGET_VERSION=0x020a000000000000",
        *(["-fsanitize=address"] if sanitize else []),
    ]
    digest = hashlib.sha256(" ".join([*flags, torch.__version__]).encode())
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    for path in [*files, HERE / "cuda_sim.h"]:
        digest.update(path.name.encode() + path.read_bytes())
    folder = REPOSITORY / "build" / f"simulator-{digest.hexdigest()[:16]}"
    library = folder / "libsimulator.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{sources}", f"-I{home / 'include'}", "-isystem", str(torch_root / "include")]

    def compile_one(path: Path) -> str:
        target = folder / (path.name + ".o")
        kernel = path.suffix == ".cu"
        main = ["-DFM_CUDA_SIM_MAIN"] if kernel and path == kernels[0] else []
        simulator = ["-include", str(HERE / "cuda_sim.h")] if kernel else []
        run(["g++", *flags, *main, *includes, *simulator, "-x", "c++", "-c", str(path), "-o", str(target)])
        return str(target)

    kernels = [path for path in files if path.suffix == ".cu"]
    bindings = [path for path in files if path.suffix == ".cpp" and path.parent.name == "bindings"]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_one, [*kernels, *bindings]))
    partial = folder / f"partial-{os.getpid()}.so"
    torch_libraries = [f"-L{torch_root / 'lib'}", "-ltorch_cpu", "-ldl"]
    run(["g++", "-shared", *(["-fsanitize=address"] if sanitize else []), "-o", str(partial), *objects, *torch_libraries])
    partial.replace(library)
    return library


def run(command: List[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
