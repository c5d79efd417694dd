#pragma once
// Rows of a sequence between global memory and the columns that threads keep in shared memory (see ema_scan.cuh).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ema/cuda_plan.cuh"

namespace fm {

constexpr unsigned kWholeWarp = 0xffffffffu;

__device__ __forceinline__ int lane() { return threadIdx.x % kLanes; }
__device__ __forceinline__ int warp() { return threadIdx.x / kLanes; }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

// Writes steps start .. start + kSteps - 1 of one channel to a column in shared memory: zero outside of the sequence
// and where `cleared` has a bit.
template <class Element>
__device__ __forceinline__ void stage_rows(const Element* sequence, const EmaShape& shape, int64_t channel, int start,
                                           unsigned cleared, float* column) {
  const Element* row = sequence + start * shape.width + channel;
  const int length = static_cast<int>(shape.length);
  float values[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int t = start + j;
    values[j] = channel < shape.width && t >= 0 && t < length ? to_float(row[j * shape.width]) : 0.f;
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) column[j * kLanes] = cleared >> j & 1 ? 0.f : values[j];
}

__device__ __forceinline__ void stage(const void* data, const EmaShape& shape, int64_t sequence, int64_t channel,
                                      int start, unsigned cleared, float* column) {
  const int64_t offset = sequence * shape.length * shape.width;
  switch (shape.dtype) {
    case DType::kFloat32:
      stage_rows(static_cast<const float*>(data) + offset, shape, channel, start, cleared, column);
      break;
    case DType::kBFloat16:
      stage_rows(static_cast<const __nv_bfloat16*>(data) + offset, shape, channel, start, cleared, column);
      break;
    case DType::kFloat16:
      stage_rows(static_cast<const __half*>(data) + offset, shape, channel, start, cleared, column);
      break;
  }
}

template <class Element>
__device__ __forceinline__ void write_rows(Element* row, int64_t stride, int end, unsigned cleared,
                                           const float* column) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    if (j < end) row[j * stride] = static_cast<Element>(cleared >> j & 1 ? 0.f : column[j * kLanes]);
  }
}

// The reverse: a column to memory, the steps that are in the sequence.
__device__ __forceinline__ void unstage(void* data, const EmaShape& shape, int64_t sequence, int64_t channel,
                                        int start, unsigned cleared, const float* column) {
  const int64_t first = (sequence * shape.length + start) * shape.width + channel;
  const int end = channel < shape.width ? static_cast<int>(shape.length) - start : 0;
  switch (shape.dtype) {
    case DType::kFloat32: write_rows(static_cast<float*>(data) + first, shape.width, end, cleared, column); break;
    case DType::kBFloat16:
      write_rows(static_cast<__nv_bfloat16*>(data) + first, shape.width, end, cleared, column);
      break;
    case DType::kFloat16: write_rows(static_cast<__half*>(data) + first, shape.width, end, cleared, column); break;
  }
}

// Bit j, of kLanes: flags[start + j], false outside of the sequence. All lanes must call it.
__device__ __forceinline__ unsigned load_flags(const bool* flags, const EmaShape& shape, int64_t sequence, int start) {
  if (flags == nullptr) return 0;
  const int t = start + lane();
  const bool inside = t >= 0 && t < static_cast<int>(shape.length);
  return __ballot_sync(kWholeWarp, inside && flags[sequence * shape.length + t]);
}

}  // namespace fm
