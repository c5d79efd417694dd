#pragma once
// Device code of the timestep norm: a tile of one sequence in shared memory, and what tiles hand on to each other.
//
// A block has up to 64 steps of a few groups and reads x, and backward grad_y, once. Rows are (step, group) pairs:
//   1. sums over the features of each row, by a thread, or a few lanes of a warp where there are few rows;
//   2. sums over the steps, by eight threads a group, in double precision: few numbers, where all digits matter;
//   3. the elements, by threads side by side over the features.
// Before step 3 a block writes what its tile does to the statistics (backward: to their adjoints), waits until the tiles
// before it (backward: after it) have done so, and adds theirs up, always in one order. A block draws its place among
// the tiles of its sequence when it begins, and so waits for none that does not run yet.
#include <algorithm>
#include <cstring>

#include "common/cuda_rows.cuh"
#include "timestep_norm/timestep_norm.h"

namespace fm {

constexpr int kNormThreads = kRowThreads;
constexpr int kPieces = 8;   // threads that share a group's steps
constexpr int kLinked = 31;  // tiles that add up each other's parts
constexpr int kColumns = 4;  // of a thread, where they lie side by side in one group
constexpr int kTileSteps = 64, kRowElements = 4096;          // of a tile at most; a row of more has a tile of its own
constexpr int kBlockFeatures = 128, kBlockBytes = 80 << 10;  // of a block at most, where a group has fewer
// Groups of a block, forward and backward: each is linked by a lane of the first warp.
constexpr int kForwardGroups = kLanes, kBackwardGroups = kLanes / 2;
static_assert(kForwardGroups * kPieces <= kNormThreads, "step 2 has a thread for each piece");
constexpr unsigned kAllLanes = 0xffffffffu;

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

// The segment of so many steps with these sums of distances from an origin and of their squares. Where the origin is one
// of their means, the square of the mean's distance is at most `count` times the variance: few digits cancel.
__device__ __forceinline__ Segment from_sums(double count, double origin, double2 sums) {
  if (count == 0.0) return {0.0, 0.0, 0.0};
  const double share = 1.0 / count, way = sums.x * share;
  return {count, origin + way, max(sums.y * share - way * way, 0.0)};
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

// What another block has written, from the memory that all share.
template <class Numbers>
__device__ __forceinline__ Numbers read_shared(const Numbers* from) {
  constexpr int kCount = sizeof(Numbers) / sizeof(double);
  double values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = __ldcg(reinterpret_cast<const double*>(from) + i);
  return *reinterpret_cast<const Numbers*>(values);
}

// The words of the tiles of one sequence and block of groups: the next place, how many blocks need them no more, and a
// bit for each tile whose part is written, in words of kLinked; bit 31: the sum of all parts before these is.
struct Chain {
  unsigned* words;
  int tiles;

  static constexpr int size(int tiles) { return 2 + (tiles + kLinked - 1) / kLinked; }

  __device__ __forceinline__ int draw() const {
    __shared__ int place;
    if (tiles == 1) return 0;
    if (threadIdx.x == 0) place = static_cast<int>(atomicAdd(words, 1u));
    __syncthreads();
    return place;
  }
  // All lanes of the first warp call these; what they have written before is seen by those that wait.
  __device__ __forceinline__ void publish(int word, int bit) const {
    __threadfence();
    __syncwarp();
    if (threadIdx.x == 0) atomicOr(words + 2 + word, 1u << bit);
  }
  __device__ __forceinline__ void wait(int word, unsigned bits) const {
    const volatile unsigned* const from = words + 2 + word;
    while ((*from & bits) != bits) {
    }
    __threadfence();
  }
  // After the last wait of a block: the words are zero after the last block.
  __device__ __forceinline__ void leave() const {
    __threadfence();
    __syncwarp();
    if (threadIdx.x > 0 || atomicAdd(words + 1, 1u) != static_cast<unsigned>(tiles - 1)) return;
    for (int word = 0; word < size(tiles); ++word) words[word] = 0;
  }
};

// One call, and how its work is laid out: blocks of rows side by side (a row is a sequence's block of groups), then tiles.
struct Problem {
  TimestepNormShape shape;
  TimestepNormInputs in;
  int groups, features;                 // G, K
  int steps = kTileSteps, tiles;        // steps of a tile: a power of two
  int block_groups, group_blocks, rows;
  int stride, lane_bits = 0;            // from row to row in shared memory; 2^lane_bits lanes share a row in step 1
  int64_t all_tiles, group_bytes;       // B times tiles; of shared memory
  unsigned* words = nullptr;            // zero, as a Chain has them; null for one tile

  Problem(const TimestepNormShape& s, bool backward, const TimestepNormInputs& inputs = {}) : shape(s), in(inputs) {
    groups = static_cast<int>(s.groups), features = static_cast<int>(s.features());
    const int unit = features % kColumns ? 1 : kColumns, most = backward ? kBackwardGroups : kForwardGroups;
    stride = features + (features / unit % 2 ? 0 : unit);  // odd, in units: neighbours lie in different banks
    while (steps > 1 && steps * features > kRowElements) steps /= 2;
    group_bytes = steps * (1 + backward) * static_cast<int64_t>(sizeof(float4) + stride * sizeof(float));
    const int fitting = std::min({groups, most, kBlockFeatures / features, static_cast<int>(kBlockBytes / group_bytes)});
    block_groups = std::max(1, fitting);
    group_blocks = (groups + block_groups - 1) / block_groups;
    rows = static_cast<int>(s.batch) * group_blocks;
    tiles = static_cast<int>((s.length + steps - 1) / steps);
    all_tiles = s.batch * tiles;
    while (lane_bits < 5 && steps * block_groups << lane_bits < kNormThreads && unit << lane_bits < features) ++lane_bits;
  }
  int64_t chain_words() const { return tiles > 1 ? int64_t{rows} * Chain::size(tiles) : 0; }
  int64_t sum_groups() const { return (all_tiles + kLanes - 1) / kLanes; }
  size_t shared_bytes() const {  // a tile, or sums over it
    return static_cast<size_t>(std::max<int64_t>(block_groups * group_bytes, 2 * kColumns * kNormThreads * sizeof(float)));
  }
  // Statistics before a tile, of which there are tiles + 1 in memory.
  __device__ __forceinline__ Segment* before(int sequence, int tile, int group) const {
    return reinterpret_cast<Segment*>(in.tiles) + (int64_t{sequence} * (tiles + 1) + tile) * groups + group;
  }
};

// Which part of the problem this block works on.
struct Place {
  Chain chain;
  int position, tile, sequence;  // position: in the order in which tiles wait for each other
  int steps, length;             // of a tile, and how many of them exist
  int group, groups, width;      // first group, how many, their features
  int64_t channel, first;        // first feature; first element
  unsigned long long present;    // a bit for each step that is not padding

  __device__ Place(const Problem& p, bool backward) {
    const unsigned row = blockIdx.x % static_cast<unsigned>(p.rows);
    chain = {p.words + row * Chain::size(p.tiles), p.tiles};
    position = chain.draw();
    tile = backward ? p.tiles - 1 - position : position;
    steps = p.steps;
    sequence = static_cast<int>(row / static_cast<unsigned>(p.group_blocks));
    group = (static_cast<int>(row) - sequence * p.group_blocks) * p.block_groups;
    groups = min(p.groups - group, p.block_groups);
    width = groups * p.features;
    channel = int64_t{group} * p.features;
    const int64_t start = int64_t{tile} * steps, step = sequence * p.shape.length + start;
    first = step * p.shape.width + channel;
    length = static_cast<int>(min(p.shape.length - start, int64_t{steps}));
    const auto exists = [&](int t) { return t < length && !(p.in.padding && p.in.padding[step + t]); };
    const int lane = threadIdx.x % kLanes;
    const unsigned low = __ballot_sync(kAllLanes, exists(lane)), high = __ballot_sync(kAllLanes, exists(lane + kLanes));
    present = static_cast<unsigned long long>(high) << kLanes | low;
  }
  __device__ __forceinline__ bool has(int t) const { return present >> t & 1; }
  __device__ __forceinline__ int steps_before(int t) const { return __popcll(present & ((1ull << t) - 1)); }
  __device__ __forceinline__ int all_steps() const { return __popcll(present); }
};

// n / by of numbers below 2^20, in fewer instructions than a division of integers.
__device__ __forceinline__ int quotient(int n, int by) {
  return static_cast<int>(__fdividef(static_cast<float>(n) + 0.5f, static_cast<float>(by)));
}

// The place of a row's element in memory.
template <class T>
__device__ __forceinline__ T* row_at(T* from, int row, int bytes) {
  return (T*)((const char*)from + int64_t{row} * bytes);
}

// Calls body(whether there is such a column, column, first step, steps between) for each column of kV features that a
// thread has, as often in all threads of the block.
template <int kV, class Body>
__device__ __forceinline__ void for_columns(const Place& here, const Body& body) {
  const int across = min(here.width / kV, kNormThreads), slices = quotient(kNormThreads, across);
  const int slice = quotient(threadIdx.x, across), own = static_cast<int>(threadIdx.x) - slice * across;
  for (int base = 0; base < here.width; base += across * kV) {
    const int column = base + own * kV;
    body(slice < slices && column < here.width, column, slice, slices);
  }
}

template <class T, int kV>
struct alignas(kV * sizeof(T)) Several {
  T values[kV];
};

template <int kV, class T>
__device__ __forceinline__ void read(const T* from, float (&to)[kV]) {
  const auto several = *reinterpret_cast<const Several<T, kV>*>(from);
#pragma unroll
  for (int i = 0; i < kV; ++i) to[i] = static_cast<float>(several.values[i]);
}

template <int kV, class T>
__device__ __forceinline__ void write(T* to, const float (&from)[kV]) {
  Several<T, kV> several;
#pragma unroll
  for (int i = 0; i < kV; ++i) several.values[i] = T(from[i]);
  *reinterpret_cast<Several<T, kV>*>(to) = several;
}

// Elements in memory, or zeros: whole words, so that the compiler reads without a branch and goes on to the next.
template <int kV, class T>
__device__ __forceinline__ Several<T, kV> several_or_zeros(const T* from, bool exists) {
  constexpr int kBytes = kV * sizeof(T);
  using Word = std::conditional_t<
      kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, unsigned, short>>>;
  Word word{};
  if (exists) word = *reinterpret_cast<const Word*>(from);
  Several<T, kV> several;
  memcpy(&several, &word, sizeof several);
  return several;
}

// Copies a tile to shared memory, zeros where it is padded.
template <int kV, class T>
__device__ void stage(const Problem& p, const Place& here, const void* tensor, float* to, bool add = false) {
  for_columns<kV>(here, [&](bool exists, int column, int slice, int slices) {
    if (!exists) return;
    const int group = quotient(column, p.features), bytes = static_cast<int>(p.shape.width * sizeof(T));
    const T* const from = static_cast<const T*>(tensor) + here.first + column;
    float* const target = to + group * p.stride + (column - group * p.features);
    for (int begin = slice; begin < here.steps; begin += kRowsAtOnce * slices) {
      Several<T, kV> found[kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {  // all at once: memory answers late
        const int t = begin + i * slices;
        found[i] = several_or_zeros<kV>(row_at(from, t, bytes), t < here.steps && here.has(t));
      }
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const int t = begin + i * slices;
        if (t >= here.steps) continue;
        float values[kV], before[kV];
        read<kV>(found[i].values, values);
        if (add) {
          read<kV>(target + t * here.groups * p.stride, before);
#pragma unroll
          for (int j = 0; j < kV; ++j) values[j] += before[j];
        }
        write<kV>(target + t * here.groups * p.stride, values);
      }
    }
  });
}

// Step 1. Of each row (x_0, mean - x_0, variance, -); with gradients also (A_t, sum h (x - mean), -, -).
template <int kV, bool kGradients>
__device__ void find_moments(const Problem& p, const Place& here, const float* values, const float* gradients,
                             float4* rows, float4* sums) {
  const int lanes = 1 << p.lane_bits, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int count = here.steps * here.groups, per_round = kNormThreads >> p.lane_bits;
  const float part = 1.f / static_cast<float>(p.features);
  const auto total = [&](float v) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) v += __shfl_xor_sync(kAllLanes, v, distance);
    return v;
  };
  for (int base = 0; base < count; base += per_round) {  // uniform: all lanes take part in shuffles
    const int row = base + (static_cast<int>(threadIdx.x) >> p.lane_bits);
    const int features = row < count ? p.features : 0, group = row - quotient(row, here.groups) * here.groups;
    const float* const x = values + row * p.stride;
    const float origin = features > 0 ? x[0] : 0.f;
    float v[kV], g[kV], w[kV], sum = 0.f, square = 0.f, slope = 0.f, moment = 0.f;
    for (int i = lane * kV; i < features; i += lanes * kV) {
      read<kV>(x + i, v);
#pragma unroll
      for (int j = 0; j < kV; ++j) sum += v[j] - origin;
    }
    const float centre = total(sum) * part;
    for (int i = lane * kV; i < features; i += lanes * kV) {
      read<kV>(x + i, v);
      if constexpr (kGradients) {
        read<kV>(gradients + row * p.stride + i, g);
        read<kV>(p.in.weight + here.channel + group * p.features + i, w);
      }
#pragma unroll
      for (int j = 0; j < kV; ++j) {
        const float distance = (v[j] - origin) - centre;
        square += distance * distance;
        if constexpr (kGradients) {
          const float h = g[j] * (1.f + w[j]);
          slope += h;
          moment += h * distance;
        }
      }
    }
    square = total(square);
    if constexpr (kGradients) slope = total(slope), moment = total(moment);
    if (features == 0 || lane > 0) continue;
    rows[row] = make_float4(origin, centre, square * part, 0.f);
    if constexpr (kGradients) sums[row] = make_float4(slope, moment, 0.f, 0.f);
  }
}

