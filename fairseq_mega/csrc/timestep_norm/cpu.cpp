// Timestep normalisation on the CPU: one sequence and a block of groups at a time, in tiles of a few steps. Work on
// elements is vectorised over the features of a group, the recurrence of the statistics over the groups.
#include "timestep_norm/timestep_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/cpu_level.h"
#include "common/tiles.h"

namespace fm {
namespace {

constexpr int kTile = 32;              // steps of a tile
constexpr int64_t kBlockWidth = 128;   // features of a block, unless one group has more
constexpr int kPiece = 64;             // features summed in float32; the pieces are summed in double precision
constexpr int kLanes = 8;              // of the vectors: wider ones are slower on narrow groups

int64_t groups_per_block(const TimestepNormShape& shape) {
  return std::max<int64_t>(1, std::min(shape.groups, kBlockWidth / shape.features()));
}

// One sequence and a block of its groups.
struct Block {
  const TimestepNormShape& shape;
  int64_t sequence, first;       // first group
  int groups, features;          // groups of the block, K
  int width;                     // their product
  const bool* padding;           // (L,) or null

  Block(const TimestepNormShape& s, const TimestepNormInputs& in, int64_t task) : shape(s) {
    const int64_t size = groups_per_block(s), blocks = (s.groups + size - 1) / size;
    sequence = task / blocks;
    first = task % blocks * size;
    groups = static_cast<int>(std::min(size, s.groups - first));
    features = static_cast<int>(s.features());
    width = groups * features;
    padding = in.padding ? in.padding + sequence * s.length : nullptr;
  }
  int64_t tiles() const { return (shape.length + kTile - 1) / kTile; }
  int steps(int64_t tile) const { return static_cast<int>(std::min<int64_t>(kTile, shape.length - tile * kTile)); }
  int64_t statistic(int group) const { return sequence * shape.groups + first + group; }  // index into (B, G)
  int64_t channel() const { return first * features; }                                    // index into (D,)
  int64_t element(int64_t step) const { return (sequence * shape.length + step) * shape.width + channel(); }
};

// What is known of the steps of a tile: rows of `groups` (mean .. spread) or `width` (values, grads) numbers.
struct Steps {
  std::vector<float> values, grads;
  std::vector<double> mean;                    // m_t
  std::vector<float> variance;                 // v_t
  std::vector<float> high, low, scale, moved;  // M_t in two parts, r_t, M_t - M_{t-1}
  std::vector<double> sum, moment;             // A_t, B_t
  std::vector<float> offset, slope;            // nu / K, 2 tau / K
  double share[kTile];                         // 1 / n_t, 0 for a padded step

  Steps(const Block& block, bool backward)
      : values(size_t(kTile) * block.width),
        grads(backward ? values.size() : 0),
        mean(size_t(kTile) * block.groups),
        variance(mean.size()),
        high(mean.size()),
        low(mean.size()),
        scale(mean.size()),
        moved(mean.size()),
        sum(backward ? mean.size() : 0),
        moment(sum.size()),
        offset(sum.size()),
        slope(sum.size()) {}
};

// Running statistics of a block.
struct Running {
  int64_t count;
  std::vector<double> mean, variance;

