#pragma once
// What predictions of symbols are scored by, without the probabilities of all symbols in memory:
//
//   x'_j = x_j - max x     log_total = log sum_j exp(x'_j)     nll = log_total - x'_target
//   smooth = sum_j (log_total - x'_j)
//
// The latter is what label smoothing mixes in. The gradient of a nll + b smooth is (a + b symbols) softmax(x) - b, and
// less by a at the target.
#include "common/common.h"

namespace fm {

struct CrossEntropy {
  int64_t rows = 0, symbols = 0;
  DType dtype = DType::kFloat32;  // of logits and their gradient
  const void* logits = nullptr;
  int64_t stride = 0;  // from row to row, in elements
  const int64_t* targets = nullptr;
};

struct RowLosses {
  float *nll, *smooth;
  float* statistics;  // (rows, 2): max x and log_total
};

struct RowGradients {
  const float *nll, *smooth;
  const float* statistics;  // the forward's
  void* logits;             // contiguous
};

void cross_entropy_forward_cpu(const CrossEntropy&, const RowLosses&, int64_t begin, int64_t end);
void cross_entropy_backward_cpu(const CrossEntropy&, const RowGradients&, int64_t begin, int64_t end);

}  // namespace fm
