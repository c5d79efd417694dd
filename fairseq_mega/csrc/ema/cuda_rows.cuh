#pragma once
// Pieces of a sequence between global memory and the registers of the threads that scan them (see cuda_scan.cuh).
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

// kSteps steps of one channel, in the order of time or against it.
struct Piece {
  const EmaShape& shape;
  int64_t sequence;
  int channel, start;
  bool descending;

  // Zero outside of the sequence and where `cleared` has the bit of a step after `start`; channels that do not exist
  // read another one.
  __device__ __forceinline__ void load(const void* data, unsigned cleared, float (&values)[kSteps]) const {
    switch (shape.dtype) {
      case DType::kFloat32: load_rows<float>(data, values); break;
      case DType::kBFloat16: load_rows<__nv_bfloat16>(data, values); break;
      case DType::kFloat16: load_rows<__half>(data, values); break;
    }
    clear(cleared, values);
  }
  // The steps that are in the sequence, zero where `cleared` has a bit; of channels that exist.
  __device__ __forceinline__ void store(void* data, unsigned cleared, float (&values)[kSteps]) const {
    clear(cleared, values);
    if (channel >= shape.width) return;
    switch (shape.dtype) {
      case DType::kFloat32: store_rows<float>(data, values); break;
      case DType::kBFloat16: store_rows<__nv_bfloat16>(data, values); break;
      case DType::kFloat16: store_rows<__half>(data, values); break;
    }
  }

 private:
  __device__ __forceinline__ bool whole() const {
    return start >= 0 && start + kSteps <= static_cast<int>(shape.length);
  }
  __device__ __forceinline__ bool has(int i) const {
    const int t = start + (descending ? kSteps - 1 - i : i);
    return t >= 0 && t < static_cast<int>(shape.length);
  }
  template <class Element, class Pointer>
  __device__ __forceinline__ Element* first(Pointer data) const {
    const int column = min(channel, static_cast<int>(shape.width) - 1), step = descending ? start + kSteps - 1 : start;
    return static_cast<Element*>(data) + (sequence * shape.length + step) * shape.width + column;
  }
  __device__ __forceinline__ int64_t next() const { return descending ? -shape.width : shape.width; }

  template <class Element>
  __device__ __forceinline__ void load_rows(const void* data, float (&values)[kSteps]) const {
    const Element* row = first<const Element>(data);
    if (whole()) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) values[i] = to_float(*row);
    } else {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) values[i] = has(i) ? to_float(*row) : 0.f;
    }
  }
  template <class Element>
  __device__ __forceinline__ void store_rows(void* data, const float (&values)[kSteps]) const {
    Element* row = first<Element>(data);
    if (whole()) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) *row = static_cast<Element>(values[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) {
        if (has(i)) *row = static_cast<Element>(values[i]);
      }
    }
  }
  __device__ __forceinline__ void clear(unsigned cleared, float (&values)[kSteps]) const {
    if (cleared == 0) return;
    if (descending) cleared = reversed(cleared);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) values[i] = cleared >> i & 1 ? 0.f : values[i];
  }

 public:
  __device__ __forceinline__ static unsigned reversed(unsigned steps) { return __brev(steps) >> (kLanes - kSteps); }
};

// Bit j, of kLanes: flags[start + j], false outside of the sequence. All lanes must call it.
__device__ __forceinline__ unsigned load_flags(const bool* flags, const EmaShape& shape, int64_t sequence, int start) {
  if (flags == nullptr) return 0;
  const int t = start + lane();
  const bool inside = t >= 0 && t < static_cast<int>(shape.length);
  return __ballot_sync(kWholeWarp, inside && flags[sequence * shape.length + t]);
}

}  // namespace fm
