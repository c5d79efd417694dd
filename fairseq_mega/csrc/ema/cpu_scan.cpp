// The EMA scan on the CPU, forward and backward: the plain recurrence, a group of channels to a vector register, a few of
// the N components at a time held in registers over a tile of time steps. See ema_scan.h for the equations.
//
// All arithmetic of a component and step is two multiply-adds forward (five backward) and nothing else: no power
// tables, no horizontal sums, no transposed copy. Measured against 16-step blocks of matrix products per channel,
// which need three (six), and an FFT, which needs more memory.
#include "common/elements.h"
#include "common/subnormals.h"
#include "common/tiles.h"
#include "ema/cpu_tables.h"
#include "ema/ema_scan.h"

#include <type_traits>
#include <vector>

namespace fm {
namespace {

using Real = std::integral_constant<int, 1>;  // parts of a component
using Complex = std::integral_constant<int, 2>;
using Truncated = std::true_type;
using Whole = std::false_type;

// One scan direction of one block of channels.
template <class Vec>
struct Sweep {
  const EmaShape& shape;
  EmaTables<Vec>& tables;
  Rows rows;          // of x
  Rows outputs;       // of what is computed, y or the gradient of x
  Rows incoming;      // of the gradient of y
  const bool* reset;  // of this sequence, or null

