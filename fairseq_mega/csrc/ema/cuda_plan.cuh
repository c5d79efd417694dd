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
// segment (ema_carry_kernel), the outputs (ema_scan_kernel). A second reading of x is the price. Which it is to be:
// ema_division.h. In the gradient the last block of some channels adds up the sums over time of all of them.
#include <algorithm>

#include "ema/cuda_number.cuh"

namespace fm {

constexpr int kSlotFloats = 16;  // per thread, in shared memory: what pieces hand to their successors
constexpr int kMaxSharedRecords = 80 << 10;  // two blocks share a multiprocessor's memory

// Components that a thread holds in registers, and whose states are exchanged between two barriers: as many as fit in
// kSlotFloats floats. Their number is rounded up to it; the ones added are zero.
constexpr int group_size(int floats, bool gradient, bool lag) {
  return kSlotFloats / (floats * (gradient ? 2 : 1) * (lag ? 2 : 1));
}

// What a block keeps of a component and channel of a set: coefficients, the decay over kSteps steps in two floats, the
// carried state; in the gradient its derivatives and sums; with truncation what a lagged input adds.
enum Record { kDecay, kWeight, kHigh, kLow, kValue, kDerivative, kSumValue, kSumDerivative, kSlope };
__host__ __device__ constexpr int lag_record(bool gradient) { return gradient ? kSlope + 1 : kValue + 1; }
constexpr int record_size(bool gradient, bool lag) { return lag_record(gradient) + (lag ? 1 + gradient : 0); }

struct EmaPlan {
  int warps = 0;
  int tiles_per_segment = 0, segments = 0;
  int n = 0;               // N rounded up
  int width = 0;           // D rounded up to kLanes
  int rows = 0;            // width, or 2 width if bidirectional
  bool two_walks = false;  // one segment, both directions, several tiles
  bool records_in_shared = false;
  int64_t blocks = 0;        // of threads, of the main kernel
  int64_t record_bytes = 0;  // per block

  __host__ __device__ int tile() const { return warps * kSteps; }
  __host__ __device__ int64_t segment() const { return static_cast<int64_t>(tiles_per_segment) * tile(); }
};

// Dynamic shared memory: slots, sums of every thread, what warps tell each other of cuts, records.
constexpr int kFixedFloats = kMaxWarps * (kSlotFloats + 1) * kLanes;
inline int64_t shared_bytes(const EmaPlan& plan) {
  const int64_t fixed = (kFixedFloats + kMaxWarps) * static_cast<int64_t>(sizeof(float));
  return fixed + (plan.records_in_shared ? plan.record_bytes : 0);
}

// Everything a kernel needs; T = float or Complex.
template <class T>
struct EmaArguments {
  EmaShape shape;
  EmaPlan plan;
  EmaCoefficients c;
  EmaGate gate;
  bool totals;          // only what the segments add to the state, or with two walks what enters the tiles
  const void* input;    // what is scanned: x, or grad_y
  const void* x;        // for the gradient
  void* output;         // y, or grad_x
  const float* state;   // into the memory scan: the incoming state, or the final state's gradient
  const bool* padding;
  const bool* reset;
  float* final_state;
  const float* incoming;  // for the gradient, the state before the first step; may be null
  EmaCoefficientGradients made;

  T* states;         // (batch, segments, 1 or 2, n, rows): the totals of segments, then what enters them;
                     // with two walks (batch, tiles, 1 or 2, n, width): what enters the tiles of the second set
  T* memory_states;  // the same for the memory scan
  T* sums[2];        // of blocks (batch, segments, 2, n, rows), also of the memory scan: sum_t x_t v_t, sum_t x_t z_t
  float* omega_sums; // of blocks (batch, segments, width): sum_t x_t times the gradient of y_t + omega x_t
  T* first[2];       // (batch, 2, n, width): v_0 and z_0 where there is an incoming state
  T* records;        // record_bytes per block, unless they are in shared memory
  int* cuts;         // (batch, segments, 2): whether a past/future scan is cut anywhere in the segment
  bool* lag_ok;      // (batch, length): whether t - truncation is in the same document as t
};

__device__ __forceinline__ float no_memory(float) { return -INFINITY; }
__device__ __forceinline__ Complex no_memory(Complex) { return {-INFINITY, 0.f}; }

// Where only lag 0 counts, a decay of zero says so without rounding errors.
template <class T>
__device__ __forceinline__ T log_decay_of(const EmaArguments<T>& a, int64_t coefficient) {
  return a.shape.truncation == 1 ? no_memory(T{}) : element<T>(a.c.log_decay, coefficient);
}

}  // namespace fm
