#pragma once
// The scan itself, forward and backward, real and complex; cuda_plan.cuh tells how it is divided.
//
// Every thread holds its piece of kSteps steps in registers: inputs, outputs, and kGroup components at a time. It scans
// the piece from zero and leaves the results in shared memory (the slots). A few threads carry the state over the pieces
// of the tile: each slot then holds the state that enters its piece. From there every thread scans its piece again and
// adds up outputs.
//
// A scan in the gradient runs against time where that of the forward pass runs with it, and keeps a pair (v, z = dv/dq)
// where that keeps u. Three kinds of scan, called sets, share this code: over the rows of coefficients that look into
// the past, over those that look into the future, and over the memory (what is left of the incoming state, or the
// gradient of the final state), which has no input.
//
// Pieces that are whole and have no border of documents take a straight line of instructions. With 128 registers a
// thread two blocks of 8 warps share a multiprocessor (one in the gradient with truncation, which needs more); so many
// independent chains of multiply-adds need no more warps to keep the arithmetic units busy.
//
// Steps of a piece are counted in the order of the scan. "Cut" means that nothing may pass from the step before.
#include "ema/cuda_plan.cuh"
#include "ema/cuda_rows.cuh"
#include "common/last_block.cuh"

namespace fm {

// State of one component: v, and its derivative z where the gradient is computed.
template <class T, bool kGradient>
struct Memory {
  T v{}, z{};
};

// Of kGroup components in registers.
template <class T, int kGroup>
struct Group {
  T decay[kGroup], weight[kGroup], lag[kGroup], lag_slope[kGroup];
};

// One scan over the sequence.
struct Set {
  int index;        // of its records: 0, 1
  bool memory;      // no input
  bool descending;  // against time
  bool shift;       // outputs take the state before their step instead of the one after it
};

// Which steps of a piece are in the sequence (upper half) and which are cut (lower half), from the first on.
struct Steps {
  unsigned bits;

  __device__ __forceinline__ bool plain() const { return bits == 0xffff0000u; }
  __device__ __forceinline__ bool present(int i) const { return bits >> (kSteps + i) & 1; }
  __device__ __forceinline__ bool cut(int i) const { return bits >> i & 1; }
  // The same, not known before: else every bit would have a register of its own all the time.
  __device__ __forceinline__ Steps anew() const {
    Steps steps = *this;
    asm volatile("" : "+r"(steps.bits));
    return steps;
  }
  __device__ __forceinline__ bool any_cut() const { return (bits & 0xffffu) != 0; }
};
static_assert(kSteps == 16);

// What a thread knows of its piece, in the order of the scan.
struct Values {
  float input[kSteps], lagged[kSteps], x[kSteps], output[kSteps];  // lagged: of `truncation` steps before
};

__device__ __forceinline__ void reverse(float (&values)[kSteps]) {
#pragma unroll
  for (int i = 0; i < kSteps / 2; ++i) {
    const float other = values[kSteps - 1 - i];
    values[kSteps - 1 - i] = values[i];
    values[i] = other;
  }
}

__device__ __forceinline__ void set_zero(float (&values)[kSteps]) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) values[i] = 0.f;
}

struct alignas(16) Four {
  float values[4];
};

constexpr int kSlotFours = kSlotFloats / 4;  // of a thread

template <class T, bool kGradient, bool kLag>
class EmaScan {
 public:
  static constexpr int kParts = kGradient ? 2 : 1;
  static constexpr int kFloats = sizeof(T) / sizeof(float);
  static constexpr int kGroup = group_size(kFloats, kGradient, kLag);
  static constexpr int kRecords = record_size(kGradient, kLag), kLagRecord = lag_record(kGradient);
  // Slots are read and written by fours of floats: these are of so many components.
  static constexpr int kTogether = 4 / (kParts * kFloats);
  // Whether a group may stay in registers from tile to tile: where all components are one, and registers are free.
  static constexpr bool kKept = !kGradient && !kLag;
  using State = Memory<T, kGradient>;
  struct Several {
    State of[kTogether];
  };

