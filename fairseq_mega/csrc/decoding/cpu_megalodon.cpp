// Decoding on the CPU, MEGALODON's parts; see megalodon_step.h.
#include <cmath>
#include <vector>

#include "common/cpu_level.h"
#include "decoding/cpu_rows.h"
#include "decoding/megalodon_step.h"

namespace fm {
namespace {

FM_INLINE void timestep_norm_step(const TimestepNormStep& s, int64_t begin, int64_t end) {
  const int64_t features = s.width / s.groups;
  for (int64_t b = begin; b < end; ++b) {
    const int64_t count = s.count[b] + 1;
    const double share = 1. / static_cast<double>(count);
    s.new_count[b] = count;
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t group = b * s.groups + g, first = g * features, at = b * s.width + first;
      const double mean = count > 1 ? s.mean[group] : 0., variance = count > 1 ? s.variance[group] : 0.;
      const Moments now = moments(s.x + at, features);
      const double apart = now.mean - mean;
      const Moments all{mean + apart * share,
                        variance + (now.variance - variance) * share + (1. - share) * share * apart * apart};
      s.new_mean[group] = all.mean;
      s.new_variance[group] = all.variance;
      normalize(s.x + at, features, all, s.scale ? s.scale + first : nullptr, s.shift ? s.shift + first : nullptr,
                s.y + at);
    }
  }
}

FM_INLINE float inverse_rms(const float* x, int64_t size) {
  Floats squares{};
  vectors(size, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
    const Floats value = read(x + i, count);
    squares += value * value;
  });
  return 1.f / std::sqrt(sum(squares) / static_cast<float>(size) + kEps);
}

FM_INLINE float advance(const ComplexAverageStep& s, int64_t element, int64_t first, float x) {
  const double* decay = s.decay + 2 * first;
  const float *projection = s.projection + 2 * first, *old = s.state ? s.state + 2 * element * s.n : nullptr;
  float* next = s.new_state + 2 * element * s.n;
  float total = 0.f;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < s.n; ++i) {
    const double re = old ? old[2 * i] : 0.f, im = old ? old[2 * i + 1] : 0.f;
    next[2 * i] = static_cast<float>(decay[2 * i] * re - decay[2 * i + 1] * im + s.expansion[first + i] * x);
    next[2 * i + 1] = static_cast<float>(decay[2 * i] * im + decay[2 * i + 1] * re);
    total += projection[2 * i] * next[2 * i] + projection[2 * i + 1] * next[2 * i + 1];
  }
  return total;
}

FM_INLINE void complex_average_step(const ComplexAverageStep& s, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    float* y = s.y + b * s.width;
    for (int64_t d = 0; d < s.width; ++d) {
      const float x = s.x[b * s.width + d];
      y[d] = advance(s, b * s.width + d, d * s.n, x) + s.omega[d] * x;
    }
    const float inverse = s.rms ? inverse_rms(y, s.width) : 1.f;
    vectors(s.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      const Floats value = read(y + i, count);
      const Floats normed = value * inverse;
      write(y + i, s.rms ? (s.scale ? normed * read(s.scale + i, count) : normed) : silu(value), count);
    });
  }
}

// Query or key of one head: scaled, moved and turned.
FM_INLINE void turned(const float* shared, float inverse, const float* scale, const float* offset, const float* turn,
                      int64_t size, float* out) {
  for (int64_t i = 0; i < size; i += 2) {
    const float a = offset[i] + shared[i] * inverse * scale[i];
    const float b = offset[i + 1] + shared[i + 1] * inverse * scale[i + 1];
    out[i] = a * turn[i] - b * turn[i + 1];
    out[i + 1] = a * turn[i + 1] + b * turn[i];
  }
}

FM_INLINE void normalized_attention_step(const NormalizedAttentionStep& s, int64_t begin, int64_t end) {
  const int64_t seen = s.past + 1, e = s.z / s.heads, width = s.v / s.heads;
  std::vector<float> query(e), weights(seen);
  for (int64_t b = begin; b < end; ++b) {
    const float* shared = s.gates + b * s.gates_width;
    float *keys = s.keys + b * s.room * s.z, *values = s.values + b * s.room * s.v, *y = s.y + b * s.v;
    float* value = values + s.past * s.v;
    vectors(s.v, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      write(value + i, silu(read(s.value + b * s.v + i, count)), count);
    });
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t first = h * e;
      const float inverse = inverse_rms(shared + first, e);
      turned(shared + first, inverse, s.scale + first, s.offset + first, s.turn, e, query.data());
      turned(shared + first, inverse, s.scale + s.z + first, s.offset + s.z + first, s.turn, e,
             keys + s.past * s.z + first);
      products(keys + first, s.z, seen, query.data(), e, weights.data());
      weigh(weights.data(), seen, AttentionFunction::kSoftmax);
      combine(values + h * width, s.v, width, seen, weights.data(), y + h * width);
    }
    const float* gate = shared + s.z;
    vectors(s.v, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      write(y + i, read(y + i, count) * silu(read(gate + i, count)), count);
    });
  }
}

FM_INLINE void candidate_step(const CandidateStep& s, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const float *residual = s.residual + b * s.width, *candidate = s.gates + (b + 1) * s.gates_width - s.width;
    float* out = s.out + b * s.width;
    for (int64_t i = 0; i < s.width; ++i) out[i] = residual[i] + (candidate[i] + out[i]);
  }
}

}  // namespace

void timestep_norm_step_cpu(const TimestepNormStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(timestep_norm_step(step, begin, end));
}

void complex_average_step_cpu(const ComplexAverageStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(complex_average_step(step, begin, end));
}

void normalized_attention_step_cpu(const NormalizedAttentionStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(normalized_attention_step(step, begin, end));
}

void candidate_step_cpu(const CandidateStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(candidate_step(step, begin, end));
}

}  // namespace fm
