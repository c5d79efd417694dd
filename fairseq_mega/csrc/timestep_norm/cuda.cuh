#pragma once
// Device code of the timestep norm: statistics of segments of time and their merging, and the adjoint of that.
//
// A block has one sequence, a few groups and a tile of kTile steps at a time. Rows are (step, group) pairs:
//   1. sums over the features of each row, by 2^i lanes of a warp side by side;
//   2. a scan over the steps, by one warp per group, in double precision: few numbers, where all digits matter;
//   3. the elements, by threads side by side over the features.
// Tiles follow each other in one block, or, where that would leave a GPU idle, each has a block of its own and two small
// kernels first find the statistics before (and in the backward pass the adjoints after) every tile. All sums are in a
// fixed order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "timestep_norm/timestep_norm.h"

namespace fm {

constexpr int kNormThreads = 256, kNormWarps = kNormThreads / 32;
constexpr int kNormTile = 64;  // two steps per lane
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float read_value(const float* p) { return *p; }
__device__ __forceinline__ float read_value(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ __forceinline__ float read_value(const __half* p) { return __half2float(*p); }
__device__ __forceinline__ void write_value(float* p, float v) { *p = v; }
__device__ __forceinline__ void write_value(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }
__device__ __forceinline__ void write_value(__half* p, float v) { *p = __float2half(v); }

// Count, mean and variance of a segment of time.
struct Segment {
  double count, mean, variance;
};

__device__ __forceinline__ Segment merged(const Segment& a, const Segment& b) {
  if (b.count == 0.0) return a;
  const double count = a.count + b.count, share = b.count / count, way = b.mean - a.mean;
  return {count, a.mean + way * share,
          a.variance + (b.variance - a.variance) * share + way * way * share * (1.0 - share)};
}

// What a segment of time does to (tau, nu) on the way from its end to its start:
//   tau -> tau + a,   nu -> nu + b - 2 tau moved
struct Adjoint {
  double a, b, moved;
};

__device__ __forceinline__ Adjoint after_then(const Adjoint& later, const Adjoint& earlier) {
  return {later.a + earlier.a, later.b + earlier.b - 2.0 * later.a * earlier.moved, later.moved + earlier.moved};
}

struct TauNu {
  double tau, nu;
};

__device__ __forceinline__ TauNu applied(const Adjoint& segment, const TauNu& end) {
  return {end.tau + segment.a, end.nu + segment.b - 2.0 * end.tau * segment.moved};
}

__device__ __forceinline__ Segment shuffled_up(const Segment& s, int lanes) {
  return {__shfl_up_sync(kAllLanes, s.count, lanes), __shfl_up_sync(kAllLanes, s.mean, lanes),
          __shfl_up_sync(kAllLanes, s.variance, lanes)};
}

__device__ __forceinline__ Adjoint shuffled_down(const Adjoint& s, int lanes) {
  return {__shfl_down_sync(kAllLanes, s.a, lanes), __shfl_down_sync(kAllLanes, s.b, lanes),
          __shfl_down_sync(kAllLanes, s.moved, lanes)};
}

// Inclusive scan over the lanes of a warp.
__device__ __forceinline__ Segment scanned(Segment s, int lane) {
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Segment before = shuffled_up(s, lanes);
    if (lane >= lanes) s = merged(before, s);
  }
  return s;
}

// The same from the last lane to the first.
__device__ __forceinline__ Adjoint scanned_back(Adjoint s, int lane) {
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const Adjoint after = shuffled_down(s, lanes);
    if (lane + lanes < 32) s = after_then(after, s);
  }
  return s;
}

// Shape and pointers of one call; `tiles_per_block` tiles follow each other in a block.
template <class T>
struct Problem {
  int64_t length, width;
  int groups, features;               // G, K
  int block_groups, lanes;            // groups of a block; lanes that share a row: a power of two
  int64_t tiles, tiles_per_block;
  float eps;
  const T* x;
  const float *weight, *bias;
  const int64_t* count;
  const double *mean, *variance;      // null without a carried state, as count is
  const bool* padding;
  Segment* before;                    // (B, tiles + 1, G): statistics before each tile, and after all; null if unknown
};

// Which part of the problem this block works on.
struct Place {
  int64_t sequence, first_tile, end_tile, part;  // part: index of (sequence, range of tiles)
  int group, groups;                             // first group and how many
  int64_t channel;                               // first feature
  int width;                                     // groups times K

  template <class T>
  __device__ explicit Place(const Problem<T>& p) {
    const int64_t group_blocks = (p.groups + p.block_groups - 1) / p.block_groups;
    const int64_t ranges = (p.tiles + p.tiles_per_block - 1) / p.tiles_per_block;
    part = blockIdx.x / group_blocks;
    sequence = part / ranges;
    first_tile = part % ranges * p.tiles_per_block;
    end_tile = first_tile + p.tiles_per_block < p.tiles ? first_tile + p.tiles_per_block : p.tiles;
    group = static_cast<int>(blockIdx.x % group_blocks) * p.block_groups;
    groups = p.groups - group < p.block_groups ? p.groups - group : p.block_groups;
    channel = int64_t{group} * p.features;
    width = groups * p.features;
  }
};

// What is known of the rows of a tile, in dynamic shared memory.
struct Rows {
  double* mean;                   // m_t
  float *variance;                // v_t
  float *high, *low, *scale;      // M_t in two parts, r_t; 0 where padded
  float *share, *moved;           // 1 / n_t (0 where padded), M_t - M_{t-1}
  float *sum, *moment;            // A_t, B_t; then nu / K, 2 tau / K