__device__ __forceinline__ double mean_of(const float4& row) {
  return static_cast<double>(row.x) + static_cast<double>(row.y);
}

// The steps of a group that a thread has in step 2.
struct Piece {
  int index, group, begin, end;
  unsigned present;  // a bit for each that is not padding

  __device__ explicit Piece(const Place& here) {
    const int each = max(1, here.steps / kPieces);
    index = quotient(threadIdx.x, here.groups);
    group = static_cast<int>(threadIdx.x) - index * here.groups;
    begin = min(index * each, here.steps);
    end = index < kPieces ? min(begin + each, here.steps) : begin;
    present = begin < end ? static_cast<unsigned>(here.present >> begin) : 0u;
  }
  __device__ __forceinline__ bool exists() const { return index < kPieces; }

  // Calls body(row) for its steps that are not padding, and otherwise(row) for those that are.
  template <class Body, class Otherwise>
  __device__ __forceinline__ void for_steps(const Place& here, const Body& body, const Otherwise& otherwise) const {
    unsigned left = present;
    int row = begin * here.groups + group;
    for (int t = begin; t < end; ++t, left >>= 1, row += here.groups) {
      if (left & 1u) {
        body(row);
      } else {
        otherwise(row);
      }
    }
  }
};

// What the threads of step 2 hand each other, in shared memory.
template <int kGroups>
struct Statistics {
  double2 sums[kPieces][kGroups];
  double origin[kGroups];
  Segment before[kGroups];
};