  // Whether nothing may pass from step - 1 to step.
  bool border(int64_t step) const {
    if (reset == nullptr || step <= 0) return false;
    return reset[rows.reversed ? rows.length - step : step];
  }
  bool discards_state() const { return reset != nullptr && reset[0]; }
  int64_t segment_end(int64_t start) const {
    int64_t end = start + 1;
    if (reset == nullptr) return rows.length;
    while (end < rows.length && !border(end)) ++end;
    return end;
  }
  int64_t segment_start(int64_t end) const {
    int64_t start = end - 1;
    if (reset == nullptr) return 0;
    while (start > 0 && !border(start)) --start;
    return start;
  }
};

// kParts = 1: four real components; kParts = 2: two complex ones. Adds their outputs to y and advances u.
template <int kParts, bool kTruncated, class Vec>
FM_INLINE void forward_components(const Vec* x, const Vec* lagged, Vec* y, int steps, Vec* state, const Vec* decay,
                                  const Vec* weight, const Vec* lag, const Vec* carry) {
  constexpr int kCount = 4 / kParts;
  Vec re[kCount], im[kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {
    re[i] = state[i * kParts];
    im[i] = kParts == 2 ? state[i * kParts + kParts - 1] : Vec{};
  }
  for (int t = 0; t < steps; ++t) {
    const Vec input = x[t];
    const Vec gone = kTruncated ? lagged[t] : Vec{};
    Vec sum = y[t];
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kParts == 1) {
        re[i] = decay[i] * re[i] + input;
        if constexpr (kTruncated) re[i] -= lag[i] * gone;
        sum += weight[i] * re[i];
      } else {
        Vec real = decay[2 * i] * re[i] + input;  // written so that every product is part of a multiply-add
        real -= decay[2 * i + 1] * im[i];
        im[i] = decay[2 * i] * im[i] + decay[2 * i + 1] * re[i];
        re[i] = real;
        if constexpr (kTruncated) {
          re[i] -= lag[2 * i] * gone;
          im[i] -= lag[2 * i + 1] * gone;
        }
        sum += weight[2 * i] * re[i];
        sum -= weight[2 * i + 1] * im[i];
      }
    }
    y[t] = sum;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) {  // `state` still holds what came in: give back what rounding q took from it
    if constexpr (kParts == 1) {
      state[i] = re[i] + carry[i] * state[i];
    } else {
      const Vec real = state[2 * i], imag = state[2 * i + 1];
      state[2 * i] = re[i] + carry[2 * i] * real - carry[2 * i + 1] * imag;
      state[2 * i + 1] = im[i] + carry[2 * i] * imag + carry[2 * i + 1] * real;
    }
  }
}

template <class Vec>
struct Adjoint {  // running adjoint v, its derivative z in q, and the sums over time of x v and x z
  VecArray<Vec> v, z, xv, xz;
  void clear_running() {
    v.clear();
    z.clear();
  }
  void clear(size_t size) {
    for (auto* table : {&v, &z, &xv, &xz}) table->clear(size);
  }
};

// kParts = 1: two real components; kParts = 2: one complex. Time runs backwards through the tile.
template <int kParts, bool kTruncated, class Vec>
FM_INLINE void backward_components(const Vec* x, const Vec* g, const Vec* lagged, Vec* gx, int steps, Vec* v_, Vec* z_,
                                   Vec* xv_, Vec* xz_, const Vec* decay, const Vec* weight, const Vec* lag,
                                   const Vec* lag_slope, const Vec* carry, const Vec* slope) {
  constexpr int kCount = 2 / kParts;
  Vec v[2], z[2], xv[2] = {}, xz[2] = {};
  v[0] = v_[0], v[1] = v_[1], z[0] = z_[0], z[1] = z_[1];
  for (int t = steps - 1; t >= 0; --t) {
    const Vec input = x[t], gradient = g[t];
    const Vec gone = kTruncated ? lagged[t] : Vec{};
    Vec sum = gx[t];
    if constexpr (kParts == 1) {
#pragma GCC unroll 2
      for (int i = 0; i < kCount; ++i) {
        z[i] = decay[i] * z[i] + v[i];
        v[i] = decay[i] * v[i] + gradient;
        if constexpr (kTruncated) {
          z[i] -= lag_slope[i] * gone;
          v[i] -= lag[i] * gone;
        }
        sum += weight[i] * v[i];
        xv[i] += input * v[i];
        xz[i] += input * z[i];
      }
    } else {
      Vec z_real = decay[0] * z[0] + v[0], z_imag = decay[0] * z[1] + v[1];
      z_real -= decay[1] * z[1];
      z_imag += decay[1] * z[0];
      z[0] = z_real;
      z[1] = z_imag;
      Vec v_real = decay[0] * v[0] + gradient;
      v_real -= decay[1] * v[1];
      v[1] = decay[0] * v[1] + decay[1] * v[0];
      v[0] = v_real;
      if constexpr (kTruncated) {
        z[0] -= lag_slope[0] * gone;
        z[1] -= lag_slope[1] * gone;
        v[0] -= lag[0] * gone;
        v[1] -= lag[1] * gone;
      }
      sum += weight[0] * v[0];
      sum -= weight[1] * v[1];
      xv[0] += input * v[0];
      xv[1] += input * v[1];
      xz[0] += input * z[0];
      xz[1] += input * z[1];
    }
    gx[t] = sum;
  }
  if constexpr (kParts == 1) {
#pragma GCC unroll 2
    for (int i = 0; i < kCount; ++i) {
      z_[i] = z[i] + carry[i] * z_[i] + slope[i] * v_[i];
      v_[i] = v[i] + carry[i] * v_[i];
    }
  } else {
    const Vec vr = v_[0], vi = v_[1], zr = z_[0], zi = z_[1];
    z_[0] = z[0] + carry[0] * zr - carry[1] * zi + slope[0] * vr - slope[1] * vi;
    z_[1] = z[1] + carry[0] * zi + carry[1] * zr + slope[0] * vi + slope[1] * vr;
    v_[0] = v[0] + carry[0] * vr - carry[1] * vi;
    v_[1] = v[1] + carry[0] * vi + carry[1] * vr;
  }
  for (int i = 0; i < 2; ++i) {  // sums of a tile first, then over tiles: the error grows with neither number alone
    xv_[i] += xv[i];
    xz_[i] += xz[i];
  }
}

template <int kParts, bool kTruncated, class Vec>
FM_INLINE void forward_tile(const EmaTables<Vec>& tables, const Tile<Vec>& x, const Tile<Vec>& lagged, Tile<Vec>& y,
                            int steps, VecArray<Vec>& state, const VecArray<Vec>& weight,
                            const VecArray<Vec>& carry) {
  for (int group = 0; group < kGroups<Vec>; ++group) {
    for (int n = 0; n < tables.n; n += 4 / kParts) {
      const int i = tables.at(group, n);
      forward_components<kParts, kTruncated>(x[group], lagged[group], y[group], steps, &state[i], &tables.decay[i],
                                             &weight[i], kTruncated ? &tables.lag[i] : nullptr, &carry[i]);
    }
  }
}

template <int kParts, bool kTruncated, class Vec>
FM_INLINE void backward_tile(const EmaTables<Vec>& tables, const Tile<Vec>& x, const Tile<Vec>& g,
                             const Tile<Vec>& lagged, Tile<Vec>& gx, int steps, Adjoint<Vec>& adjoint,
                             const VecArray<Vec>& weight, const typename EmaTables<Vec>::Carry& carry) {
  for (int group = 0; group < kGroups<Vec>; ++group) {
    for (int n = 0; n < tables.n; n += 2 / kParts) {
      const int i = tables.at(group, n);
      backward_components<kParts, kTruncated>(
          x[group], g[group], lagged[group], gx[group], steps, &adjoint.v[i], &adjoint.z[i], &adjoint.xv[i],
          &adjoint.xz[i], &tables.decay[i], &weight[i], kTruncated ? &tables.lag[i] : nullptr,
          kTruncated ? &tables.lag_slope[i] : nullptr, &carry.value[i], &carry.slope[i]);
    }
  }
}

// The gradient of the final state reaches the last step as it is, with no decay: v is that gradient there.
template <int kParts, class Vec>
FM_INLINE void last_step(const EmaTables<Vec>& tables, const Tile<Vec>& x, Tile<Vec>& gx, int step, Adjoint<Vec>& adjoint,
                         const VecArray<Vec>& weight) {
  for (int group = 0; group < kGroups<Vec>; ++group) {
    for (int i = tables.at(group, 0); i < tables.at(group + 1, 0); ++i) {
      adjoint.xv[i] += x[group][step] * adjoint.v[i];
      if (i % kParts == 0) gx[group][step] += weight[i] * adjoint.v[i];  // weights of this pass are real
    }
  }
}

// States of the recurrence driven by x (scaled by p in the end) and of the one that only carries the incoming state.
template <class Vec>
struct Running {
  VecArray<Vec> driven, carried;
};

template <class Vec>
FM_INLINE void clear(Tile<Vec>& tile) {
  std::memset(static_cast<void*>(tile), 0, sizeof tile);
}

template <int kParts, bool kTruncated, class Vec>
FM_INLINE void forward_sweep(const Sweep<Vec>& sweep, const void* x, void* y, Running<Vec>& running, bool has_state, bool add) {
  EmaTables<Vec>& tables = sweep.tables;
  const int64_t shift = sweep.rows.reversed && sweep.shape.shift ? 1 : 0;
  alignas(64) Tile<Vec> input, lagged, output, zero;
  clear(zero);
  clear(lagged);
  for (int64_t start = 0; start < sweep.rows.length;) {
    const int64_t end = sweep.segment_end(start);
    for (int64_t t = start; t < end; t += kSteps) {
      const int steps = static_cast<int>(end - t < kSteps ? end - t : kSteps);
      read_tile(input, sweep.rows, x, t - shift, steps, start, end);
      if constexpr (kTruncated) {
        read_tile(lagged, sweep.rows, x, t - shift - sweep.shape.truncation, steps, start, end);
      }
      prefetch_tile(sweep.rows, x, t + kSteps, kSteps);
      clear(output);
      const VecArray<Vec>& carry = tables.carry(steps).value;
      forward_tile<kParts, kTruncated>(tables, input, lagged, output, steps, running.driven, tables.weight, carry);
      if (has_state) {
        forward_tile<kParts, false>(tables, zero, zero, output, steps, running.carried, tables.projection, carry);
      }
      write_tile(output, sweep.outputs, y, t, steps, add);
    }
    if (end < sweep.rows.length) {
      running.driven.clear();
      running.carried.clear();
      has_state = false;
    }
    start = end;
  }
}

template <int kParts, bool kTruncated, class Vec>
FM_INLINE void backward_sweep(const Sweep<Vec>& sweep, const void* x, const void* gy, void* gx, Adjoint<Vec>& adjoint,
                              Adjoint<Vec>* state_adjoint, const VecArray<Vec>& state_weight, bool add) {
  EmaTables<Vec>& tables = sweep.tables;
  const int64_t shift = sweep.rows.reversed && sweep.shape.shift ? 1 : 0;
  alignas(64) Tile<Vec> input, gradient, lagged, output, zero;
  clear(zero);
  clear(lagged);
  for (int64_t end = sweep.rows.length; end > 0;) {
    const int64_t start = sweep.segment_start(end);
    for (int64_t stop = end; stop > start; stop -= kSteps) {
      const int64_t t = stop - start > kSteps ? stop - kSteps : start;
      const int steps = static_cast<int>(stop - t);
      read_tile(input, sweep.rows, x, t, steps, start, end);
      read_tile(gradient, sweep.incoming, gy, t + shift, steps, start, end);
      if constexpr (kTruncated) {
        read_tile(lagged, sweep.incoming, gy, t + shift + sweep.shape.truncation, steps, start, end);
      }
      prefetch_tile(sweep.rows, x, t - kSteps, kSteps);
      prefetch_tile(sweep.incoming, gy, t - kSteps, kSteps);
      clear(output);
      const typename EmaTables<Vec>::Carry& carry = tables.carry(steps);
      backward_tile<kParts, kTruncated>(tables, input, gradient, lagged, output, steps, adjoint, tables.weight, carry);
      if (state_adjoint) {
        const int rest = stop == sweep.rows.length ? steps - 1 : steps;
        if (rest < steps) last_step<kParts>(tables, input, output, rest, *state_adjoint, state_weight);
        backward_tile<kParts, false>(tables, input, zero, zero, output, rest, *state_adjoint, state_weight,
                                     tables.carry(rest));
      }
      write_tile(output, sweep.outputs, gx, t, steps, add);
    }
    if (start > 0) {
      adjoint.clear_running();
      if (state_adjoint) state_adjoint->clear_running();
    }
    end = start;
  }
}

// Calls function(real or complex, truncated or not), as constants.
template <class Function>
FM_INLINE void with_kind(const EmaShape& shape, const Function& function) {
  if (shape.complex) {
    shape.truncation > 0 ? function(Complex(), Truncated()) : function(Complex(), Whole());
  } else {
    shape.truncation > 0 ? function(Real(), Truncated()) : function(Real(), Whole());
  }
}

// Copies between (rows, N[, 2]) in memory and the tables' layout, for the channels of a block; reading conjugates.
template <class Vec>
void read_state(VecArray<Vec>& target, const EmaTables<Vec>& tables, const float* source, int n, int valid,
                bool conjugate) {
  target.clear();
  for (int channel = 0; channel < valid; ++channel) {
    for (int i = 0; i < n * tables.parts; ++i) {
      const float value = source[channel * n * tables.parts + i];
      const bool negate = conjugate && tables.parts == 2 && i % 2 == 1;
      target[tables.at(channel / kLanes<Vec>, 0) + i][channel % kLanes<Vec>] = negate ? -value : value;
    }
  }
}

template <class Vec>
void write_state(const VecArray<Vec>& source, const EmaTables<Vec>& tables, float* target, int n, int valid) {
  for (int channel = 0; channel < valid; ++channel) {
    for (int i = 0; i < n * tables.parts; ++i) {
      target[channel * n * tables.parts + i] = source[tables.at(channel / kLanes<Vec>, 0) + i][channel % kLanes<Vec>];
    }
  }
}

// Work on the tasks of a range: channels outside, sequences inside, so that tables are made once per block of channels.
template <class Vec>
class Worker {
 public:
  Worker(const EmaShape& shape, const EmaCoefficients& coefficients, const EmaInputs& in)
      : shape_(shape), coefficients_(coefficients), in_(in) {
    if (rounds_later()) sums_.resize(static_cast<size_t>(shape.length) * kChannels);
  }

