#pragma once
// The scan itself, forward and backward, real and complex; ema_plan.cuh tells how it is divided.
//
// Every thread scans its piece of kSteps steps from zero, for kGroup components at a time, which it holds in registers,
// and leaves the results in shared memory (the slots). A few threads carry the state over the pieces of the tile: each
// slot then holds the state that enters its piece. From there every thread scans its piece again and adds up outputs.
//
// A scan in the gradient runs against time where that of the forward pass runs with it, and keeps a pair (v, z = dv/dq)
// where that keeps u. Three kinds of scan, called sets, share this code: over the rows of coefficients that look into
// the past, over those that look into the future, and over the memory (what is left of the incoming state, or the
// gradient of the final state), which has no input.
//
// A thread keeps the states and coefficients of 16 real components in registers (8 in the gradient), 48 floats. Two
// blocks of 8 warps share a multiprocessor then. That many independent chains of multiply-adds per thread need no more
// warps to keep the arithmetic units busy; fewer per thread would mean reading every input from shared memory more
// often, which is the next limit (one word per lane and clock, against four multiply-adds).
//
// "Cut" means that nothing may pass from the step before, in the order of the scan: bit j is set for step j of a piece.
#include "ema/cuda_plan.cuh"
#include "ema/cuda_rows.cuh"
#include "common/launch.h"

namespace fm {

// State of one component: v, and its derivative z where the gradient is computed.
template <class T, bool kGradient>
struct Memory {
  T v{}, z{};
};

// Coefficients of kGroup components in registers.
template <class T, int kGroup, bool kLag>
struct Group {
  T decay[kGroup], weight[kGroup], lag[kGroup], lag_slope[kGroup];
};

// One scan over the sequence. Its direction is a sign in the order of steps, so that one body of code serves all.
struct Set {
  int index;        // of its carried state: 0, 1
  bool memory;      // no input
  bool descending;  // against time
  bool shift;       // outputs take the state before their step instead of the one after it

  // Step in the piece that comes i-th.
  __device__ __forceinline__ int step(int i) const { return descending ? kSteps - 1 - i : i; }
  // Warp of the block whose piece comes i-th.
  __device__ __forceinline__ int piece(int i, int warps) const { return descending ? warps - 1 - i : i; }
};

// Floats in shared memory that each thread has to itself: a column of each of these, kLanes apart. The offsets are the
// same whatever the number of warps, so that one register tells where a thread's columns are.
constexpr int kColumn = kSteps * kLanes;
constexpr int kColumnStride = kMaxWarps * kColumn;
static_assert(kSlotFloats == kSteps);

// Place in (4, B, K, N).
__device__ __forceinline__ int64_t moment_index(const EmaShape& shape, int part, int64_t sequence, int64_t row, int n) {
  const int64_t rows = shape.bidirectional ? 2 * shape.width : shape.width;
  return ((part * shape.batch + sequence) * rows + row) * shape.n + n;
}

template <class T, bool kGradient, bool kLag>
class EmaScan {
 public:
  static constexpr int kParts = kGradient ? 2 : 1;
  static constexpr int kFloats = sizeof(T) / sizeof(float);
  static constexpr int kGroup = group_size(kFloats, kGradient, kLag);
  static constexpr int kUnroll = 4;  // steps whose inputs are read ahead
  static constexpr int kSlotColumn = 0, kInputColumn = 1, kLaggedColumn = 2;  // as columns() counts them
  static constexpr int kOutputColumn = 2 + kLag, kXColumn = 3 + kLag;
  static constexpr int kCarryParts = kGradient ? 4 : 1;  // v, z, sum x v, sum x z
  using State = Memory<T, kGradient>;
  using Coefficients = Group<T, kGroup, kLag>;

  __device__ __forceinline__ EmaScan(const EmaArguments<T>& arguments, float* shared)
      : a(arguments), shared_(shared), mine_(shared + warp() * kColumn + lane()) {
    const int channel_blocks = a.plan.width / kLanes, block = blockIdx.x;
    channel_ = block % channel_blocks * kLanes + lane();
    segment_ = block / channel_blocks % a.plan.segments;
    sequence_ = block / channel_blocks / a.plan.segments;
  }

