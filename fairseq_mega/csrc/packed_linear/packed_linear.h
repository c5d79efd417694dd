#pragma once
// A linear map of a few rows, as in decoding: reading its matrix takes the time, so that a matrix of half or a quarter
// of the bytes is faster. The matrix is float32, bfloat16, or int8 with a scale for each output; the rest is float32.
#include <cstdint>

namespace fm {

enum class WeightType : int { kFloat32 = 0, kBFloat16, kInt8 };

// y[r, j] = scale[j] sum_i x[r, i] weight[j, i] + bias[j]
struct PackedLinear {
  const float* x;       // (rows, inputs)
  const void* weight;   // (outputs, inputs)
  const float* scale;   // (outputs), or null for 1
  const float* bias;    // (outputs), or null for 0
  float* y;             // (rows, outputs)
  int64_t rows, inputs, outputs;
  WeightType type;
};

void packed_linear_cpu(const PackedLinear& map, int64_t begin, int64_t end);  // outputs [begin, end)

}  // namespace fm
