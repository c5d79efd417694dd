"""Instructions of CUDA kernels are counted from their machine code."""

import pytest

from tests.simulator import instructions

TOY = """
__global__ void __launch_bounds__(256, 8) toy(float* y, int rows, int columns) {
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    float v = y[row], w = v;
#pragma unroll 1
    for (int i = 0; i < columns; ++i) {
#pragma unroll
      for (int j = 0; j < 24; ++j) asm volatile("fma.rn.f32 %0, %0, %0, %1;" : "+f"(v) : "f"(w));
    }
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));
    y[row] = v;
  }
}
"""


@pytest.mark.skipif(instructions.tool("nvcc") is None, reason="nvcc is not installed: set CUDA_HOME")
@pytest.mark.skipif(instructions.tool("cuobjdump") is None, reason="needs cuobjdump, of CUDA's toolkit or of triton")
def test_loops_of_a_toy_kernel(tmp_path):
    source = tmp_path / "toy.cu"
    source.write_text(TOY)
    (kernel,) = instructions.kernels_of(source)
    assert "toy" in kernel.name and 0 < kernel.registers <= 32 and kernel.spilled == 0
    outer, inner = kernel.loops
    assert outer.instructions["MUFU"] == outer.instructions["STG"] == 1 and outer.instructions["FFMA"] == 0
    assert inner.instructions["FFMA"] == 24 and inner.instructions["MUFU"] == 0
    # A counter, its comparison and the branch beside the products.
    assert 27 <= inner.instructions.total() <= 29 < kernel.instructions
