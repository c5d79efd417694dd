#pragma once
// How a scan is divided among blocks, and where its intermediate results lie in the workspace.
//
// A block of threads works on 32 channels of one sequence: lane = channel, so that a row of x is read in one piece;
// warp = piece of kSteps consecutive steps. The pieces of a block, one behind the other, are a tile.
//
// Where there are enough sequences and channels to fill the GPU, one block walks over the whole sequence tile by tile
// (one segment). Where both directions are wanted, it first walks against the order of its outputs and leaves the state
// that enters each tile from the other side (ema_scan_kernel with totals).
//
// Elsewhere the sequence is cut into segments of one or more tiles (one where both directions are wanted), and there
// are three launches: what each segment adds to the state (ema_scan_kernel with totals), the state that enters each
// segment (ema_carry_kernel), the outputs (ema_scan_kernel). A second reading of x is the price. Sums over time go
// through a fourth, ema_sum_kernel. Which it is to be: ema_division.h.
#include <algorithm>

#include "ema/cuda_number.cuh"

namespace fm {

constexpr int kSlotFloats = 16;  // per thread, in shared memory: what pieces hand to their successors
constexpr int kMaxSharedCarry = 32 << 10;

// Components that a thread holds in registers, and whose states are exchanged between two barriers: as many as fit in
// kSlotFloats floats. Their number is rounded up to it; the ones added are zero.
constexpr int group_size(int floats, bool gradient, bool lag) {
  return kSlotFloats / (floats * (gradient ? 2 : 1) * (lag ? 2 : 1));
}

// Arrays of kSteps floats per thread in shared memory: slots, input, delayed input, output, x.
__host__ __device__ constexpr int columns(bool gradient, bool lag, bool totals) {
  return 2 + lag + (totals ? 0 : 1 + gradient);
}

struct EmaPlan {
  int warps = 0;
  int tiles_per_segment = 0, segments = 0;
  int n = 0;               // N rounded up
  int width = 0;           // D rounded up to kLanes
  int rows = 0;            // width, or 2 width if bidirectional
  int sets = 0;            // scans over the sequence: past, and future or memory (of a state that comes in)
  bool two_walks = false;  // one segment, both directions, several tiles
  bool carry_in_shared = false;
  int64_t blocks = 0;      // of threads, of the main kernel
  int64_t carry_bytes = 0;  // per block

  __host__ __device__ int tile() const { return warps * kSteps; }
  __host__ __device__ int64_t segment() const { return static_cast<int64_t>(tiles_per_segment) * tile(); }
};

// Dynamic shared memory: columns, what warps tell each other of cuts, carried states.
inline int64_t shared_bytes(const EmaPlan& plan, bool gradient, bool lag, bool totals) {
  const int64_t column = kMaxWarps * kSteps * kLanes * static_cast<int64_t>(sizeof(float));
  return columns(gradient, lag, totals) * column + kMaxWarps * static_cast<int64_t>(sizeof(int)) +
         (plan.carry_in_shared ? plan.carry_bytes : 0);
}

// Transfer<T> of every component and row.
template <class T>
struct TransferTable {
  T *high, *low, *slope;
};

// Everything a kernel needs; T = float or Complex.
template <class T>
struct EmaArguments {
  EmaShape shape;
  EmaPlan plan;
  EmaCoefficients c;
  bool totals;          // only what the segments add to the state, or with two walks what enters the tiles
  const void* input;    // what is scanned: x, or grad_y
  const void* x;        // for the gradient
  void* output;         // y, or grad_x
  const float* state;   // into the memory scan: the incoming state, or the final state's gradient
  const bool* padding;
  const bool* reset;
  float* final_state;
  float* moments;
  float* moments_memory;

  // Tables (n, rows), channels side by side, zero for channels and components that do not exist.
  T *decay, *weight, *memory_weight, *lag, *lag_slope;
  TransferTable<T> whole, partial;  // over kSteps steps, and over the length's remainder
  T* states;         // (batch, segments, 1 or 2, n, rows): the totals of segments, then what enters them, then sums;
                     // with two walks (batch, tiles, 1 or 2, n, width): what enters the tiles of the second set
  T* memory_states;  // the same for the memory scan
  T* carry;          // carry_bytes per block, unless it is in shared memory
  int* cuts;         // (batch, segments, 2): whether a past/future scan is cut anywhere in the segment
  bool* lag_ok;      // (batch, length): whether t - truncation is in the same document as t
};

}  // namespace fm
