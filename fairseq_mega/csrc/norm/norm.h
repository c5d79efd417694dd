#pragma once
// Layer norm and RMS norm of rows, in one pass over memory each way:
//
//   y = n weight + bias,   n = (x - m) r,   r = 1 / sqrt(mean((x - m)^2) + eps)
//
// where m is the mean of the row (layer norm) or zero (RMS norm). Backward, with h = grad_y weight:
//
//   grad_x = r (h - mean(h) - n mean(h n))          without mean(h) where m is zero
//
// Only x is kept: r and m are computed again. All are (rows, width); the rows of x may lie apart. Computed in float32;
// sums over rows are written per part.
#include "common/rows.h"

namespace fm {

struct NormShape : RowParts {              // whose type is that of x and its gradient
  DType result_dtype = DType::kFloat32;  // of y and its gradient: the same, or bfloat16 where x is float32
  bool centred = true;                   // whether the mean is taken off
  float eps = 0.f;
};

struct NormInputs {
  const void* x;
  int64_t stride;             // of x, from row to row, in elements
  const float *weight, *bias;  // (width) or null
};

struct NormGradients {
  const void* y;
  void* x;
  float* coefficients;  // (parts, 2, width): of weight, then of bias
};

void norm_forward_cpu(const NormShape&, const NormInputs&, void* y, int64_t part);
void norm_backward_cpu(const NormShape&, const NormInputs&, const NormGradients&, int64_t part);

}  // namespace fm
