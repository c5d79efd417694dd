#pragma once
// Rows of tensors on the GPU: a block has 32 columns of the rows of a part (rows.h), a warp every eighth of these rows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/launch.h"
#include "common/rows.h"

namespace fm {

constexpr int kLanes = 32, kRowWarps = 8, kRowThreads = kLanes * kRowWarps;
constexpr int kRowBlocks = 4;   // of a multiprocessor at least: without a bound the compiler takes too many registers
constexpr int kRowsAtOnce = 4;  // of a warp, read before the first is written: memory answers late

template <class T>
__device__ __forceinline__ float get(const void* data, int64_t index) {
  return static_cast<float>(static_cast<const T*>(data)[index]);
}

template <class T>
__device__ __forceinline__ void put(void* data, int64_t index, float value) {
  static_cast<T*>(data)[index] = T(value);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// The derivative of the SiLU at x, whose sigmoid is s.
__device__ __forceinline__ float silu_slope(float x, float s) { return s * (1.f + x * (1.f - s)); }

// What a thread has of the rows: a column, maybe beyond the last one, of every eighth row of a part.
struct RowTile {
  int64_t part, column, begin, end;
  int lane, warp;

  __device__ __forceinline__ explicit RowTile(const RowParts& shape) {
    const int64_t tiles = (shape.width + kLanes - 1) / kLanes;
    lane = static_cast<int>(threadIdx.x % kLanes);
    warp = static_cast<int>(threadIdx.x / kLanes);
    part = blockIdx.x / tiles;
    column = blockIdx.x % tiles * kLanes + lane;
    begin = shape.begin(part) + warp;
    end = shape.end(part);
  }
};

inline unsigned row_blocks(const RowParts& shape) {
  return static_cast<unsigned>(shape.parts() * ((shape.width + kLanes - 1) / kLanes));
}

// Calls use(row, load(row)) for the rows of a thread.
template <class Load, class Use>
__device__ __forceinline__ void for_rows(const RowTile& tile, const Load& load, const Use& use) {
  for (int64_t first = tile.begin; first < tile.end; first += kRowsAtOnce * kRowWarps) {
    decltype(load(first)) loaded[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int64_t row = first + i * kRowWarps;
      if (row < tile.end) loaded[i] = load(row);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int64_t row = first + i * kRowWarps;
      if (row < tile.end) use(row, loaded[i]);
    }
  }
}

// Writes the sums over a part's rows, to (parts, kSums, width). All threads of the block call it.
template <int kSums>
__device__ __forceinline__ void write_sums(const RowParts& shape, const RowTile& tile, const float (&sums)[kSums],
                                           float* out) {
  static_assert(kSums <= kRowWarps, "a warp adds up one sum");
  __shared__ float shared[kRowWarps][kSums][kLanes];
  for (int sum = 0; sum < kSums; ++sum) shared[tile.warp][sum][tile.lane] = sums[sum];
  __syncthreads();
  if (tile.warp < kSums && tile.column < shape.width) {
    float total = 0.f;
    for (int warp = 0; warp < kRowWarps; ++warp) total += shared[warp][tile.warp][tile.lane];
    out[(tile.part * kSums + tile.warp) * shape.width + tile.column] = total;
  }
}

// Calls function(a value of the type of the elements): a loop for each type.
template <class Function>
auto with_cuda_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kBFloat16: return function(__nv_bfloat16());
    case DType::kFloat16: return function(__half());
    default: return function(0.f);
  }
}

}  // namespace fm