  __device__ __forceinline__ EmaScan(const EmaArguments<T>& arguments, float* shared)
      : a(arguments), slots_(reinterpret_cast<Four*>(shared) + lane()) {
    const int channel_blocks = a.plan.width / kLanes, block = blockIdx.x;
    channel_ = block % channel_blocks * kLanes + lane();
    segment_ = block / channel_blocks % a.plan.segments;
    sequence_ = block / channel_blocks / a.plan.segments;
    T* in_memory = a.records + blockIdx.x * (a.plan.record_bytes / static_cast<int64_t>(sizeof(T)));
    records_ = (a.plan.records_in_shared ? reinterpret_cast<T*>(cuts() + kMaxWarps) : in_memory) + lane();
  }

  __device__ __forceinline__ void run() {
    if (a.totals && !a.shape.bidirectional && segment_ == (kGradient ? 0 : a.plan.segments - 1)) {
      return;  // nothing comes after it
    }
    const bool ahead = a.totals && a.plan.two_walks;  // the walk of the second set
    if (kGradient) *omega_sum(warp()) = 0.f;
#pragma unroll 1
    for (int i = 0; i < sets(); ++i) start_records(set(i));
    __syncthreads();
    const bool backwards = kGradient != ahead;
    tile_ = segment_ * a.plan.tiles_per_segment + (backwards ? a.plan.tiles_per_segment - 1 : 0);
#pragma unroll 1
    do {
      if (valid_steps(0) > 0) {
        if (a.plan.two_walks) ahead ? leave_entering() : take_entering();
        run_tile(ahead);
      }
      tile_ += backwards ? -1 : 1;
    } while (static_cast<unsigned>(tile_ - segment_ * a.plan.tiles_per_segment) <
             static_cast<unsigned>(a.plan.tiles_per_segment));
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

  __device__ __forceinline__ int start() const { return (tile_ * a.plan.warps + warp()) * kSteps; }
  __device__ __forceinline__ Piece piece(const Set& set, int delay = 0) const {
    return {a.shape, sequence_, channel_, start() - delay, set.descending};
  }

  __device__ __forceinline__ unsigned padding_at(int first) const {
    return load_flags(a.padding, a.shape, sequence_, first);
  }

  __device__ __forceinline__ void run_tile(bool ahead) {
    Values values;
    load(set(ahead), values);
    start_outputs(values);
    clear_padding(set(ahead), values);
#pragma unroll 1
    for (int i = ahead;;) {
      run_set(set(i), values);
      if (++i == sets()) break;
      turn(values);
    }
    if (!a.totals) store(piece(set(sets() - 1)), values);
  }

  __device__ __forceinline__ void load(const Set& set, Values& values) const {
    load_input(piece(set), values.input, kGradient && !a.totals, values.x);
  }
  __device__ __forceinline__ void clear_padding(const Set& set, Values& values) const {
    piece(set).clear(padding_at(start()), kGradient ? values.x : values.input);
  }

  // x, or the gradient of y + omega x, which x itself may go with.
  __device__ __forceinline__ void load_input(const Piece& piece, float (&values)[kSteps], bool with_x,
                                             float (&x)[kSteps]) const {
    const bool behind_silu = kGradient && a.gate.activated;
    piece.with_type([&](auto type) {
      using Element = decltype(type);
      piece.template load<Element>(a.input, values);
      if (with_x) piece.template load<Element>(a.x, x);
      if (!behind_silu) return;
      float sum[kSteps];  // of one type: else it would be spilled
      piece.template load<Element>(a.gate.sum, sum);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const float s = fast_sigmoid(sum[i]);
        values[i] *= s * (1.f + sum[i] * (1.f - s));
      }
    });
    if (behind_silu) piece.drop(a.gate.dropping, values);
  }