  __device__ __forceinline__ void run() {
    if (a.totals && !a.shape.bidirectional && segment_ == (kGradient ? 0 : a.plan.segments - 1)) {
      return;  // nothing comes after it
    }
    const bool ahead = a.totals && a.plan.two_walks;  // the walk of the second set
#pragma unroll 1
    for (int i = 0; i < sets(); ++i) start_carry(set(i));
#pragma unroll 1
    for (int i = 0; i < a.plan.tiles_per_segment; ++i) {
      const int tile = kGradient != ahead ? a.plan.tiles_per_segment - 1 - i : i;
      tile_start_ = (segment_ * a.plan.tiles_per_segment + tile) * a.plan.tile();
      if (tile_start_ >= a.shape.length) continue;
      if (a.plan.two_walks) ahead ? leave_entering(tile) : take_entering(tile);
      run_tile(ahead);
    }
    if (!ahead) finish();
  }

 private:
  __device__ __forceinline__ bool with_memory() const { return !kLag && !a.totals && a.state != nullptr; }
  __device__ __forceinline__ bool exists(int n) const { return channel_ < a.shape.width && n < a.shape.n; }
  __device__ __forceinline__ int row(const Set& set) const {
    return (set.memory ? 0 : set.index * a.plan.width) + channel_;
  }

  __device__ __forceinline__ int sets() const { return a.shape.bidirectional || with_memory() ? 2 : 1; }
  __device__ __forceinline__ Set set(int index) const {
    if (index == 0) return {0, false, kGradient, false};
    if (a.shape.bidirectional) return {1, false, !kGradient, a.shape.shift};
    return {1, true, kGradient, kGradient};
  }

  __device__ __forceinline__ int start() const { return tile_start_ + warp() * kSteps; }

  __device__ __forceinline__ void run_tile(bool ahead) {
    const unsigned padding = load_flags(a.padding, a.shape, sequence_, start());
    stage(a.input, a.shape, sequence_, channel_, start(), kGradient ? 0 : padding, column(kInputColumn));
    if (kGradient && !a.totals) stage(a.x, a.shape, sequence_, channel_, start(), padding, column(kXColumn));
#pragma unroll 1
    for (int i = ahead; i < sets(); ++i) run_set(set(i));
    if (a.totals) return;
    unstage(a.output, a.shape, sequence_, channel_, start(), kGradient ? padding : 0, column(kOutputColumn));
  }

  __device__ __forceinline__ void run_set(const Set& set) {
    const int valid = valid_steps(warp());
    const unsigned border = load_flags(a.reset, a.shape, sequence_, start() + set.descending);
    const unsigned cut = border & ((1u << valid) - 1u);
    if constexpr (kLag) stage_lagged(set);
#pragma unroll 1
    for (int n = 0; n < a.plan.n; n += kGroup) {
      if (kGradient && !a.totals) __syncthreads();  // until the sums of the components before have been read
      if (!set.memory) scan_from_zero(set, n, cut, valid);
      if (lane() == 0) cuts()[warp()] = cut != 0;
      __syncthreads();
#pragma unroll 1
      for (int i = warp(); i < kGroup; i += a.plan.warps) carry_over(set, n, i);
      __syncthreads();
      if (a.totals) continue;
      add_outputs(set, n, cut, valid);
      if constexpr (kGradient) {
        __syncthreads();
#pragma unroll 1
        for (int i = warp(); i < kGroup; i += a.plan.warps) add_sums(set.index, n, i);
      }
    }
  }

  // The input of `truncation` steps before (after, against time), zero where it is in another document.
  __device__ __forceinline__ void stage_lagged(const Set& set) {
    const int reach = static_cast<int>(a.shape.truncation);
    const int source = set.descending ? start() + reach : start() - reach;
    unsigned cleared = kGradient ? 0 : load_flags(a.padding, a.shape, sequence_, source);
    if (a.reset != nullptr) {
      cleared |= ~load_flags(a.lag_ok, a.shape, sequence_, set.descending ? source : start());
    }
    stage(a.input, a.shape, sequence_, channel_, source, cleared, column(kLaggedColumn));
  }

