// Decoding on the CPU, eight numbers at a time; see decode_step.h.
#include "decode_step/decode_step.h"

#include <cmath>
#include <vector>

#include "common/cpu_level.h"
#include "common/vector_math.h"

namespace fm {
namespace {

constexpr int kRows = 4;  // rows of a matrix read side by side: enough loads in flight to keep the memory busy

FM_INLINE Floats load_some(const float* from, int64_t count) {
  float values[kWidth] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return load(values);
}

FM_INLINE void store_some(float* to, Floats x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = x[i];
}

FM_INLINE Floats silu(Floats x) { return x * sigmoid(x); }

// Calls visit(index, count) for whole vectors and for the rest of [0, size).
template <class Visit>
FM_INLINE void vectors(int64_t size, Visit visit) {
  for (int64_t i = 0; i < size; i += kWidth) visit(i, size - i < kWidth ? size - i : kWidth);
}

FM_INLINE Floats read(const float* from, int64_t count) { return count == kWidth ? load(from) : load_some(from, count); }

FM_INLINE void write(float* to, Floats x, int64_t count) {
  if (count == kWidth) return store(to, x);
  store_some(to, x, count);
}

// Inner products of kCount rows of a matrix with x.
template <int kCount>
FM_INLINE void dots(const float* rows, int64_t stride, const float* x, int64_t size, float* out) {
  Floats sums[kCount][2] = {};
  int64_t i = 0;
  for (; i + 2 * kWidth <= size; i += 2 * kWidth) {
    const Floats x0 = load(x + i), x1 = load(x + i + kWidth);
    for (int r = 0; r < kCount; ++r) {
      sums[r][0] += load(rows + r * stride + i) * x0;
      sums[r][1] += load(rows + r * stride + i + kWidth) * x1;
    }
  }
  for (; i < size; i += kWidth) {
    const int64_t count = size - i < kWidth ? size - i : kWidth;
    const Floats x0 = read(x + i, count);
    for (int r = 0; r < kCount; ++r) sums[r][0] += read(rows + r * stride + i, count) * x0;
  }
  for (int r = 0; r < kCount; ++r) out[r] = sum(sums[r][0] + sums[r][1]);
}

// out[j] = rows[j] . x for j in [0, count)
FM_INLINE void products(const float* rows, int64_t stride, int64_t count, const float* x, int64_t size, float* out) {
  int64_t j = 0;
  for (; j + kRows <= count; j += kRows) dots<kRows>(rows + j * stride, stride, x, size, out + j);
  for (; j < count; ++j) dots<1>(rows + j * stride, stride, x, size, out + j);
}

// Turns logits of `count` keys into weights.
FM_INLINE void weigh(float* logits, int64_t count, AttentionFunction function) {
  if (function == AttentionFunction::kSoftmax) {
    float largest = logits[0];
    for (int64_t j = 1; j < count; ++j) largest = logits[j] > largest ? logits[j] : largest;
    Floats total{};
    vectors(count, [&](int64_t j, int64_t some) __attribute__((always_inline)) {
      const Floats weight = exp_nonpositive(read(logits + j, some) - largest);
      write(logits + j, weight, some);
      total += some == kWidth ? weight : load_some(logits + j, some);
    });
    const float inverse = 1.f / sum(total);
    for (int64_t j = 0; j < count; ++j) logits[j] *= inverse;
    return;
  }
  vectors(count, [&](int64_t j, int64_t some) __attribute__((always_inline)) {
    const Floats x = read(logits + j, some);
    const Floats positive = maximum(x, Floats{});
    write(logits + j,
          function == AttentionFunction::kRelu2 ? positive * positive
                                                : laplace_floats((x - kLaplaceMu) * kLaplaceSlope).weight,
          some);
  });
}

// out = sum_j weights[j] rows[j], columns of one tile at a time so that the sums stay in registers
FM_INLINE void combine(const float* rows, int64_t width, int64_t count, const float* weights, float* out) {
  constexpr int kTile = 8;
  int64_t column = 0;
  for (; column + kTile * kWidth <= width; column += kTile * kWidth) {
    Floats sums[kTile] = {};
    for (int64_t j = 0; j < count; ++j) {
      const float* row = rows + j * width + column;
      for (int t = 0; t < kTile; ++t) sums[t] += weights[j] * load(row + t * kWidth);
    }
    for (int t = 0; t < kTile; ++t) store(out + column + t * kWidth, sums[t]);
  }
  for (; column < width; column += kWidth) {
    const int64_t some = width - column < kWidth ? width - column : kWidth;
    Floats sums{};
    for (int64_t j = 0; j < count; ++j) sums += weights[j] * read(rows + j * width + column, some);
    write(out + column, sums, some);
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
    for (int64_t i = 0; i < s.v; ++i) values[s.past * s.v + i] = s.value[b * s.v + i];
    products(keys, s.z, seen, query.data(), s.z, weights.data());
    for (int64_t j = 0; j < seen; ++j) weights[j] += s.bias[j];
    weigh(weights.data(), seen, s.function);
    float* y = s.y + b * s.v;
    combine(values, s.v, seen, weights.data(), y);
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

}  // namespace

void average_step_cpu(const AverageStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(average_step(step, begin, end));
}

void attention_step_cpu(const AttentionStep& step, int64_t begin, int64_t end) {
  FM_AT_CPU_LEVEL(attention_step(step, begin, end));
}

void mix_step_cpu(const MixStep& step, int64_t begin, int64_t end) { FM_AT_CPU_LEVEL(mix_step(step, begin, end)); }

}  // namespace fm