// Sums of each piece, from the tile's first step that is not padded. Replaces the first two numbers of each row by the
// distance of its mean.
template <class Shared>
__device__ __forceinline__ void sum_steps(const Place& here, const Piece& piece, float4* rows, Shared& shared) {
  if (threadIdx.x < here.groups) {
    const int first = here.present ? __ffsll(static_cast<long long>(here.present)) - 1 : 0;
    shared.origin[threadIdx.x] = mean_of(rows[first * here.groups + threadIdx.x]);
  }
  __syncthreads();
  if (!piece.exists()) return;
  const double origin = shared.origin[piece.group];
  double2 sums{0.0, 0.0};
  piece.for_steps(
      here,
      [&](int row) {
        const float4 found = rows[row];
        const double way = mean_of(found) - origin;
        *reinterpret_cast<double*>(rows + row) = way;
        sums.x += way;
        sums.y += static_cast<double>(found.z) + way * way;
      },
      [](int) {});
  shared.sums[piece.index][piece.group] = sums;
}

// Running statistics of the steps: replaces each row by (high M_t, r_t, -low M_t r_t, 1 / r_t), zeros where it is padded,
// and calls note(row, how far M_t is from the mean of the row, from M_{t-1}, r_t, 1 / n_t).
template <class Shared, class Note>
__device__ __forceinline__ void scan_steps(const Place& here, const Piece& piece, float eps, float4* rows,
                                           const Shared& shared, const Note& note) {
  if (!piece.exists()) return;
  const Segment before = shared.before[piece.group];
  const double origin = shared.origin[piece.group], way = before.mean - origin;
  double count = before.count + here.steps_before(piece.begin);
  double2 sums{before.count * way, before.count * (before.variance + way * way)};
  for (int other = 0; other < piece.index; ++other) {
    sums.x += shared.sums[other][piece.group].x;
    sums.y += shared.sums[other][piece.group].y;
  }
  double last = count > 0.0 ? sums.x / count : 0.0;
  piece.for_steps(
      here,
      [&](int at) {
        const double distance = *reinterpret_cast<const double*>(rows + at);
        count += 1.0;
        sums.x += distance;
        sums.y += static_cast<double>(rows[at].z) + distance * distance;
        double share = __fdividef(1.f, static_cast<float>(count));
        share += share * (1.0 - count * share);  // 14 digits
        const double moved = sums.x * share, now = origin + moved;
        const float variance = static_cast<float>(max(sums.y * share - moved * moved, 0.0)) + eps, r = rsqrtf(variance);
        const float high = static_cast<float>(now), low = static_cast<float>(now - static_cast<double>(high));
        rows[at] = make_float4(high, r, -low * r, variance * r);
        note(at, moved - distance, moved - last, r, share);
        last = moved;
      },
      [&](int at) { rows[at] = make_float4(0.f, 0.f, 0.f, 0.f); });
}

}  // namespace fm
