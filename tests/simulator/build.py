"""Builds the CUDA kernels and their bindings as a library that runs on the CPU (see cuda_sim.h)."""

import contextlib
import fcntl
import functools
import hashlib
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import torch

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SOURCES = REPOSITORY / "fairseq_mega" / "csrc"
# A checkout that nobody may write to, or another user's, builds outside.
OUTSIDE = Path(tempfile.gettempdir()) / f"fairseq_mega-{os.getuid()}"
BUILD = (REPOSITORY if os.access(REPOSITORY, os.W_OK) else OUTSIDE) / "build"
NAMESPACE = "fairseq_mega_sim"
CUDA_HOMES = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")


def cuda_home() -> Optional[Path]:
    """Folder of the CUDA toolkit, whose headers the simulator needs; or None."""
    for home in CUDA_HOMES:
        if home and (Path(home) / "include" / "cuda_runtime.h").is_file():
            return Path(home)
    return None


def build(sources: Path = SOURCES, sanitize: bool = False, optimize: str = "-O1") -> Path:
    """Compile the CUDA kernels and the bindings under ``sources``; returns the library (built before: at once).

    Object files are kept by what the compiler read, so that after a change only what it touches is compiled. Of several
    processes that want the same library one builds it, and the others wait.

    Args:
        sources: a copy of fairseq_mega/csrc, or of some of its operators.
        sanitize: with AddressSanitizer, to be run in :func:`sanitizer_environment`.
        optimize: the compiler's level.

    Raises:
        RuntimeError: without the CUDA toolkit's headers, or where the compiler fails, with its messages.
    """
    home = cuda_home()
    if home is None:
        raise RuntimeError("the simulator needs the CUDA toolkit's headers: set CUDA_HOME")
    torch_root = Path(torch.__file__).parent
    flags: List[str] = [
        *("-std=c++20", optimize, "-g1", "-fPIC", "-fvisibility=hidden", "-fopenmp-simd"),
        *("-Wall", "-Wno-psabi", "-Wno-unknown-pragmas"),
        *("-DFM_CUDA_SIM", "-DFM_SIM_STREAM=0x5157", "-DFM_WITH_CUDA=1", f"-DFM_NAMESPACE={NAMESPACE}"),
        "-DTORCH_TARGET_VERSION=0x020a000000000000",
        *(["-fsanitize=address"] if sanitize else []),
    ]
    digest = hashlib.sha256(" ".join([*flags, torch.__version__]).encode())
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    for path in [*files, HERE / "cuda_sim.h"]:
        digest.update(path.name.encode() + path.read_bytes())
    library = BUILD / f"simulator-{digest.hexdigest()[:16]}.so"
    with one_at_a_time(library):
        if not library.exists():
            make(library, flags, sources, files, home, torch_root)
    return library


def make(library: Path, flags: List[str], sources: Path, files: List[Path], cuda: Path, torch_root: Path) -> None:
    """Compile what of ``files`` has changed, and link the library."""
    kept = BUILD / "simulator-objects"
    kept.mkdir(parents=True, exist_ok=True)
    system = ["-isystem", str(cuda / "include"), "-isystem", str(torch_root / "include")]
    simulator_header = precompiled(HERE / "cuda_sim.h", ["g++", *flags, *system], kept)

    def compile_one(path: Path) -> str:
        kernel = path.suffix == ".cu"
        main = ["-DFM_CUDA_SIM_MAIN"] if kernel and path == kernels[0] else []
        simulator = ["-include", str(simulator_header)] if kernel else []
        command = ["g++", *flags, *main, f"-I{sources}", *system]
        if kernel:  # what it reads, but for the simulator, whose file name says what it holds
            read = run([*command, "-include", str(HERE / "cuda_sim.h"), "-x", "c++", str(path), "-E", "-P", "-o", "-"])
        else:  # torch's headers are long, and always the same
            read = path.read_text() + "".join(header.read_text() for header in files if header.suffix == ".h")
        command += [*simulator, "-x", "c++", str(path)]
        target = kept / (hashlib.sha256((" ".join([*flags, *main]) + read).encode()).hexdigest()[:16] + ".o")
        if not target.exists():
            partial = target.with_name(f"{target.name}-{os.getpid()}-{path.stem}")
            run([*command, "-c", "-o", str(partial)])
            partial.replace(target)
        return str(target)

    kernels = [path for path in files if path.suffix == ".cu"]
    bindings = [path for path in files if path.suffix == ".cpp" and not path.name.startswith("cpu")]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_one, [*kernels, *bindings]))
    partial = library.with_name(f"{library.name}-{os.getpid()}")
    torch_libraries = [f"-L{torch_root / 'lib'}", "-ltorch_cpu", "-ldl"]
    linker = ["g++", "-shared", *(flag for flag in flags if flag.startswith("-fsanitize"))]
    run([*linker, "-o", str(partial), *objects, *torch_libraries])
    partial.replace(library)


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold back all other processes and threads that are about to make this file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:  # who waits for it has it open already
            lock.unlink(missing_ok=True)


def precompiled(header: Path, compiler: List[str], folder: Path) -> Path:
    """A copy of the header with a compiled form beside it, which g++ takes where the flags are the same."""
    name = hashlib.sha256(" ".join(compiler).encode() + header.read_bytes()).hexdigest()[:16]
    copy = folder / name / header.name
    compiled = copy.with_name(f"{copy.name}.gch")
    with one_at_a_time(compiled):
        if not compiled.exists():
            copy.write_bytes(header.read_bytes())
            partial = copy.with_name(f"partial-{os.getpid()}")
            run([*compiler, "-w", "-x", "c++-header", str(copy), "-o", str(partial)])
            partial.replace(compiled)
    return copy


def run(command: List[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    return done.stdout


@functools.lru_cache(maxsize=None)
def sanitizer_library() -> Optional[str]:
    """g++'s libasan, or None where it is not installed."""
    found = run(["g++", "-print-file-name=libasan.so"]).strip()
    return found if Path(found).is_absolute() else None


def sanitizer_environment() -> Dict[str, str]:
    """Variables for a Python process that loads a library built with ``sanitize=True``."""
    return {
        "LD_PRELOAD": sanitizer_library() or "",
        # Fibers run on stacks that the sanitizer does not know; Python never frees all of its memory.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:exitcode=99",
    }
