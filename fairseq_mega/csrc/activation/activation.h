#pragma once
// What MEGA's sub-layers do to single elements between their products, in one pass over memory each:
//
//   silu:       out = f SiLU(x + omega s)                         f a factor, s a skip with a weight per column
//   query_key:  s = SiLU(x), query = kappa_0 s + mu_0, key = kappa_1 s + mu_1
//   dropout:    out = 0 or x / (1 - p), as a hash of (seed, row, column) has it; its gradient is that of the gradient
//
// All tensors are (rows, width) and of one type, what a column has (omega, kappa, mu) float32; the rows of inputs may
// lie apart, the gradients of outputs and most results are contiguous. Sums over rows are written per part of kPartRows.
#include <algorithm>

#include "common/common.h"
#include "common/random.h"

namespace fm {

constexpr int64_t kPartRows = 256;

struct ActivationShape {
  int64_t rows = 0, width = 0;
  DType dtype = DType::kFloat32;

  int64_t parts() const { return (rows + kPartRows - 1) / kPartRows; }
  int64_t begin(int64_t part) const { return part * kPartRows; }
  int64_t end(int64_t part) const { return std::min(rows, (part + 1) * kPartRows); }
};

struct RowsIn {
  const void* data = nullptr;  // null: absent
  int64_t stride = 0;          // from row to row, in elements
};

struct SiluInputs {
  RowsIn x, factor, skip;  // factor or skip, or both, may be absent
  const float* omega;      // (width), where there is a skip
};

struct SiluGradients {
  const void* out;
  void *x, *factor, *skip;
  int64_t stride;  // of these three, whose rows may lie apart
  float* omega;  // (parts, width)
};

struct QueryKey {
  RowsIn x;
  const float *kappa, *mu;  // (2, width)
};

struct QueryKeyGradients {
  const void *query, *key;
  void* x;
  float* coefficients;  // (parts, 4, width): of kappa, then of mu
};

void silu_forward_cpu(const ActivationShape&, const SiluInputs&, void* out, int64_t part);
void silu_backward_cpu(const ActivationShape&, const SiluInputs&, const SiluGradients&, int64_t part);
void query_key_forward_cpu(const ActivationShape&, const QueryKey&, void* query, void* key, int64_t part);
void query_key_backward_cpu(const ActivationShape&, const QueryKey&, const QueryKeyGradients&, int64_t part);
void dropout_cpu(const ActivationShape&, const Dropping&, const RowsIn& x, void* out, int64_t part);

}  // namespace fm
