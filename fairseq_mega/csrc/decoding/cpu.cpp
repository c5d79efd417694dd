// Decoding on the CPU, eight numbers at a time; see decoding.h.
#include "decoding/decoding.h"

#include <cmath>
#include <vector>

#include "common/cpu_level.h"
#include "decoding/cpu_rows.h"

namespace fm {
namespace {

FM_INLINE void layer_norm_step(const LayerNormStep& s, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const float* x = s.x + b * s.width;
    normalize(x, s.width, moments(x, s.width), s.scale, s.shift, s.y + b * s.width);
  }
}

FM_INLINE void average_step(const AverageStep& s, int64_t begin, int64_t end) {
  for (int64_t element = begin; element < end; ++element) {
    const int64_t d = element % s.width, first = d * s.n, own = element * s.n;
    const float x = s.x[element];
    Floats total{};
    vectors(s.n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      Floats next = read(s.expansion + first + i, count) * x;
      if (s.state) {
        const Floats state = read(s.state + own + i, count);
        next += read(s.decay_low + first + i, count) * state;
        next += read(s.decay_high + first + i, count) * state;
      }
      write(s.new_state + own + i, next, count);
      total += read(s.projection + first + i, count) * next;
    });
    s.y[element] = sum(total) + s.omega[d] * x;
  }
  vectors(end - begin, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
    write(s.y + begin + i, silu(read(s.y + begin + i, count)), count);
  });
}

FM_INLINE void attention_step(const AttentionStep& s, int64_t begin, int64_t end) {
  const int64_t gates_width = 2 * s.width + s.z + s.v, seen = s.past + 1;
  const bool softmax = s.function == AttentionFunction::kSoftmax;
  const float scale = softmax ? 1.f / std::sqrt(static_cast<float>(s.z)) : 1.f / static_cast<float>(seen);
  std::vector<float> query(s.z), weights(seen);
  for (int64_t b = begin; b < end; ++b) {
    const float* shared = s.gates + b * gates_width + s.width;
    float* keys = s.keys + b * s.room * s.z;
    float* values = s.values + b * s.room * s.v;
    float* key = keys + s.past * s.z;
    vectors(s.z, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      const Floats x = silu(read(shared + i, count));
      write(query.data() + i, (read(s.mu + i, count) + x * read(s.kappa + i, count)) * scale, count);
      write(key + i, read(s.mu + s.z + i, count) + x * read(s.kappa + s.z + i, count), count);
    });
    float* value = values + s.past * s.v;
    vectors(s.v, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      write(value + i, silu(read(s.value + b * s.v + i, count)), count);
    });
    products(keys, s.z, seen, query.data(), s.z, weights.data());
    for (int64_t j = 0; j < seen; ++j) weights[j] += s.bias[j];
    weigh(weights.data(), seen, s.function);
    float* y = s.y + b * s.v;
    combine(values, s.v, s.v, seen, weights.data(), y);
    const float* reset = shared + s.z;
    vectors(s.v, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      write(y + i, read(y + i, count) * silu(read(reset + i, count)), count);
    });
  }
}

FM_INLINE void mix_step(const MixStep& s, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const float* update = s.gates + b * s.gates_width;
    const float* candidate = update + s.gates_width - s.width;
    const int64_t row = b * s.width;
    vectors(s.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      const Floats x = read(s.residual + row + i, count);
      const Floats y = silu(read(candidate + i, count) + read(s.projected + row + i, count));
      write(s.out + row + i, x + sigmoid(read(update + i, count)) * (y - x), count);
    });
  }
}

FM_INLINE void inner_step(const InnerStep& s, int64_t begin, int64_t end) {
  const int64_t stride = s.gated ? 2 * s.width : s.width;
  for (int64_t b = begin; b < end; ++b) {
    const float* from = s.in + b * stride;
    vectors(s.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      const Floats y = silu(read(from + i, count));
      write(s.out + b * s.width + i, s.gated ? y * read(from + s.width + i, count) : y, count);
    });
  }
}

FM_INLINE void add_step(const AddStep& s, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const float* residual = s.residual + b * s.width;
    float* out = s.out + b * s.width;
    vectors(s.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
      const Floats x = read(out + i, count);
      write(out + i, read(residual + i, count) + (s.scale ? x * read(s.scale + i, count) : x), count);
    });
  }
}

}  // namespace

void layer_norm_step_cpu(const LayerNormStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(layer_norm_step(step, begin, end));
}

void average_step_cpu(const AverageStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(average_step(step, begin, end));
}

void attention_step_cpu(const AttentionStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(attention_step(step, begin, end));
}

void mix_step_cpu(const MixStep& step, int64_t begin, int64_t end) { FM_AT_CPU_LEVEL(mix_step(step, begin, end)); }

void inner_step_cpu(const InnerStep& step, int64_t begin, int64_t end) { FM_AT_CPU_LEVEL(inner_step(step, begin, end)); }

void add_step_cpu(const AddStep& step, int64_t begin, int64_t end) { FM_AT_CPU_LEVEL(add_step(step, begin, end)); }

}  // namespace fm