  __device__ __forceinline__ void load_group(Coefficients& group, int n, int row, const T* weight) const {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      const int index = (n + k) * a.plan.rows + row;
      group.decay[k] = a.decay[index];
      if (weight != nullptr) group.weight[k] = weight[index];
      if (kLag) group.lag[k] = a.lag[index];
      if (kLag && kGradient) group.lag_slope[k] = a.lag_slope[index];
    }
  }

  __device__ __forceinline__ static void advance(State& state, const Coefficients& group, int k, float input,
                                                 float lagged) {
    if (kGradient) {
      state.z = multiply_add(group.decay[k], state.z, state.v);
      if (kLag) state.z = multiply_add(group.lag_slope[k], lagged, state.z);
    }
    state.v = multiply_add(group.decay[k], state.v, input);
    if (kLag) state.v = multiply_add(group.lag[k], lagged, state.v);
  }

  __device__ __forceinline__ void scan_from_zero(const Set& set, int n, unsigned cut, int valid) {
    Coefficients group;
    load_group(group, n, row(set), nullptr);
    State state[kGroup];
    if (cut == 0 && valid == kSteps) {
#pragma unroll 1
      for (int start = 0; start < kSteps; start += kUnroll) {
        float input[kUnroll], lagged[kUnroll];
        load_columns(set, start, input, lagged);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) advance_all(state, group, input[i], lagged[i]);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kSteps; ++i) {
        const int j = set.step(i);
        if (j >= valid) continue;
        if (cut >> j & 1) clear(state);
        advance_all(state, group, column(kInputColumn)[j * kLanes], kLag ? column(kLaggedColumn)[j * kLanes] : 0.f);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) put_slot(warp(), k, state[k]);
  }