  // omega x, or its gradient; to which the scan adds.
  __device__ __forceinline__ void start_outputs(Values& values) const {
    if (a.totals || a.gate.omega == nullptr) {
      set_zero(values.output);
      return;
    }
    const float omega = this->omega();
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      values.output[i] = omega * values.input[i];
      if (kGradient) sum += values.input[i] * values.x[i];
    }
    if (kGradient) *omega_sum(warp()) += sum;
  }
  __device__ __forceinline__ float omega() const {
    return a.gate.omega[min(channel_, static_cast<int>(a.shape.width) - 1)];
  }

  __device__ __forceinline__ void store(const Piece& piece, Values& values) const {
    if constexpr (kGradient) {
      const unsigned padding = padding_at(start());
      piece.clear(padding, values.output);
      if (padding != 0 && a.gate.omega != nullptr) {  // the skip alone; no gradient of a state has cleared the input
        const float omega = this->omega();
        piece.clear(~padding, values.input);
#pragma unroll
        for (int i = 0; i < kSteps; ++i) values.output[i] += omega * values.input[i];
      }
    } else if (a.gate.activated) {
      if (a.gate.sum != nullptr) store(piece, a.gate.sum, values.output);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) values.output[i] *= fast_sigmoid(values.output[i]);
      piece.drop(a.gate.dropping, values.output);
    }
    store(piece, a.output, values.output);
  }
  __device__ __forceinline__ void store(const Piece& piece, void* data, const float (&values)[kSteps]) const {
    if (channel_ >= a.shape.width) return;
    piece.with_type([&](auto type) { piece.template store<decltype(type)>(data, values); });
  }

  // From the order, or the input, of the first set to that of the second. With truncation, where there is no memory,
  // registers are too few to turn all around.
  __device__ __forceinline__ void turn(Values& values) const {
    set_zero(values.lagged);  // no longer needed
    if constexpr (kLag) {
      reverse(values.output);
      load(set(1), values);
      clear_padding(set(1), values);
    } else if (a.shape.bidirectional) {
      reverse(values.input);
      if (kGradient) reverse(values.x);
      reverse(values.output);
    } else {
      set_zero(values.input);
    }
  }

  __device__ __forceinline__ void run_set(const Set& set, Values& values) {
    if constexpr (kLag) load_lagged(set, values);
    const Steps steps = steps_of(set);
#pragma unroll 1
    for (int n = 0; n < a.plan.n; n += kGroup) {
      if (kGradient && !a.totals) __syncthreads();  // until the sums of the components before have been read
      load_group(set, n);
      State state[kGroup];
      if (!set.memory) {
        steps.plain() ? scan_from_zero<true>(values, steps, state) : scan_from_zero<false>(values, steps.anew(), state);
        put_slots(state);
      }
      if (lane() == 0) cuts()[warp()] = steps.any_cut();
      __syncthreads();
      carry_over(set, n);
      __syncthreads();
      if (a.totals) continue;
      add_outputs(set, n, steps, values);
      if constexpr (kGradient) {
        __syncthreads();
        add_sums(set.index, n);
      }
    }
  }

  __device__ __forceinline__ Steps steps_of(const Set& set) const {
    const unsigned present = (1u << valid_steps(warp())) - 1u;
    const unsigned cut = load_flags(a.reset, a.shape, sequence_, start() + set.descending) & present;
    if (!set.descending) return {present << kSteps | cut};
    return {Piece::reversed(present) << kSteps | Piece::reversed(cut)};
  }

  // The input of `truncation` steps before (after, against time), zero where it is in another document.
  __device__ __forceinline__ void load_lagged(const Set& set, Values& values) {
    const int reach = static_cast<int>(a.shape.truncation), delay = set.descending ? -reach : reach;
    const int source = start() - delay;
    unsigned cleared = kGradient ? 0 : padding_at(source);
    if (a.reset != nullptr) {
      cleared |= ~load_flags(a.lag_ok, a.shape, sequence_, set.descending ? source : start());
    }
    load_input(piece(set, delay), values.lagged, false, values.x);
    piece(set, delay).clear(cleared, values.lagged);
  }

  __device__ __forceinline__ void load_group(const Set& set, int n) {
    if constexpr (kKept) {
      const int wanted = set.index * a.plan.n + n;
      if (wanted == held_) return;
      held_ = wanted;
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      group_.decay[k] = record(set.index, n + k, kDecay);
      group_.weight[k] = record(set.index, n + k, kWeight);
      if (kLag) group_.lag[k] = record(set.index, n + k, kLagRecord);
      if (kLag && kGradient) group_.lag_slope[k] = record(set.index, n + k, kLagRecord + 1);
    }
  }

  __device__ __forceinline__ void advance(State (&state)[kGroup], const Values& values, int i) const {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      if (kGradient) {
        state[k].z = multiply_add(group_.decay[k], state[k].z, state[k].v);
        if (kLag) state[k].z = multiply_add(group_.lag_slope[k], values.lagged[i], state[k].z);
      }
      state[k].v = multiply_add(group_.decay[k], state[k].v, values.input[i]);
      if (kLag) state[k].v = multiply_add(group_.lag[k], values.lagged[i], state[k].v);
    }
  }

  __device__ __forceinline__ static void clear(State (&state)[kGroup]) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) state[k] = State{};
  }

  template <bool kPlain>
  __device__ __forceinline__ void scan_from_zero(const Values& values, const Steps& steps,
                                                 State (&state)[kGroup]) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (!kPlain && !steps.present(i)) continue;
      if (!kPlain && steps.cut(i)) clear(state);
      advance(state, values, i);
    }
  }

  // Over the pieces of the tile, each component by the thread that keeps its state from tile to tile.
  __device__ __forceinline__ void carry_over(const Set& set, int first) {
    const int warps = a.plan.warps;
    const unsigned cut = __ballot_sync(kWholeWarp, lane() < warps && cuts()[lane()]);  // bit: warp
    if (cut != 0) note_cut(set, 1);
    if (cut == 0 && warps == kMaxWarps && valid_steps(kMaxWarps - 1) == kSteps) {
      set.descending ? carry_over_all<true>(set, first) : carry_over_all<false>(set, first);
      return;
    }
    for_my_components(first, first + kGroup, [&](int n) {
      State state = load(set.index, n);
#pragma unroll 1
      for (int step = 0; step < warps; ++step) {
        const int warp = set.descending ? warps - 1 - step : step, valid = valid_steps(warp);
        float* const place = slot(warp, n - first);
        const State added = set.memory ? State{} : get_state(place);
        put_state(place, state);
        if (cut >> warp & 1) {
          state = added;
        } else if (valid == kSteps) {
          pass(state, whole(set, n), added);
        } else {
#pragma unroll 1
          for (int j = 0; j < valid; ++j) step_on(state, record(set.index, n, kDecay));
          if (valid > 0) state = both(state, added);
        }
      }
      store(set.index, n, state);
    });
  }

  // The same for as many pieces as there may be, which are whole and without cuts.
  template <bool kDescending>
  __device__ __forceinline__ void carry_over_all(const Set& set, int first) {
    const int i = warp() * kTogether, n = first + i;
    if (i >= kGroup) return;
    Transfer<T> over[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) over[k] = whole(set, n + k);
    Several state = load_several(set.index, n);
    constexpr int kAhead = 4;  // pieces whose slots are read before they are needed
#pragma unroll
    for (int start = 0; start < kMaxWarps; start += kAhead) {
      Several added[kAhead];
      const auto piece = [&](int step) { return kDescending ? kMaxWarps - 1 - start - step : start + step; };
#pragma unroll
      for (int step = 0; step < kAhead; ++step) {
        if (!set.memory) added[step] = get_slot(piece(step), i);
      }
#pragma unroll
      for (int step = 0; step < kAhead; ++step) {
        put_slot(piece(step), i, state);
#pragma unroll
        for (int k = 0; k < kTogether; ++k) pass(state.of[k], over[k], added[step].of[k]);
      }
    }
    store_several(set.index, n, state);
  }

  __device__ __forceinline__ static void step_on(State& state, T decay) {
    if (kGradient) state.z = multiply_add(decay, state.z, state.v);
    state.v = multiply_add(decay, state.v, T{});
  }
  __device__ __forceinline__ static void pass(State& state, const Transfer<T>& over, const State& added) {
    if (kGradient) state.z = over.apply(state.z, multiply_add(over.slope, state.v, added.z));
    state.v = over.apply(state.v, added.v);
  }

  __device__ __forceinline__ Transfer<T> whole(const Set& set, int n) const {
    return {record(set.index, n, kHigh), record(set.index, n, kLow), kGradient ? record(set.index, n, kSlope) : T{}};
  }
  __device__ __forceinline__ void add_outputs(const Set& set, int n, const Steps& steps, Values& values) {
    State state[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; i += kTogether) {
      const Several found = get_slot(warp(), i);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) state[i + k] = found.of[k];
    }
    const bool first_steps = kGradient && set.memory && start() == 0;
    if (steps.plain() && !first_steps) {
      set.shift ? add_outputs<true, true>(n, steps, false, state, values)
                : add_outputs<true, false>(n, steps, false, state, values);
    } else {
      set.shift ? add_outputs<false, true>(n, steps.anew(), first_steps, state, values)
                : add_outputs<false, false>(n, steps.anew(), first_steps, state, values);
    }
  }

  template <bool kPlain, bool kShift>
  __device__ __forceinline__ void add_outputs(int n, const Steps& steps, bool first_steps, State (&state)[kGroup],
                                              Values& values) {
    State sums[kGroup];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (!kPlain && !steps.present(i)) continue;
      if (!kPlain && steps.cut(i)) clear(state);
      if (!kPlain && kShift && i == kSteps - 1 && first_steps) {  // the last against time
#pragma unroll
        for (int k = 0; k < kGroup; ++k) store_first(1, n + k, state[k]);
      }
      if (!kShift) advance(state, values, i);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        values.output[i] = real_multiply_add(group_.weight[k], state[k].v, values.output[i]);
        if (kGradient) {
          sums[k].v = multiply_add(state[k].v, values.x[i], sums[k].v);
          sums[k].z = multiply_add(state[k].z, values.x[i], sums[k].z);
        }
      }
      if (kShift) advance(state, values, i);
    }
    if (kGradient) put_slots(sums);
  }

  __device__ __forceinline__ void add_sums(int set, int first) {
#pragma unroll 1
    for (int i = warp() * kTogether; i < kGroup; i += a.plan.warps * kTogether) {
      Several sums;
#pragma unroll
      for (int warp = 0; warp < kMaxWarps; ++warp) {
        if (warp >= a.plan.warps) break;
        const Several more = get_slot(warp, i);
#pragma unroll
        for (int k = 0; k < kTogether; ++k) sums.of[k] = both(sums.of[k], more.of[k]);
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        store(set, first + i + k, both(load(set, first + i + k, kSumValue), sums.of[k]), kSumValue);
      }
    }
  }
  __device__ __forceinline__ static State both(const State& a, const State& b) {
    return {add(a.v, b.v), add(a.z, b.z)};
  }

  // ---- what enters and leaves the block ----

  // Every component is some warp's, which keeps its records.
  template <class Function>
  __device__ __forceinline__ void for_my_components(int begin, int end, Function function) const {
#pragma unroll 1
    for (int n = begin + warp() * kTogether; n < end; n += a.plan.warps * kTogether) {
#pragma unroll 1
      for (int k = 0; k < kTogether; ++k) function(n + k);
    }
  }
  template <class Function>
  __device__ __forceinline__ void for_my_components(Function function) const {
#pragma unroll 1
    for (int first = 0; first < a.plan.n; first += kGroup) for_my_components(first, first + kGroup, function);
  }

  __device__ __forceinline__ int64_t coefficient(const Set& set, int n) const {  // in (K, N)
    return ((set.memory ? 0 : set.index * a.shape.width) + channel_) * a.shape.n + n;
  }

  __device__ __forceinline__ void note_cut(const Set& set, int any) const {
    if (!a.totals || a.plan.segments == 1 || channel_ != 0 || warp() != 0) return;
    a.cuts[(int64_t{sequence_} * a.plan.segments + segment_) * 2 + set.index] = any;
  }

  // Components that do not exist get zeros.
  __device__ __forceinline__ void start_records(const Set& set) {
    note_cut(set, 0);
    const T* entering = set.memory ? a.memory_states : a.states;
    for_my_components([&](int n) {
      T decay{}, weight{};
      Transfer<T> whole{}, reach{};
      State state;
      if (exists(n)) {
        const int64_t source = coefficient(set, n);
        const T log_decay = log_decay_of(a, source), g = element<T>(a.c.projection, source);
        const float p = a.c.expansion[source];
        decay = power(log_decay, 1).high();
        weight = !set.memory ? multiply(p, g) : kGradient ? from_real(p, T{}) : g;
        whole = transfer(log_decay, kSteps);
        if (kLag) reach = transfer(log_decay, a.shape.truncation);
      }
      record(set.index, n, kDecay) = decay;
      record(set.index, n, kWeight) = weight;
      record(set.index, n, kHigh) = whole.high;
      record(set.index, n, kLow) = whole.low;
      if (kGradient) record(set.index, n, kSlope) = whole.slope;
      if (kLag) record(set.index, n, kLagRecord) = minus(reach.high);
      if (kLag && kGradient) record(set.index, n, kLagRecord + 1) = minus(reach.slope);
      if (!a.totals && a.plan.segments > 1) {
        state.v = entering[segment_index(0, n, row(set))];
        if (kGradient) state.z = entering[segment_index(1, n, row(set))];
      } else if (set.memory && exists(n)) {
        state.v = element<T>(a.state, state_index(n));
        if (kGradient) state.v = conjugate(state.v);
      }
      store(set.index, n, state);
      if (kGradient) record(set.index, n, kSumValue) = record(set.index, n, kSumDerivative) = T{};
    });
  }

  // With two walks: the state with which the second set enters a tile, as its own walk finds it.
  __device__ __forceinline__ void leave_entering() {
    for_my_components([&](int n) {
      const State state = load(1, n);
      a.states[tile_index(0, n)] = state.v;
      if (kGradient) a.states[tile_index(1, n)] = state.z;
    });
  }
  __device__ __forceinline__ void take_entering() {
    for_my_components([&](int n) {
      State state;
      state.v = a.states[tile_index(0, n)];
      if (kGradient) state.z = a.states[tile_index(1, n)];
      store(1, n, state);
    });
  }

  __device__ __forceinline__ void finish() {
    if (a.totals) {
#pragma unroll 1
      for (int i = 0; i < sets(); ++i) finish_totals(set(i));
    } else if (kGradient) {
#pragma unroll 1
      for (int i = 0; i < sets(); ++i) finish_sums(set(i));
      if (segment_ == 0) for_my_components([&](int n) { store_first(0, n, load(0, n)); });
      if (a.gate.omega != nullptr && warp() == 0) {
        float sum = 0.f;
        for (int other = 0; other < a.plan.warps; ++other) sum += *omega_sum(other);
        a.omega_sums[(int64_t{sequence_} * a.plan.segments + segment_) * a.plan.width + channel_] = sum;
      }
      const int64_t blocks = a.shape.batch * a.plan.segments;
      if (is_last_block(a.made.counters + blockIdx.x % (a.plan.width / kLanes), blocks)) write_gradients(blocks);
    } else if (a.final_state != nullptr && segment_ == a.plan.segments - 1) {
      for_my_components([&](int n) {
        if (!exists(n)) return;
        const T memory = with_memory() ? record(1, n, kValue) : T{};
        const float expansion = a.c.expansion[channel_ * a.shape.n + n];
        store_element(a.final_state, state_index(n), multiply_add(record(0, n, kValue), expansion, memory));
      });
    }
  }

  __device__ __forceinline__ void finish_totals(const Set& set) {
    for_my_components([&](int n) {
      const State state = load(set.index, n);
      a.states[segment_index(0, n, row(set))] = state.v;
      if (kGradient) a.states[segment_index(1, n, row(set))] = state.z;
    });
  }

  __device__ __forceinline__ void finish_sums(const Set& set) {
    for_my_components([&](int n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        a.sums[set.memory][segment_index(part, n, row(set))] = record(set.index, n, kSumValue + part);
      }
    });
  }

  // v and z at the first step, zero where a document begins there.
  __device__ __forceinline__ void store_first(int memory, int n, const State& state) const {
    if (a.incoming == nullptr) return;
    const bool discarded = a.reset != nullptr && a.reset[sequence_ * a.shape.length];
    a.first[memory][first_index(sequence_, 0, n)] = discarded ? T{} : state.v;
    a.first[memory][first_index(sequence_, 1, n)] = discarded ? T{} : state.z;
  }

  // With M = sum_t x_t v_t and Z = sum_t x_t dv_t/dq: the gradient of p g is M, and that of g has the further term
  // state q v_0; the gradient of q is p g Z + g state (v_0 + q z_0). The sums of the final state add terms of the same
  // form with p in place of p g. All but M and Z is in double precision.
  __device__ __forceinline__ void write_gradients(int64_t blocks) const {
    if (a.gate.omega != nullptr && warp() == 0 && channel_ < a.shape.width) {
      float sum = 0.f;
#pragma unroll 8
      for (int64_t i = 0; i < blocks; ++i) sum += a.omega_sums[i * a.plan.width + channel_];
      a.made.omega[channel_] = sum;
    }
    const int scans = a.shape.bidirectional ? 2 : 1;
#pragma unroll 1
    for (int i = 0; i < scans; ++i) {
      for_my_components([&](int n) {
        if (!exists(n)) return;
        const int64_t place = coefficient(set(i), n);
        const T log_decay = element<T>(a.c.log_decay, place);
        const auto q = wide(power(log_decay, 1)), g = wide(element<T>(a.c.projection, place));
        const double p = a.c.expansion[place];
        const State total = sum_of(0, n, row(set(i)), blocks);
        auto by_p = g * wide(total.v), by_g = p * wide(total.v), by_q = p * (g * wide(total.z));
        if (with_memory()) {
          const State late = sum_of(1, n, channel_, blocks);
          by_p = by_p + wide(late.v);
          by_q = by_q + p * wide(late.z);
        }
#pragma unroll 1
        for (int64_t b = 0; a.incoming != nullptr && b < a.shape.batch; ++b) {
          const int64_t source = (b * a.shape.width + channel_) * a.shape.n + n;
          const auto state = wide(element<T>(a.incoming, source));
          const auto first = [&](int memory, int part) { return wide(a.first[memory][first_index(b, part, n)]); };
          auto by_state = g * (q * first(0, 0));
          by_g = by_g + state * (q * first(0, 0));
          by_q = by_q + g * (state * (first(0, 0) + q * first(0, 1)));
          if (with_memory()) {
            by_state = by_state + q * first(1, 0);
            by_q = by_q + state * (first(1, 0) + q * first(1, 1));
          }
          store_gradient(a.made.state, source, by_state);
        }
        store_gradient(a.made.log_decay, place, by_q * q);
        a.made.expansion[place] = static_cast<float>(real(by_p));
        store_gradient(a.made.projection, place, by_g);
      });
    }
  }

  __device__ __forceinline__ State sum_of(int memory, int n, int row, int64_t blocks) const {
    const int64_t part = int64_t{a.plan.n} * a.plan.rows;
    const T* from = a.sums[memory] + int64_t{n} * a.plan.rows + row;
    State total;
#pragma unroll 8
    for (int64_t i = 0; i < blocks; ++i, from += 2 * part) total = both(total, {from[0], from[part]});
    return total;
  }

  // ---- places ----

  __device__ __forceinline__ int64_t segment_index(int part, int n, int row) const {
    const int64_t segment = int64_t{sequence_} * a.plan.segments + segment_;
    return ((segment * kParts + part) * a.plan.n + n) * a.plan.rows + row;
  }
  __device__ __forceinline__ int64_t tile_index(int part, int n) const {
    return (((int64_t{sequence_} * a.plan.tiles_per_segment + tile_) * kParts + part) * a.plan.n + n) * a.plan.width + channel_;
  }
  __device__ __forceinline__ int64_t first_index(int64_t sequence, int part, int n) const {
    return ((sequence * 2 + part) * a.plan.n + n) * a.plan.width + channel_;
  }
  __device__ __forceinline__ int64_t state_index(int n) const {  // in (B, D, N)
    return (sequence_ * a.shape.width + channel_) * a.shape.n + n;
  }
  __device__ __forceinline__ int valid_steps(int warp) const {
    const int left = static_cast<int>(a.shape.length) - (tile_ * a.plan.warps + warp) * kSteps;
    return min(max(left, 0), kSteps);
  }
  __device__ __forceinline__ static int* cuts() {  // of a warp each: whether its piece has one
    FM_DYNAMIC_SHARED(float, shared);
    return reinterpret_cast<int*>(shared + kFixedFloats);
  }
  // Of a thread: sum_t x_t times the gradient of y_t + omega x_t.
  __device__ __forceinline__ static float* omega_sum(int warp) {
    FM_DYNAMIC_SHARED(float, shared);
    return shared + (kMaxWarps * kSlotFloats + warp) * kLanes + lane();
  }
  __device__ __forceinline__ float* slot(int warp, int i) const {
    return slots_[(warp * kSlotFours + i / kTogether) * kLanes].values + i % kTogether * (kParts * kFloats);
  }
  __device__ __forceinline__ static void put_state(float* place, const State& state) {
    put(place, state.v);
    if (kGradient) put(place + kFloats, state.z);
  }
  __device__ __forceinline__ static State get_state(const float* place) {
    State state;
    get(place, state.v);
    if (kGradient) get(place + kFloats, state.z);
    return state;
  }
  // Of the components from i on.
  __device__ __forceinline__ void put_slot(int warp, int i, const Several& states) {
    Four four;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) put_state(four.values + k * kParts * kFloats, states.of[k]);
    *four_of(warp, i) = four;
  }
  __device__ __forceinline__ Several get_slot(int warp, int i) const {
    const Four four = *four_of(warp, i);
    Several states;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) states.of[k] = get_state(four.values + k * kParts * kFloats);
    return states;
  }
  __device__ __forceinline__ Four* four_of(int warp, int i) const {
    return slots_ + i / kTogether * kLanes + warp * (kSlotFours * kLanes);
  }
  __device__ __forceinline__ void put_slots(const State (&states)[kGroup]) {
#pragma unroll
    for (int i = 0; i < kGroup; i += kTogether) {
      Several together;
#pragma unroll
      for (int k = 0; k < kTogether; ++k) together.of[k] = states[i + k];
      put_slot(warp(), i, together);
    }
  }
  __device__ __forceinline__ Several load_several(int set, int n) const {
    Several states;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) states.of[k] = load(set, n + k);
    return states;
  }
  __device__ __forceinline__ void store_several(int set, int n, const Several& states) {
#pragma unroll
    for (int k = 0; k < kTogether; ++k) store(set, n + k, states.of[k]);
  }
  __device__ __forceinline__ T& record(int set, int n, int which) const {
    return records_[((set * a.plan.n + n) * kRecords + which) * kLanes];
  }
  // A pair of records, from `which` on; in the forward pass it is one.
  __device__ __forceinline__ State load(int set, int n, Record which = kValue) const {
    State state;
    state.v = record(set, n, which);
    if (kGradient) state.z = record(set, n, which + 1);
    return state;
  }
  __device__ __forceinline__ void store(int set, int n, const State& state, Record which = kValue) {
    record(set, n, which) = state.v;
    if (kGradient) record(set, n, which + 1) = state.z;
  }

  const EmaArguments<T>& a;
  Four* slots_;  // of this lane, as records_
  T* records_;
  Group<T, kGroup> group_;
  int held_ = -1;  // which group that is
  int channel_, segment_, sequence_, tile_;
};

template <class T, bool kGradient, bool kLag>
__global__ void __launch_bounds__(kMaxWarps* kLanes, kGradient && kLag ? 1 : 2)
    ema_scan_kernel(const __grid_constant__ EmaArguments<T> a) {
  FM_DYNAMIC_SHARED(float, shared);
  EmaScan<T, kGradient, kLag>(a, shared).run();
}

}  // namespace fm
