#pragma once
// An element of the update gate on the GPU, for kernels that differ in how they share the rows; see gate.h.
#include "common/cuda_rows.cuh"
#include "gate/gate.h"

namespace fm {

// What memory has of an element; sum: of candidate, addend and bias.
struct Loaded {
  float x, update, sum;
};

struct Element {
  float gate, slope, kept, candidate;
};

__device__ __forceinline__ Element element(const GateInputs& in, const Loaded& l, RowBits row, int64_t column) {
  Element e{1.f, 0.f, 1.f, l.sum};
  if (in.update) e.gate = sigmoid(l.update);
  if (in.update && in.addend) {
    e.slope = sigmoid(l.sum);
    e.candidate *= e.slope;
  }
  if (in.dropping.seed) {
    e.kept = hash_of(row, static_cast<uint32_t>(column)) < in.dropping.limit ? 0.f : in.dropping.kept;
    e.candidate *= e.kept;
  }
  return e;
}

__device__ __forceinline__ float result(const GateInputs& in, const Loaded& l, const Element& e) {
  return in.update ? l.x + e.gate * (e.candidate - l.x) : l.x + e.candidate;
}

struct ElementGradients {
  float x, update, candidate;
};

__device__ __forceinline__ ElementGradients gradients_of(const GateInputs& in, const Loaded& l, const Element& e,
                                                         float grad) {
  const float mixed = grad * e.gate;
  float candidate = mixed * e.kept;
  if (in.addend && in.update) candidate *= silu_slope(l.sum, e.slope);
  return {in.update ? grad - mixed : grad, mixed * (1.f - e.gate) * (e.candidate - l.x), candidate};
}

// Calls launch(type of the residual, type of the others).
template <class Launch>
int with_gate_types(DType residual, DType other, const Launch& launch) {
  return with_cuda_type(other, [&](auto type) { return residual == other ? launch(type, type) : launch(0.f, type); });
}

}  // namespace fm
