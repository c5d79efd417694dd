#pragma once
// Rows of tensors on the GPU: a block has 32 columns of the rows of a part (rows.h), a warp every eighth of these rows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/last_block.cuh"
#include "common/launch.h"
#include "common/rows.h"

namespace fm {

constexpr int kLanes = kTileColumns, kRowWarps = 8, kRowThreads = kLanes * kRowWarps;
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
    const int64_t tiles = row_tiles(shape);
    lane = static_cast<int>(threadIdx.x % kLanes);
    warp = static_cast<int>(threadIdx.x / kLanes);
    part = blockIdx.x / tiles;
    column = blockIdx.x % tiles * kLanes + lane;
    begin = shape.begin(part) + warp;
    end = shape.end(part);
  }
};

inline unsigned row_blocks(const RowParts& shape) {
  return static_cast<unsigned>(shape.parts() * row_tiles(shape));
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

// Adds up, for every lane, kSums numbers over the warps of a block, and calls put(sum, total) in one thread for each.
// All threads of the block call it, with a barrier between two calls.
template <int kWarps, int kSums, class Put>
__device__ __forceinline__ void add_warps(const float (&sums)[kSums], const Put& put) {
  static_assert(kSums <= kWarps, "a warp adds up one sum");
  __shared__ float shared[kWarps][kSums][kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) shared[warp][sum][lane] = sums[sum];
  __syncthreads();
  if (warp >= kSums) return;
  float total = 0.f;
  for (int other = 0; other < kWarps; ++other) total += shared[other][warp][lane];
  put(warp, total);
}

// Adds up the kSums numbers of every lane that the parts have, `from(part, sum)`; put as above.
template <int kWarps, int kSums, class From, class Put>
__device__ __forceinline__ void add_parts(int64_t parts, const From& from, const Put& put) {
  float sums[kSums] = {};
#pragma unroll 4
  for (int64_t part = threadIdx.x / kLanes; part < parts; part += kWarps) {
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) sums[sum] += from(part, sum);
  }
  add_warps<kWarps>(sums, put);
}

// Writes the sums over a part's rows and, in the last block of a tile of columns, over all rows. All threads of the
// block call it.
template <int kSums>
__device__ __forceinline__ void write_sums(const RowParts& shape, const RowTile& tile, const float (&sums)[kSums],
                                           const RowSums& out) {
  const bool exists = tile.column < shape.width;
  const auto place = [&](int64_t part, int sum) { return (part * kSums + sum) * shape.width + tile.column; };
  add_warps<kRowWarps>(sums, [&](int sum, float total) {
    if (exists) out.parts[place(tile.part, sum)] = total;
  });
  if (!is_last_block(out.counters + tile.column / kLanes, shape.parts())) return;
  add_parts<kRowWarps, kSums>(
      shape.parts(), [&](int64_t part, int sum) { return exists ? out.parts[place(part, sum)] : 0.f; },
      [&](int sum, float total) {
        if (exists) out.total[place(0, sum)] = total;
      });
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