  void start(int64_t task) {
    const int64_t first = task / shape_.batch * kChannels;
    sequence_ = task % shape_.batch;
    if (first == first_) return;
    first_ = first;
    valid_ = static_cast<int>(shape_.width - first < kChannels ? shape_.width - first : kChannels);
    for (int way = 0; way < ways(); ++way) {
      ema_tables(tables_[way], shape_, coefficients_, first + way * shape_.width, valid_);
    }
  }

  int ways() const { return shape_.bidirectional ? 2 : 1; }
  int valid() const { return valid_; }
  EmaTables<Vec>& tables(int way) { return tables_[way]; }
  bool discards_state() const { return reset() != nullptr && reset()[0]; }
  // Index of the block's first row in a (B, rows, ...) tensor.
  int64_t row(int64_t rows, int way) const { return sequence_ * rows + first_ + way * shape_.width; }

  // `masked`: what is written is zero where x is padded. In half precision the two directions are added in float32,
  // in memory of this object, and rounded once by finish().
  Sweep<Vec> sweep(int way, bool masked) {
    const Rows plain{shape_.length, shape_.width, sequence_, first_, valid_, shape_.dtype, way == 1, nullptr};
    Rows x = plain;
    x.skipped = in_.padding;
    outputs_ = masked ? x : plain;
    outputs_.reversed = false;
    Rows outputs = masked ? x : plain;
    if (rounds_later()) {
      outputs = Rows{shape_.length, kChannels, 0, 0, kChannels, DType::kFloat32, way == 1, nullptr};
    }
    return {shape_, tables_[way], x, outputs, plain, reset()};
  }
  void* target(void* memory) { return rounds_later() ? sums_.data() : memory; }
  void finish(void* memory) {
    if (!rounds_later()) return;
    const Rows sums{shape_.length, kChannels, 0, 0, kChannels, DType::kFloat32, false, nullptr};
    alignas(64) Tile<Vec> tile;
    for (int64_t t = 0; t < shape_.length; t += kSteps) {
      const int steps = static_cast<int>(shape_.length - t < kSteps ? shape_.length - t : kSteps);
      read_tile(tile, sums, sums_.data(), t, steps, 0, shape_.length);
      write_tile(tile, outputs_, memory, t, steps, false);
    }
  }

