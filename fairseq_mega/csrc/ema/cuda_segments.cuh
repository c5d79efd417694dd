#pragma once
// The small kernels around ema_scan_kernel: borders of documents within reach, and states over segments.
#include "ema/cuda_plan.cuh"
#include "ema/cuda_rows.cuh"
#include "common/launch.h"

namespace fm {

constexpr int kSmallBlock = 128;
constexpr int kAhead = 8;  // segments read before they are needed, as one thread walks over them all

// A component and row of coefficients of one sequence: one thread each.
struct Place {
  int64_t sequence = 0, channel = 0;
  int n = 0, row = 0, direction = 0;
  bool inside = false;  // of the arrays
  bool exists = false;  // and not one of those added to round up

  template <class T>
  __device__ __forceinline__ Place(const EmaArguments<T>& a, int64_t sequences) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kSmallBlock + threadIdx.x;
    row = static_cast<int>(thread % a.plan.rows);
    n = static_cast<int>(thread / a.plan.rows % a.plan.n);
    sequence = thread / a.plan.rows / a.plan.n;
    direction = row / a.plan.width;
    channel = row % a.plan.width;
    inside = sequence < sequences;
    exists = inside && channel < a.shape.width && n < a.shape.n;
  }
  template <class T>
  __device__ __forceinline__ int64_t coefficient(const EmaArguments<T>& a) const {
    return (direction * a.shape.width + channel) * a.shape.n + n;
  }
};

// lag_ok[t]: whether no document begins in t - reach + 1 .. t. A warp has kLanes steps and looks back from them.
static __global__ void __launch_bounds__(kSmallBlock) ema_lag_kernel(const bool* reset, bool* lag_ok, int64_t batch,
                                                                     int64_t length, int64_t reach) {
  const int64_t warps = (length + kLanes - 1) / kLanes;  // of a sequence
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kSmallBlock + threadIdx.x) / kLanes;
  if (warp >= batch * warps) return;
  const int64_t sequence = warp / warps, start = warp % warps * kLanes, t = start + lane();
  const bool* borders = reset + sequence * length;
  const unsigned here = __ballot_sync(kWholeWarp, t < length && borders[t]);
  int64_t latest = -1;  // border before these steps that is near enough to count
  for (int64_t back = start - kLanes; back >= 0 && back + kLanes - 1 > start - reach; back -= kLanes) {
    const unsigned there = __ballot_sync(kWholeWarp, borders[back + lane()]);
    if (there == 0) continue;
    latest = back + kLanes - 1 - __clz(static_cast<int>(there));
    break;
  }
  const unsigned up_to_me = here & (kWholeWarp >> (kLanes - 1 - lane()));
  if (up_to_me != 0) latest = start + kLanes - 1 - __clz(static_cast<int>(up_to_me));
  if (t < length) lag_ok[sequence * length + t] = latest < 0 || t - latest >= reach;
}

// From what each segment adds to the state (a.states) to the state that enters each segment, in the same place; and
// the memory that enters each segment.
template <class T, bool kGradient>
class SegmentWalk {
 public:
  __device__ __forceinline__ SegmentWalk(const EmaArguments<T>& a, const Place& place)
      : a(a), place(place), descending_((place.direction == 1) != kGradient) {
    if (!place.exists) return;
    log_decay_ = log_decay_of(a, place.coefficient(a));
    over_ = transfer(log_decay_, a.plan.segment());
  }

  __device__ __forceinline__ void carry_states() {
    T v{}, z{};
    for (int start = 0; start < a.plan.segments; start += kAhead) {
      T added_v[kAhead], added_z[kAhead];
      bool cut[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        // What the last segment adds goes nowhere, and may not have been computed.
        if (start + i >= a.plan.segments - 1) break;
        added_v[i] = a.states[index(start + i, 0)];
        if (kGradient) added_z[i] = a.states[index(start + i, 1)];
        cut[i] = is_cut(start + i);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (start + i >= a.plan.segments) break;
        a.states[index(start + i, 0)] = v;
        if (kGradient) a.states[index(start + i, 1)] = z;
        if (start + i == a.plan.segments - 1) break;
        if (cut[i]) v = z = T{};
        if (kGradient) z = over_.apply(z, multiply_add(over_.slope, v, added_z[i]));
        v = over_.apply(v, added_v[i]);
      }
    }
  }

  __device__ __forceinline__ void carry_memory() {
    T v{}, z{};
    if (place.exists) {
      v = element<T>(a.state, (place.sequence * a.shape.width + place.channel) * a.shape.n + place.n);
      if (kGradient) v = conjugate(v);
    }
    for (int i = 0; i < a.plan.segments; ++i) {
      a.memory_states[index(i, 0)] = v;
      if (kGradient) a.memory_states[index(i, 1)] = z;
      if (i == a.plan.segments - 1) break;
      if (is_cut(i)) v = z = T{};
      const bool shorter = kGradient && i == 0;  // the last in time
      const Transfer<T> over = shorter && place.exists
                                   ? transfer(log_decay_, a.shape.length - (a.plan.segments - 1) * a.plan.segment())
                                   : over_;
      if (kGradient) z = over.apply(z, multiply_add(over.slope, v, T{}));
      v = over.apply(v, T{});
    }
  }

 private:
  __device__ __forceinline__ int64_t segment(int i) const {
    return place.sequence * a.plan.segments + (descending_ ? a.plan.segments - 1 - i : i);
  }
  __device__ __forceinline__ int64_t index(int i, int part) const {
    return ((segment(i) * (kGradient ? 2 : 1) + part) * a.plan.n + place.n) * a.plan.rows + place.row;
  }
  __device__ __forceinline__ bool is_cut(int i) const { return a.cuts[segment(i) * 2 + place.direction] != 0; }

  const EmaArguments<T>& a;
  const Place& place;
  bool descending_;
  T log_decay_{};
  Transfer<T> over_{};
};

template <class T, bool kGradient>
__global__ void __launch_bounds__(kSmallBlock) ema_carry_kernel(const __grid_constant__ EmaArguments<T> a) {
  const Place place(a, a.shape.batch);
  if (!place.inside) return;
  SegmentWalk<T, kGradient> walk(a, place);
  walk.carry_states();
  if (a.state != nullptr) walk.carry_memory();
}

}  // namespace fm