  Running(const Block& block, const TimestepNormInputs& in)
      : count(in.count ? in.count[block.sequence] : 0), mean(block.groups), variance(block.groups) {
    for (int g = 0; g < block.groups && count > 0; ++g) {
      mean[g] = in.mean[block.statistic(g)];
      variance[g] = in.variance[block.statistic(g)];
    }
  }
};

FM_INLINE void widen(const uint16_t* source, float* target, int width, DType dtype) {
  for (int i = 0; i < width; ++i) target[i] = to_float(source[i], dtype);
}

FM_INLINE void narrow(const float* source, uint16_t* target, int width, DType dtype) {
  for (int i = 0; i < width; ++i) target[i] = from_float(source[i], dtype);
}

// Prefetches the rows of another tile: they lie too far apart for the processor to foresee.
FM_INLINE void prefetch(const Block& block, const void* data, int64_t tile) {
  if (tile < 0 || tile >= block.tiles()) return;
  const int64_t size = block.shape.dtype == DType::kFloat32 ? 4 : 2, bytes = block.width * size;
  for (int t = 0; t < block.steps(tile); ++t) {
    const char* row = static_cast<const char*>(data) + block.element(tile * kTile + t) * size;
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  }
}

// A padded row is not read: it may hold anything, NaN included.
FM_INLINE void load(const Block& block, const void* data, int64_t start, int steps, const double* share, float* rows) {
  for (int t = 0; t < steps; ++t, rows += block.width) {
    const int64_t at = block.element(start + t);
    if (share[t] == 0.0) {
      std::fill(rows, rows + block.width, 0.f);
    } else if (block.shape.dtype == DType::kFloat32) {
      std::memcpy(rows, static_cast<const float*>(data) + at, sizeof(float) * block.width);
    } else {
      widen(static_cast<const uint16_t*>(data) + at, rows, block.width, block.shape.dtype);
    }
  }
}

FM_INLINE void store(const Block& block, const float* rows, int64_t start, int steps, void* data) {
  for (int t = 0; t < steps; ++t, rows += block.width) {
    const int64_t at = block.element(start + t);
    if (block.shape.dtype == DType::kFloat32) {
      std::memcpy(static_cast<float*>(data) + at, rows, sizeof(float) * block.width);
    } else {
      narrow(rows, static_cast<uint16_t*>(data) + at, block.width, block.shape.dtype);
    }
  }
}

// Mean and variance over the features of each step and group, measured from the group's first feature: a large mean
// costs no digits.
FM_INLINE void moments(const float* x, int rows, int features, double* mean, float* variance) {
  const float share = 1.f / static_cast<float>(features);
  for (int row = 0; row < rows; ++row, x += features) {
    const float origin = x[0];
    float sum = 0.f, square = 0.f;
#pragma omp simd simdlen(kLanes) reduction(+ : sum)
    for (int i = 0; i < features; ++i) sum += x[i] - origin;
    const float centre = sum * share;
#pragma omp simd simdlen(kLanes) reduction(+ : square)
    for (int i = 0; i < features; ++i) {
      const float distance = (x[i] - origin) - centre;
      square += distance * distance;
    }
    mean[row] = static_cast<double>(origin) + static_cast<double>(centre);
    variance[row] = square * share;
  }
}

// Adds the tile's steps to the running statistics and records these after each.
FM_INLINE void advance(int steps, int groups, const double* share, const double* mean, const float* variance,
                       double eps, double* running_mean, double* running_variance, float* high, float* low,
                       float* scale, float* moved) {
  for (int t = 0; t < steps; ++t) {
    const double part = share[t], rest = (1.0 - part) * part;
#pragma omp simd simdlen(kLanes)
    for (int g = 0; g < groups; ++g) {
      const int i = t * groups + g;
      const double distance = mean[i] - running_mean[g], way = distance * part;
      const double m = running_mean[g] + way;
      const double s = running_variance[g] + (variance[i] - running_variance[g]) * part + distance * distance * rest;
      running_mean[g] = m;
      running_variance[g] = s;
      high[i] = static_cast<float>(m);
      low[i] = static_cast<float>(m - static_cast<double>(high[i]));
      scale[i] = static_cast<float>(1.0 / std::sqrt(s + eps));
      moved[i] = static_cast<float>(way);
    }
  }
}

FM_INLINE void normalise(int steps, int groups, int features, const double* share, const float* high, const float* low,
                         const float* scale, const float* weight, const float* bias, float* x) {
  for (int t = 0; t < steps; ++t) {
    if (share[t] == 0.0) {
      std::memset(x + int64_t{t} * groups * features, 0, sizeof(float) * groups * features);
      continue;
    }
    for (int g = 0; g < groups; ++g) {
      const int row = t * groups + g;
      const float m = high[row], rest = low[row], r = scale[row];
      float* values = x + int64_t{row} * features;
      const float *w = weight + g * features, *b = bias + g * features;
#pragma omp simd simdlen(kLanes)
      for (int i = 0; i < features; ++i) values[i] = ((values[i] - m) - rest) * r * (1.f + w[i]) + b[i];
    }
  }
}

// A_t and B_t, and the tile's part of the gradients of weight and bias.
FM_INLINE void reduce(int steps, int groups, int features, const float* high, const float* low, const float* scale,
                      const float* weight, const float* x, const float* grad, double* sum, double* moment,
                      float* grad_weight, float* grad_bias) {
  for (int row = 0; row < steps * groups; ++row) {
    const int channel = row % groups * features;
    const float m = high[row], rest = low[row], r = scale[row];
    const float *values = x + int64_t{row} * features, *gradients = grad + int64_t{row} * features;
    const float* w = weight + channel;
    float *gw = grad_weight + channel, *gb = grad_bias + channel;
    sum[row] = moment[row] = 0.0;
    for (int from = 0; from < features; from += kPiece) {
      const int to = std::min(features, from + kPiece);
      float a = 0.f, b = 0.f;
#pragma omp simd simdlen(kLanes) reduction(+ : a, b)
      for (int i = from; i < to; ++i) {
        const float distance = (values[i] - m) - rest, h = gradients[i] * (1.f + w[i]);
        a += h;
        b += h * distance;
        gw[i] += gradients[i] * distance * r;
        gb[i] += gradients[i];
      }
      sum[row] += a;
      moment[row] += b;
    }
  }
}

// From the last step of the tile to the first: adds A_t and B_t to tau and nu and records their part of grad_x.
FM_INLINE void retreat(int steps, int groups, int features, const double* share, const float* scale,
                       const float* moved, const double* sum, const double* moment, double* nu, double* tau,
                       float* offset, float* slope) {
  const double part = 1.0 / features;
  for (int t = steps - 1; t >= 0; --t) {
    const double inverse = share[t];
#pragma omp simd simdlen(kLanes)
    for (int g = 0; g < groups; ++g) {
      const int i = t * groups + g;
      const double r = scale[i];
      tau[g] -= 0.5 * r * r * r * moment[i] * inverse;
      nu[g] -= r * sum[i] * inverse;
      offset[i] = static_cast<float>(nu[g] * part);
      slope[i] = static_cast<float>(2.0 * tau[g] * part);
      nu[g] -= 2.0 * tau[g] * moved[i];
    }
  }
}

// grad_x, in place of grad_y.
FM_INLINE void differentiate(int steps, int groups, int features, const double* share, const float* high,
                             const float* low, const float* scale, const float* offset, const float* slope,
                             const float* weight, const float* x, float* grad) {
  for (int t = 0; t < steps; ++t) {
    if (share[t] == 0.0) {
      std::memset(grad + int64_t{t} * groups * features, 0, sizeof(float) * groups * features);
      continue;
    }
    for (int g = 0; g < groups; ++g) {
      const int row = t * groups + g;
      const float m = high[row], rest = low[row], r = scale[row], a = offset[row], b = slope[row];
      const float *values = x + int64_t{row} * features, *w = weight + g * features;
      float* gradients = grad + int64_t{row} * features;
#pragma omp simd simdlen(kLanes)
      for (int i = 0; i < features; ++i) {
        gradients[i] = gradients[i] * (1.f + w[i]) * r + (a + b * ((values[i] - m) - rest));
      }
    }
  }
}

// Calls function(number of features), known to the compiler where groups are narrow: their loops need no end of their own.
template <class Function>
FM_INLINE void with_features(int features, const Function& function) {
  switch (features) {
    case 4: return function(std::integral_constant<int, 4>());
    case 8: return function(std::integral_constant<int, 8>());
    case 12: return function(std::integral_constant<int, 12>());
    case 16: return function(std::integral_constant<int, 16>());
    default: return function(features);
  }
}

// Reads a tile of x and adds it to the running statistics; prefetches the `following` one.
FM_INLINE void read_steps(const Block& block, int features, const TimestepNormInputs& in, int64_t tile, Steps& now,
                          Running& running, int64_t following) {
  prefetch(block, in.x, following);
  const int64_t start = tile * kTile;
  const int steps = block.steps(tile);
  for (int t = 0; t < steps; ++t) {
    const bool padded = block.padding && block.padding[start + t];
    now.share[t] = padded ? 0.0 : 1.0 / static_cast<double>(++running.count);
  }
  load(block, in.x, start, steps, now.share, now.values.data());
  moments(now.values.data(), steps * block.groups, features, now.mean.data(), now.variance.data());
  advance(steps, block.groups, now.share, now.mean.data(), now.variance.data(), block.shape.eps, running.mean.data(),
          running.variance.data(), now.high.data(), now.low.data(), now.scale.data(), now.moved.data());
}

FM_INLINE void forward_block(const Block& block, int features, const TimestepNormInputs& in,
                             const TimestepNormOutputs& out) {
  Steps now(block, false);
  Running running(block, in);
  const float *weight = in.weight + block.channel(), *bias = in.bias + block.channel();
  for (int64_t tile = 0; tile < block.tiles(); ++tile) {
    read_steps(block, features, in, tile, now, running, tile + 1);
    normalise(block.steps(tile), block.groups, features, now.share, now.high.data(), now.low.data(),
              now.scale.data(), weight, bias, now.values.data());
    store(block, now.values.data(), tile * kTile, block.steps(tile), out.y);
  }
  for (int g = 0; g < block.groups; ++g) {
    const int64_t at = block.statistic(g);
    const bool some = running.count > 0;
    out.mean[at] = some ? running.mean[g] : in.mean ? in.mean[at] : 0.0;
    out.variance[at] = some ? running.variance[g] : in.variance ? in.variance[at] : 1.0;
  }
  if (block.statistic(0) == block.sequence * block.shape.groups) out.count[block.sequence] = running.count;
}

FM_INLINE void backward_block(const Block& block, int features, const TimestepNormInputs& in,
                              const TimestepNormGradients& out) {
  const int groups = block.groups;
  Steps now(block, true);
  Running running(block, in);
  const int64_t count = running.count;
  std::vector<Running> before;  // at the start of each tile
  before.reserve(block.tiles());
  for (int64_t tile = 0; tile < block.tiles(); ++tile) {
    before.push_back(running);
    read_steps(block, features, in, tile, now, running, tile + 1);
  }
  const int64_t total = running.count;
  std::vector<double> nu(groups), tau(groups), grad_weight(block.width), grad_bias(block.width);
  for (int g = 0; g < groups && total > 0; ++g) {
    const int64_t at = block.statistic(g);
    if (out.grad_final_mean) nu[g] = out.grad_final_mean[at] / static_cast<double>(total);
    if (out.grad_final_variance) tau[g] = out.grad_final_variance[at] / static_cast<double>(total);
  }
  const float* weight = in.weight + block.channel();
  std::vector<float> tile_weight(block.width), tile_bias(block.width);
  for (int64_t tile = block.tiles() - 1; tile >= 0; --tile) {
    const int steps = block.steps(tile);
    read_steps(block, features, in, tile, now, before[tile], tile - 1);
    prefetch(block, out.grad_y, tile - 1);
    load(block, out.grad_y, tile * kTile, steps, now.share, now.grads.data());
    std::fill(tile_weight.begin(), tile_weight.end(), 0.f);
    std::fill(tile_bias.begin(), tile_bias.end(), 0.f);
    reduce(steps, groups, features, now.high.data(), now.low.data(), now.scale.data(), weight, now.values.data(),
           now.grads.data(), now.sum.data(), now.moment.data(), tile_weight.data(), tile_bias.data());
    for (int i = 0; i < block.width; ++i) {
      grad_weight[i] += tile_weight[i];
      grad_bias[i] += tile_bias[i];
    }
    retreat(steps, groups, features, now.share, now.scale.data(), now.moved.data(), now.sum.data(),
            now.moment.data(), nu.data(), tau.data(), now.offset.data(), now.slope.data());
    differentiate(steps, groups, features, now.share, now.high.data(), now.low.data(), now.scale.data(),
                  now.offset.data(), now.slope.data(), weight, now.values.data(), now.grads.data());
    store(block, now.grads.data(), tile * kTile, steps, out.grad_x);
  }
  for (int i = 0; i < block.width; ++i) {
    const int64_t at = block.sequence * out.stride + block.channel() + i;
    out.grad_weight[at] = static_cast<float>(grad_weight[i]);
    out.grad_bias[at] = static_cast<float>(grad_bias[i]);
  }
  for (int g = 0; g < groups && out.grad_mean; ++g) {  // without a step, the statistics go through unchanged
    const int64_t at = block.statistic(g);
    const double carried = static_cast<double>(count);
    const double of_mean = out.grad_final_mean ? out.grad_final_mean[at] : 0.0;
    const double of_variance = out.grad_final_variance ? out.grad_final_variance[at] : 0.0;
    out.grad_mean[at] = total > 0 ? nu[g] * carried : of_mean;
    out.grad_variance[at] = total > 0 ? tau[g] * carried : of_variance;
  }
}

}  // namespace

int64_t timestep_norm_tasks_cpu(const TimestepNormShape& shape) {
  const int64_t size = groups_per_block(shape);
  return shape.batch * ((shape.groups + size - 1) / size);
}

void timestep_norm_forward_cpu(const TimestepNormShape& shape, const TimestepNormInputs& in,
                               const TimestepNormOutputs& out, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    const Block block(shape, in, task);
    FM_AT_CPU_LEVEL(with_features(block.features, [&](auto features) __attribute__((always_inline)) {
      forward_block(block, features, in, out);
    }));
  }
}

void timestep_norm_backward_cpu(const TimestepNormShape& shape, const TimestepNormInputs& in,
                                const TimestepNormGradients& out, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    const Block block(shape, in, task);
    FM_AT_CPU_LEVEL(with_features(block.features, [&](auto features) __attribute__((always_inline)) {
      backward_block(block, features, in, out);
    }));
  }
}

}  // namespace fm