 private:
  bool rounds_later() const { return shape_.bidirectional && shape_.dtype != DType::kFloat32; }
  const bool* reset() const { return in_.reset ? in_.reset + sequence_ * shape_.length : nullptr; }

  const EmaShape& shape_;
  const EmaCoefficients& coefficients_;
  const EmaInputs& in_;
  EmaTables<Vec> tables_[2];
  int64_t first_ = -1, sequence_ = 0;
  int valid_ = 0;
  Rows outputs_{};
  std::vector<float> sums_;
};

template <class Vec>
FM_INLINE void scan_forward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaOutputs& out,
                            int64_t begin, int64_t end) {
  const int64_t state_width = shape.n * shape.parts();
  Worker<Vec> worker(shape, c, in);
  Running<Vec> running;
  for (int64_t task = begin; task < end; ++task) {
    worker.start(task);
    for (int way = 0; way < worker.ways(); ++way) {
      const EmaTables<Vec>& tables = worker.tables(way);
      const bool has_state = in.state != nullptr && !worker.discards_state();
      const int64_t state = worker.row(shape.width, 0) * state_width;
      running.driven.clear(tables.decay.size());
      running.carried.clear(tables.decay.size());
      if (has_state) read_state(running.carried, tables, in.state + state, shape.n, worker.valid(), false);
      with_kind(shape, [&](auto parts, auto truncated) __attribute__((always_inline)) {
        forward_sweep<parts(), truncated()>(worker.sweep(way, false), in.x, worker.target(out.y), running, has_state,
                                            way == 1);
      });
      if (out.final_state == nullptr) continue;
      for (size_t i = 0; i < running.driven.size(); ++i) {
        running.carried[i] += tables.expansion[i / shape.parts()] * running.driven[i];
      }
      write_state(running.carried, tables, out.final_state + state, shape.n, worker.valid());
    }
    worker.finish(out.y);
  }
}

