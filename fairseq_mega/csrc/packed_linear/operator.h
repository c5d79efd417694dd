#pragma once
// The operator itself, for the bindings of operators that have linear maps inside.
#include "common/bindings.h"

namespace fm {

// Rows of float32 numbers, one after the other.
struct PackedRows {
  const float* data;
  int64_t count, width;
};

// Maps rows of x to out (rows, outputs) by a matrix (outputs, inputs) of float32, bfloat16 or int8, each row times its
// scale, and a bias (outputs). All are on the CPU.
void packed_linear(PackedRows x, const Tensor& weight, const std::optional<Tensor>& scale,
                   const std::optional<Tensor>& bias, float* out);

}  // namespace fm