  __device__ __forceinline__ void load_columns(const Set& set, int start, float (&input)[kUnroll],
                                               float (&lagged)[kUnroll]) const {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int j = set.step(start + i);
      input[i] = set.memory ? 0.f : column(kInputColumn)[j * kLanes];
      lagged[i] = kLag ? column(kLaggedColumn)[j * kLanes] : 0.f;
    }
  }

  __device__ __forceinline__ static void advance_all(State (&state)[kGroup], const Coefficients& group, float input,
                                                     float lagged) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) advance(state[k], group, k, input, lagged);
  }

  __device__ __forceinline__ static void clear(State (&state)[kGroup]) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) state[k] = State{};
  }

  // One component over the pieces of the tile, by the thread that keeps its state from tile to tile.
  __device__ __forceinline__ void carry_over(const Set& set, int first, int i) {
    const int n = first + i, warps = a.plan.warps;
    const unsigned cut = __ballot_sync(kWholeWarp, lane() < warps && cuts()[lane()]);  // bit: warp
    const Transfer<T> whole = load_transfer(a.whole, n, row(set));
    State state = load_carry(set.index, n);
    if (cut == 0 && valid_steps(warps - 1) == kSteps) {
      State added[kMaxWarps];  // read ahead: the loop below is short but for the wait
#pragma unroll
      for (int step = 0; step < kMaxWarps; ++step) {
        if (step < warps && !set.memory) added[step] = get_slot(set.piece(step, warps), i);
      }
#pragma unroll
      for (int step = 0; step < kMaxWarps; ++step) {
        if (step >= warps) break;
        put_slot(set.piece(step, warps), i, state);
        pass(state, whole, added[step]);
      }
    } else {
#pragma unroll 1
      for (int step = 0; step < warps; ++step) {
        const int warp = set.piece(step, warps), valid = valid_steps(warp);
        const State added = set.memory ? State{} : get_slot(warp, i);
        put_slot(warp, i, state);
        if (valid == 0) continue;
        if (cut >> warp & 1) {
          state = added;
        } else {
          pass(state, valid == kSteps ? whole : load_transfer(a.partial, n, row(set)), added);
        }
      }
    }
    if (cut != 0) any_cut_ |= 1 << set.index;
    store_carry(set.index, n, state);
  }

  __device__ __forceinline__ static void pass(State& state, const Transfer<T>& over, const State& added) {
    if (kGradient) state.z = over.apply(state.z, multiply_add(over.slope, state.v, added.z));
    state.v = over.apply(state.v, added.v);
  }

  __device__ __forceinline__ Transfer<T> load_transfer(const TransferTable<T>& table, int n, int row) const {
    const int index = n * a.plan.rows + row;
    return {table.high[index], table.low[index], kGradient ? table.slope[index] : T{}};
  }

  __device__ __forceinline__ void add_outputs(const Set& set, int n, unsigned cut, int valid) {
    Coefficients group;
    load_group(group, n, row(set), set.memory ? a.memory_weight : a.weight);
    State state[kGroup], sums[kGroup];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) state[k] = get_slot(warp(), k);
    const bool fresh = set.index == 0 && n == 0;  // nothing has been added yet
    const bool first_steps = kGradient && set.memory && start() == 0;
    if (cut != 0 || valid != kSteps || set.shift || first_steps) {
#pragma unroll 1
      for (int i = 0; i < kSteps; ++i) {
        const int j = set.step(i);
        if (j >= valid) continue;
        if (cut >> j & 1) clear(state);
        if (first_steps && j == 0) {
#pragma unroll
          for (int k = 0; k < kGroup; ++k) store_first(a.moments_memory, n + k, 0, state[k]);
        }
        const float input = set.memory ? 0.f : column(kInputColumn)[j * kLanes];
        const float lagged = kLag ? column(kLaggedColumn)[j * kLanes] : 0.f;
        float output = fresh ? 0.f : column(kOutputColumn)[j * kLanes];
        if (!set.shift) advance_all(state, group, input, lagged);
        add_output(state, sums, group, kGradient ? column(kXColumn)[j * kLanes] : 0.f, output);
        if (set.shift) advance_all(state, group, input, lagged);
        column(kOutputColumn)[j * kLanes] = output;
      }
    } else {
      add_all_outputs(set, state, sums, group, fresh);
    }
    if constexpr (kGradient) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) put_slot(warp(), k, sums[k]);
    }
  }

  // Without shift, cut, or end of the sequence.
  __device__ __forceinline__ void add_all_outputs(const Set& set, State (&state)[kGroup], State (&sums)[kGroup],
                                                  const Coefficients& group, bool fresh) {
#pragma unroll 1
    for (int start = 0; start < kSteps; start += kUnroll) {
      float input[kUnroll], lagged[kUnroll], x[kUnroll], output[kUnroll];
      load_columns(set, start, input, lagged);
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int j = set.step(start + i);
        x[i] = kGradient ? column(kXColumn)[j * kLanes] : 0.f;
        output[i] = fresh ? 0.f : column(kOutputColumn)[j * kLanes];
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        advance_all(state, group, input[i], lagged[i]);
        add_output(state, sums, group, x[i], output[i]);
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) column(kOutputColumn)[set.step(start + i) * kLanes] = output[i];
    }
  }

  __device__ __forceinline__ static void add_output(const State (&state)[kGroup], State (&sums)[kGroup],
                                                    const Coefficients& group, float x, float& output) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      output = real_multiply_add(group.weight[k], state[k].v, output);
      if (kGradient) {
        sums[k].v = multiply_add(state[k].v, x, sums[k].v);
        sums[k].z = multiply_add(state[k].z, x, sums[k].z);
      }
    }
  }

  __device__ __forceinline__ void add_sums(int set, int first, int i) {
    const int n = first + i;
    T sum_v{}, sum_z{};
#pragma unroll
    for (int warp = 0; warp < kMaxWarps; ++warp) {
      if (warp >= a.plan.warps) break;
      const State state = get_slot(warp, i);
      sum_v = add(sum_v, state.v);
      sum_z = add(sum_z, state.z);
    }
    carry(set, n, 2) = add(carry(set, n, 2), sum_v);
    carry(set, n, 3) = add(carry(set, n, 3), sum_z);
  }

  // ---- what enters and leaves the block ----

  template <class Function>
  __device__ __forceinline__ void for_my_components(Function function) const {
#pragma unroll 1
    for (int first = 0; first < a.plan.n; first += kGroup) {
#pragma unroll 1
      for (int i = warp(); i < kGroup; i += a.plan.warps) function(first + i);
    }
  }

  __device__ __forceinline__ void start_carry(const Set& set) {
    const T* entering = set.memory ? a.memory_states : a.states;
    for_my_components([&](int n) {
      State state;
      if (!a.totals && a.plan.segments > 1) {
        state.v = entering[segment_index(0, n, row(set))];
        if (kGradient) state.z = entering[segment_index(1, n, row(set))];
      } else if (set.memory && exists(n)) {
        state.v = element<T>(a.state, state_index(n));
        if (kGradient) state.v = conjugate(state.v);
      }
      store_carry(set.index, n, state);
      if constexpr (kGradient) carry(set.index, n, 2) = carry(set.index, n, 3) = T{};
    });
  }

  // With two walks: the state with which the second set enters a tile, as its own walk finds it.
  __device__ __forceinline__ void leave_entering(int tile) {
    for_my_components([&](int n) {
      const State state = load_carry(1, n);
      a.states[tile_index(tile, 0, n)] = state.v;
      if (kGradient) a.states[tile_index(tile, 1, n)] = state.z;
    });
  }
  __device__ __forceinline__ void take_entering(int tile) {
    for_my_components([&](int n) {
      State state;
      state.v = a.states[tile_index(tile, 0, n)];
      if (kGradient) state.z = a.states[tile_index(tile, 1, n)];
      store_carry(1, n, state);
    });
  }

  __device__ __forceinline__ void finish() {
    const bool both = a.shape.bidirectional;
    if (a.totals) {
#pragma unroll 1
      for (int i = 0; i < sets(); ++i) finish_totals(set(i));
    } else if (kGradient) {
#pragma unroll 1
      for (int i = 0; i < sets(); ++i) finish_sums(set(i));
      if (segment_ == 0) {
        for_my_components([&](int n) {
          store_first(a.moments, n, 0, both ? State{} : load_carry(0, n));
          if (both) store_first(a.moments, n, a.shape.width, State{});
        });
      }
    } else if (a.final_state != nullptr && segment_ == a.plan.segments - 1) {
      for_my_components([&](int n) {
        if (!exists(n)) return;
        const T memory = with_memory() ? carry(1, n, 0) : T{};
        const float expansion = a.c.expansion[channel_ * a.shape.n + n];
        store_element(a.final_state, state_index(n), multiply_add(carry(0, n, 0), expansion, memory));
      });
    }
  }

  __device__ __forceinline__ void finish_totals(const Set& set) {
    for_my_components([&](int n) {
      const State state = load_carry(set.index, n);
      a.states[segment_index(0, n, row(set))] = state.v;
      if (kGradient) a.states[segment_index(1, n, row(set))] = state.z;
    });
    if (channel_ == 0 && warp() == 0) {
      a.cuts[(sequence_ * a.plan.segments + segment_) * 2 + set.index] = any_cut_ >> set.index & 1;
    }
  }

  __device__ __forceinline__ void finish_sums(const Set& set) {
    T* partial = set.memory ? a.memory_states : a.states;
    float* moments = set.memory ? a.moments_memory : a.moments;
    const int64_t first_row = set.memory ? 0 : set.index * a.shape.width;
    for_my_components([&](int n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const T sum = carry(set.index, n, 2 + part);
        if (a.plan.segments > 1) {
          partial[segment_index(part, n, row(set))] = sum;
        } else if (exists(n)) {
          store_element(moments, moment_index(a.shape, part, sequence_, first_row + channel_, n), sum);
        }
      }
    });
  }

  // v and z at the first step, zero where a document begins there.
  __device__ __forceinline__ void store_first(float* moments, int n, int64_t row_offset, const State& state) const {
    if (!exists(n)) return;
    const bool discarded = a.reset != nullptr && a.reset[sequence_ * a.shape.length];
    const int64_t row = row_offset + channel_;
    store_element(moments, moment_index(a.shape, 2, sequence_, row, n), discarded ? T{} : state.v);
    store_element(moments, moment_index(a.shape, 3, sequence_, row, n), discarded ? T{} : state.z);
  }

  // ---- places ----

  __device__ __forceinline__ int64_t segment_index(int part, int n, int row) const {
    const int64_t segment = sequence_ * a.plan.segments + segment_;
    return ((segment * kParts + part) * a.plan.n + n) * a.plan.rows + row;
  }
  __device__ __forceinline__ int64_t tile_index(int tile, int part, int n) const {
    return (((sequence_ * a.plan.tiles_per_segment + tile) * kParts + part) * a.plan.n + n) * a.plan.width + channel_;
  }
  __device__ __forceinline__ int64_t state_index(int n) const {  // in (B, D, N)
    return (sequence_ * a.shape.width + channel_) * a.shape.n + n;
  }
  __device__ __forceinline__ int valid_steps(int warp) const {
    const int left = static_cast<int>(a.shape.length) - tile_start_ - warp * kSteps;
    return min(max(left, 0), kSteps);
  }
  __device__ __forceinline__ float* column(int which) const { return mine_ + which * kColumnStride; }
  __device__ __forceinline__ int* cuts() const {
    return reinterpret_cast<int*>(shared_ + columns(kGradient, kLag, a.totals) * kColumnStride);
  }
  // Slots are columns too, of any warp, but this lane.
  __device__ __forceinline__ float* slot(int warp, int k) const {
    return shared_ + kSlotColumn * kColumnStride + warp * kColumn + k * (kParts * kFloats * kLanes) + lane();
  }
  __device__ __forceinline__ void put_slot(int warp, int k, const State& state) {
    put(slot(warp, k), state.v);
    if (kGradient) put(slot(warp, k) + kFloats * kLanes, state.z);
  }
  __device__ __forceinline__ State get_slot(int warp, int k) const {
    State state;
    get(slot(warp, k), state.v);
    if (kGradient) get(slot(warp, k) + kFloats * kLanes, state.z);
    return state;
  }
  __device__ __forceinline__ T& carry(int set, int n, int part) const {
    T* in_shared = reinterpret_cast<T*>(cuts() + kMaxWarps);
    T* in_memory = a.carry + blockIdx.x * (a.plan.carry_bytes / static_cast<int64_t>(sizeof(T)));
    const int index = ((set * a.plan.n + n) * kCarryParts + part) * kLanes + lane();
    return (a.plan.carry_in_shared ? in_shared : in_memory)[index];
  }
  __device__ __forceinline__ State load_carry(int set, int n) {
    State state;
    state.v = carry(set, n, 0);
    if (kGradient) state.z = carry(set, n, 1);
    return state;
  }
  __device__ __forceinline__ void store_carry(int set, int n, const State& state) {
    carry(set, n, 0) = state.v;
    if (kGradient) carry(set, n, 1) = state.z;
  }

  const EmaArguments<T>& a;
  float *shared_, *mine_;
  int channel_, segment_, tile_start_ = 0;
  int64_t sequence_;
  int any_cut_ = 0;  // a bit per set
};

template <class T, bool kGradient, bool kLag>
__global__ void __launch_bounds__(kMaxWarps* kLanes, 2)
    ema_scan_kernel(const __grid_constant__ EmaArguments<T> a) {
  FM_DYNAMIC_SHARED(float, shared);
  EmaScan<T, kGradient, kLag>(a, shared).run();
}

}  // namespace fm