template <class Vec>
FM_INLINE void scan_backward(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in,
                             const EmaGradients& out, int64_t begin, int64_t end) {
  const int64_t rows = shape.rows(), state_width = shape.n * shape.parts(), moment = shape.batch * rows * state_width;
  Worker<Vec> worker(shape, c, in);
  Adjoint<Vec> adjoint, state_adjoint;
  VecArray<Vec> state_weight;  // p with an imaginary part of zero
  for (int64_t task = begin; task < end; ++task) {
    worker.start(task);
    for (int way = 0; way < worker.ways(); ++way) {
      const EmaTables<Vec>& tables = worker.tables(way);
      adjoint.clear(tables.decay.size());
      if (out.grad_final_state) {
        state_adjoint.clear(tables.decay.size());
        const float* gradient = out.grad_final_state + worker.row(shape.width, 0) * state_width;
        read_state(state_adjoint.v, tables, gradient, shape.n, worker.valid(), true);
        state_weight.clear(tables.decay.size());
        for (size_t i = 0; i < tables.expansion.size(); ++i) state_weight[i * shape.parts()] = tables.expansion[i];
      }
      with_kind(shape, [&](auto parts, auto truncated) __attribute__((always_inline)) {
        backward_sweep<parts(), truncated()>(worker.sweep(way, true), in.x, out.grad_y, worker.target(out.grad_x),
                                             adjoint, out.grad_final_state ? &state_adjoint : nullptr, state_weight,
                                             way == 1);
      });
      const auto write = [&](Adjoint<Vec>& found, float* moments) {
        if (shape.bidirectional || worker.discards_state()) found.clear_running();
        float* target = moments + worker.row(rows, way) * state_width;
        for (const auto* table : {&found.xv, &found.xz, &found.v, &found.z}) {
          write_state(*table, tables, target, shape.n, worker.valid());
          target += moment;
        }
      };
      write(adjoint, out.moments);
      if (out.grad_final_state) write(state_adjoint, out.moments_state);
    }
    worker.finish(out.grad_x);
  }
}

}  // namespace

int64_t ema_scan_tasks_cpu(const EmaShape& shape) {
  return (shape.width + kChannels - 1) / kChannels * shape.batch;
}

void ema_scan_forward_cpu(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in, const EmaOutputs& out,
                          int64_t begin, int64_t end) {
  const SubnormalsAreZero fading;  // the memory over padding, and its gradient before the last step that counts
  FM_AT_CPU_LEVEL(scan_forward<typename Lanes<kVector<kLevel>>::Floats>(shape, c, in, out, begin, end));
}

void ema_scan_backward_cpu(const EmaShape& shape, const EmaCoefficients& c, const EmaInputs& in,
                           const EmaGradients& out, int64_t begin, int64_t end) {
  const SubnormalsAreZero fading;
  FM_AT_CPU_LEVEL(scan_backward<typename Lanes<kVector<kLevel>>::Floats>(shape, c, in, out, begin, end));
}

}  // namespace fm
