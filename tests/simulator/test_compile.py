"""Every CUDA source compiles for the GPUs we build for without a warning and without spilling a register."""

import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulator import build

KERNELS = sorted(build.SOURCES.glob("*/*.cu"))
NVCC = (build.cuda_home() or Path("/")) / "bin" / "nvcc"

pytestmark = pytest.mark.skipif(
    not NVCC.exists() and shutil.which("nvcc") is None, reason="nvcc is not installed: set CUDA_HOME"
)


COMPILER = [
    *(str(NVCC) if NVCC.exists() else "nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr"),
    *("-Xptxas", "-v,-warn-spills", "-Xcompiler", "-Wall", "-Werror", "all-warnings"),
    "-gencode=arch=compute_80,code=[sm_80,sm_90]",  # as setup.py has it
    "-DFM_WITH_CUDA=1",
]


def compile_kernel(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    command = [*COMPILER, f"-I{build.SOURCES}", "-c", str(source), "-o", str(target)]
    return subprocess.run(command, capture_output=True, text=True)


@functools.lru_cache(maxsize=None)
def compiler_and_headers() -> str:
    """Return all that a kernel's object depends on beside its source."""
    headers = sorted(path for path in build.SOURCES.rglob("*") if path.suffix in (".h", ".cuh"))
    return build.run([COMPILER[0], "--version"]) + " ".join(COMPILER) + "".join(path.read_text() for path in headers)


@pytest.mark.slow
@pytest.mark.parametrize("source", KERNELS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_compiles_without_warnings_and_spills(source, tmp_path):
    """Objects are kept, as those of the simulator are: only what has changed is compiled again."""
    digest = hashlib.sha256((compiler_and_headers() + source.read_text()).encode()).hexdigest()[:16]
    kept = build.BUILD / "cuda-objects" / f"{digest}.o"
    if not kept.exists():
        done = compile_kernel(source, tmp_path / "kernel.o")
        assert done.returncode == 0, done.stderr[-4000:]
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(tmp_path / "kernel.o", kept)


@pytest.mark.parametrize("fault", ["", "warning", "spill"])
def test_the_check_sees_faults(fault, tmp_path):
    body = {
        "": "y[threadIdx.x] = 1.f;",
        "warning": "int unused = 1; y[threadIdx.x] = 1.f;",
        # more values alive at once than a thread of a full block has registers for
        "spill": """
          float v[200];
          #pragma unroll
          for (int i = 0; i < 200; ++i) v[i] = y[i];
          #pragma unroll
          for (int i = 0; i < 200; ++i) y[i] = v[199 - i] * v[(7 * i) % 200];
        """,
    }[fault]
    source = tmp_path / "kernel.cu"
    source.write_text(f"__global__ void __launch_bounds__(1024, 2) kernel(float* y) {{ {body} }}\n")
    done = compile_kernel(source, tmp_path / "kernel.o")
    assert (done.returncode == 0) == (fault == ""), done.stderr[-2000:]
