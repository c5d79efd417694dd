#pragma once
// Layer norm and RMS norm of rows, in one pass over memory each way:
//
//   y = n (weight + origin) + bias,   n = (x - m) r,   r = 1 / sqrt(mean((x - m)^2) + eps)
//
// where m is the mean of the row (layer norm) or zero (RMS norm). Backward, with h = grad_y (weight + origin):
//
//   grad_x = r (h - mean(h) - n mean(h n))          without mean(h) where m is zero
//
// Only x is kept: r and m are computed again. All are (rows, width); the rows of x may lie apart. Computed in float32.
//
// On a GPU x may be the result of the update gate (gate.h), or a sum with the residual, in the same pass: nothing of it
// is kept but the gate's inputs.
#include "gate/gate.h"

namespace fm {

struct NormShape : RowParts {              // whose type is that of x and its gradient
  DType result_dtype = DType::kFloat32;  // of y and its gradient: the same, or bfloat16 where x is float32
  bool centred = true;                   // whether the mean is taken off
  float eps = 0.f, origin = 0.f;
  DType gate_dtype = DType::kFloat32;  // of the gate's inputs but the residual, which has the type of x
};

constexpr int64_t kMostNormColumns = 4096;  // on a GPU, where threads hold a row

// On a GPU, rows of a part of the backward pass: at most 256 parts, as one block adds up their sums.
constexpr int64_t norm_part_rows(int64_t rows) { return 8 * std::max<int64_t>(1, (rows + 2047) / 2048); }
constexpr int64_t norm_parts(int64_t rows) { return (rows + norm_part_rows(rows) - 1) / norm_part_rows(rows); }

struct NormInputs {
  const void* x;
  int64_t stride;             // of x, from row to row, in elements
  const float *weight, *bias;  // (width) or null
  GateInputs gate = {};        // with a candidate where its result is x, whose data are null then
};

// On a GPU; contiguous, or null where absent.
struct NormResults {
  void *x = nullptr, *y = nullptr;  // x: the gate's result; both of its type
  void* narrow = nullptr;           // y in bfloat16
};

struct NormGradients {
  const void* y;
  void* x;               // or of the gate's residual
  RowSums coefficients;  // two a column: of weight, then of bias; third of the gate's bias if x is the gate's result
  // On a GPU; y, too, may be null.
  const void *of_x = nullptr, *narrow = nullptr;   // those of the other results
  void *update = nullptr, *candidate = nullptr;  // of the gate's inputs
};

void norm_forward_cpu(const NormShape&, const NormInputs&, void* y, int64_t part);
void norm_backward_cpu(const NormShape&, const NormInputs&, const NormGradients&, int64_t part);
int norm_forward_cuda(const NormShape&, const NormInputs&, const NormResults&, void* stream);
int norm_backward_cuda(const NormShape&, const NormInputs&, const NormGradients&, void* stream);

}  // namespace fm
