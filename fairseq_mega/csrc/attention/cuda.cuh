#pragma once
// Device functions of the attention weights: one element's value, rows in registers, sums over a row's threads.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "attention/attention.h"
#include "common/launch.h"

namespace fm {

__device__ __forceinline__ void store_as(DType dtype, void* to, int64_t index, float value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(to)[index] = value; break;
    case DType::kBFloat16: static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16(value); break;
    case DType::kFloat16: static_cast<__half*>(to)[index] = __float2half(value); break;
  }
}

// One key as one query sees it.
struct AttentionElement {
  float x;       // the logit; -infinity where the key is not seen
  float factor;  // of the weight: dropout
};

__device__ __forceinline__ AttentionElement attention_element(const AttentionBlock& block, const AttentionRow& row,
                                                              float product, int64_t j) {
  AttentionElement element{-INFINITY, 1.f};
  if (j >= row.seen || (row.padding && row.padding[j])) return element;
  int32_t hash = 0;
  if (block.seed) {
    hash = static_cast<int32_t>(hash_of(row.bits, static_cast<uint32_t>(j)));
    element.factor = hash < block.drop ? 0.f : block.kept;
  }
  if (!block.seed || hash >= block.drop_key) element.x = product * row.scale + row.bias[j];
  return element;
}

struct AttentionValue {
  float weight, slope;  // f(x) and f'(x)
};

__device__ __forceinline__ AttentionValue attention_value(AttentionFunction function, float x) {
  if (function == AttentionFunction::kRelu2) {
    const float positive = x < 0.f ? 0.f : x;
    return {positive * positive, 2.f * positive};
  }
  const float t = (x - kLaplaceMu) * kLaplaceSlope;
  return {0.5f * erfcf(-t), kLaplacePeak * expf(-t * t)};
}

struct Larger {
  __device__ __forceinline__ float operator()(float a, float b) const { return a < b ? b : a; }
};

struct Plus {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// Result for all kThreads threads that share a row: a warp, or a whole block of one row. `shared` has a word per warp.
template <int kThreads, class Operation>
__device__ __forceinline__ float reduce(float value, Operation operation, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = operation(value, __shfl_xor_sync(0xffffffffu, value, step));
  if (kThreads == 32) return value;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) value = operation(value, shared[warp]);
  __syncthreads();  // before the next reduction writes
  return value;
}

}  // namespace fm
