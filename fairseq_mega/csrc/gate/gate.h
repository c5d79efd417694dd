#pragma once
// The update gate of MEGA's sub-layers in one pass over memory:
//
//   out = x + sigmoid(u) (c - x)      x residual, u logits of the update gate
//   c = candidate, or SiLU(candidate + addend) where there is an addend; of it dropout may drop elements
//
// On a GPU a bias per column may be added to the candidate; and without u it is a sum with the residual: out = x + c,
// where c = candidate + addend has no SiLU.
//
// All are (rows, width); the rows of inputs may lie apart (u and candidate are parts of one projection's output).
#include "common/random.h"
#include "common/rows.h"

namespace fm {

struct GateShape : RowParts {               // whose type is that of u, candidate and addend
  DType residual_dtype = DType::kFloat32;  // of x and out: the same, or float32
};

struct GateInputs {
  const void *x, *update, *candidate, *addend;  // update or addend, or both, may be null
  int64_t x_stride, update_stride, candidate_stride, addend_stride;  // from row to row, in elements
  Dropping dropping;
  const float* bias = nullptr;  // (width), or null
};

struct GateGradients {  // contiguous; each has the type of what it is a gradient of
  const void* out;
  void *x, *update, *candidate;  // the gradient of the addend is that of the candidate; x and update null without u
  RowSums bias;  // where there is one
};

void gate_forward_cpu(const GateShape&, const GateInputs&, void* out, int64_t begin, int64_t end);
void gate_backward_cpu(const GateShape&, const GateInputs&, const GateGradients&, int64_t begin, int64_t end);
int gate_forward_cuda(const GateShape&, const GateInputs&, void* out, void* stream);
int gate_backward_cuda(const GateShape&, const GateInputs&, const GateGradients&, void* stream);

}  // namespace fm
