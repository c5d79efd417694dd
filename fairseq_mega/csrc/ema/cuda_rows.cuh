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

// 1 / (1 + e^-x) by five instructions; what is too small to be a normal number counts as zero.
__device__ __forceinline__ float fast_sigmoid(float x) {
#if defined(FM_CUDA_SIM)
  return 1.f / (1.f + __expf(-x));
#else
  float y = x * -1.44269504f;
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(y));
  y += 1.f;
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(y));
  return y;
#endif
}

// kSteps steps of one channel, in the order of time or against it.
struct Piece {
  const EmaShape& shape;
  int64_t sequence;
  int channel, start;
  bool descending;

  // Calls function(a value of the type of the elements).
  template <class Function>
  __device__ __forceinline__ void with_type(const Function& function) const {
    switch (shape.dtype) {
      case DType::kFloat32: function(0.f); break;
      case DType::kBFloat16: function(__nv_bfloat16()); break;
      case DType::kFloat16: function(__half()); break;
    }
  }

  // Zero outside of the sequence; channels that do not exist read another one.
  template <class Element>
  __device__ __forceinline__ void load(const void* data, float (&values)[kSteps]) const {
    const Element* row = first<const Element>(data);
    if (whole()) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) values[i] = to_float(*row);
    } else {
#pragma unroll
      for (int i = 0; i < kSteps; ++i, row += next()) values[i] = has(i) ? to_float(*row) : 0.f;
    }
  }
  // The steps that are in the sequence; of a channel that exists.
  template <class Element>
  __device__ __forceinline__ void store(void* data, const float (&values)[kSteps]) const {
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
  // Sets zero where `cleared` has the bit of a step after `start`.
  __device__ __forceinline__ void clear(unsigned cleared, float (&values)[kSteps]) const {
    if (cleared == 0) return;
    if (descending) cleared = reversed(cleared);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) values[i] = cleared >> i & 1 ? 0.f : values[i];
  }
  // Multiplies with what dropout does; all lanes must call it. A lane computes the bits of one row for all.
  __device__ __forceinline__ void drop(const Dropping& dropping, float (&values)[kSteps]) const {
    if (dropping.seed == nullptr) return;
    const int step = lane() % kSteps;
    const RowBits mine = dropping.row(sequence * shape.length + start + (descending ? kSteps - 1 - step : step));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const RowBits bits{__shfl_sync(kWholeWarp, mine.low, i), __shfl_sync(kWholeWarp, mine.high, i)};
      values[i] *= hash_of(bits, static_cast<uint32_t>(channel)) < dropping.limit ? 0.f : dropping.kept;
    }
  }
  __device__ __forceinline__ static unsigned reversed(unsigned steps) { return __brev(steps) >> (kLanes - kSteps); }

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
};

// Bit j, of kLanes: flags[start + j], false outside of the sequence. All lanes must call it.
__device__ __forceinline__ unsigned load_flags(const bool* flags, const EmaShape& shape, int64_t sequence, int start) {
  if (flags == nullptr) return 0;
  const int t = start + lane();
  const bool inside = t >= 0 && t < static_cast<int>(shape.length);
  return __ballot_sync(kWholeWarp, inside && flags[sequence * shape.length + t]);
}

}  // namespace fm