  __device__ Rows(unsigned char* memory, int rows, bool backward) {
    mean = reinterpret_cast<double*>(memory);
    float* next = reinterpret_cast<float*>(mean + rows);
    variance = next;
    high = next + rows;
    low = next + 2 * rows;
    scale = next + 3 * rows;
    share = backward ? next + 4 * rows : nullptr;
    moved = next + 5 * rows;
    sum = next + 6 * rows;
    moment = next + 7 * rows;
  }
};

inline size_t norm_shared_bytes(int block_groups, bool backward) {
  return size_t{kNormTile} * block_groups * (sizeof(double) + (backward ? 8 : 4) * sizeof(float));
}

__device__ __forceinline__ float sum_over(float v, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(kAllLanes, v, distance);
  return v;
}

template <class T>
__device__ __forceinline__ bool is_padded(const Problem<T>& p, const Place& here, int64_t step) {
  return step >= p.length || (p.padding && p.padding[here.sequence * p.length + step]);
}

// Step 1: means and variances of the rows, measured from the row's first feature.
template <class T>
__device__ void find_moments(const Problem<T>& p, const Place& here, int64_t start, const Rows& rows) {
  const int lanes = p.lanes, lane = threadIdx.x % lanes, per_round = kNormThreads / lanes;
  const float part = 1.f / static_cast<float>(p.features);
  for (int base = 0; base < kNormTile * here.groups; base += per_round) {  // uniform: all lanes take part in shuffles
    const int row = base + static_cast<int>(threadIdx.x) / lanes;
    const bool exists = row < kNormTile * here.groups && !is_padded(p, here, start + row / here.groups);
    const T* x = nullptr;
    float origin = 0.f, sum = 0.f, square = 0.f;
    if (exists) {
      x = p.x + (here.sequence * p.length + start + row / here.groups) * p.width + here.channel +
          row % here.groups * p.features;
      origin = read_value(x);
      for (int i = lane; i < p.features; i += lanes) sum += read_value(x + i) - origin;
    }
    const float centre = sum_over(sum, lanes) * part;
    if (exists) {
      for (int i = lane; i < p.features; i += lanes) {
        const float distance = (read_value(x + i) - origin) - centre;
        square += distance * distance;
      }
    }
    square = sum_over(square, lanes);
    if (lane == 0 && row < kNormTile * here.groups) {
      rows.mean[row] = static_cast<double>(origin) + static_cast<double>(centre);
      rows.variance[row] = square * part;
    }
  }
}

template <class T>
__device__ __forceinline__ Segment one_step(const Problem<T>& p, const Place& here, const Rows& rows, int64_t start,
                                            int step, int group) {
  if (is_padded(p, here, start + step)) return {0.0, 0.0, 0.0};
  const int row = step * here.groups + group;
  return {1.0, rows.mean[row], static_cast<double>(rows.variance[row])};
}

__device__ __forceinline__ void note_step(const Rows& rows, int row, const Segment& before, const Segment& now,
                                          float eps) {
  const bool padded = now.count == before.count;
  rows.high[row] = static_cast<float>(now.mean);
  rows.low[row] = static_cast<float>(now.mean - static_cast<double>(rows.high[row]));
  rows.scale[row] = padded ? 0.f : static_cast<float>(1.0 / sqrt(now.variance + static_cast<double>(eps)));
  if (rows.share) {
    rows.share[row] = padded ? 0.f : static_cast<float>(1.0 / now.count);
    rows.moved[row] = static_cast<float>(now.mean - before.mean);
  }
}

// Step 2, one warp per group: running statistics of the tile's steps from those before it, `carried`, which becomes
// those after it.
template <class T>
__device__ void scan_steps(const Problem<T>& p, const Place& here, int64_t start, const Rows& rows, Segment* carried) {
  const int lane = threadIdx.x % 32;
  for (int group = threadIdx.x / 32; group < here.groups; group += kNormWarps) {
    const Segment first = one_step(p, here, rows, start, 2 * lane, group);
    const Segment second = one_step(p, here, rows, start, 2 * lane + 1, group);
    const Segment inclusive = scanned(merged(first, second), lane);
    Segment before = shuffled_up(inclusive, 1);
    before = lane == 0 ? carried[group] : merged(carried[group], before);
    const Segment between = merged(before, first), after = merged(between, second);
    note_step(rows, 2 * lane * here.groups + group, before, between, p.eps);
    note_step(rows, (2 * lane + 1) * here.groups + group, between, after, p.eps);
    __syncwarp();
    if (lane == 31) carried[group] = after;
  }
}

// Statistics before the first step of a sequence.
template <class T>
__device__ __forceinline__ Segment carried_into(const Problem<T>& p, int64_t sequence, int group) {
  const int64_t at = sequence * p.groups + group, count = p.count ? p.count[sequence] : 0;
  if (count == 0) return {0.0, 0.0, 0.0};
  return {static_cast<double>(count), p.mean[at], p.variance[at]};
}

// Statistics before the block's first tile, or before all.
template <class T>
__device__ __forceinline__ Segment carried_in(const Problem<T>& p, const Place& here, int64_t tile, int group) {
  if (p.before) return p.before[(here.sequence * (p.tiles + 1) + tile) * p.groups + here.group + group];
  return carried_into(p, here.sequence, here.group + group);
}

}  // namespace fm
