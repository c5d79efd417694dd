#pragma once
// The SiLU with what stands beside it, in one pass over memory: out = f SiLU(x + omega s), with f a factor and s a skip
// with a weight per column. On a GPU dropout may drop elements of the result, x + omega s may stay without a SiLU, and a
// bias per column may be added to it.
//
// All tensors are (rows, width) and of one type, omega and bias float32; the rows of inputs may lie apart, the gradient of the
// output and most results are contiguous.
#include "common/random.h"
#include "common/rows.h"

namespace fm {

struct SiluInputs {
  RowsIn x, factor, skip;  // factor or skip, or both, may be absent
  const float* omega;      // (width), where there is a skip
  const float* bias = nullptr;  // (width), or null
  bool activated = true;
  Dropping dropping;
};

struct SiluGradients {
  const void* out;
  void *x, *factor, *skip;
  int64_t stride;  // of these three, whose rows may lie apart
  RowSums columns;  // two a column, where there is a skip or a bias: of omega, then of the bias
};

void silu_forward_cpu(const RowParts&, const SiluInputs&, void* out, int64_t part);
void silu_backward_cpu(const RowParts&, const SiluInputs&, const SiluGradients&, int64_t part);
int silu_forward_cuda(const RowParts&, const SiluInputs&, void* out, void* stream);
int silu_backward_cuda(const RowParts&, const SiluInputs&, const SiluGradients&, void* stream);

}  // namespace fm
