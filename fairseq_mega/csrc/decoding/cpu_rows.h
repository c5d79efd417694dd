#pragma once
// Rows of floats, eight at a time: what the kernels of decoding on the CPU share.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/attention.h"
#include "common/vector_math.h"

namespace fm {

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
      __builtin_prefetch(rows + (kCount + r) * stride + i);
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

// out += sum_j weights[j] rows[j] over kCount rows, each `stride` after the one before.
template <int kCount>
FM_INLINE void add_rows(const float* rows, int64_t stride, int64_t width, const float* weights, float* out) {
  vectors(width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
    Floats sums = read(out + i, count);
    for (int r = 0; r < kCount; ++r) {
      __builtin_prefetch(rows + (kCount + r) * stride + i);
      sums += weights[r] * read(rows + r * stride + i, count);
    }
    write(out + i, sums, count);
  });
}

// out = sum_j weights[j] rows[j]. Rows are read from end to end, as memory likes it; the sums stay in the cache.
FM_INLINE void combine(const float* rows, int64_t stride, int64_t width, int64_t count, const float* weights,
                       float* out) {
  std::fill(out, out + width, 0.f);
  int64_t j = 0;
  for (; j + kRows <= count; j += kRows) add_rows<kRows>(rows + j * stride, stride, width, weights + j, out);
  for (; j < count; ++j) add_rows<1>(rows + j * stride, stride, width, weights + j, out);
}

constexpr float kEps = 1e-5f;  // of every norm

struct Moments {
  double mean, variance;
};

// Of some features, measured from the first of them: a large mean costs no digits.
FM_INLINE Moments moments(const float* x, int64_t size) {
  const double origin = x[0];
  double sum = 0., square = 0.;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += x[i] - origin;
  const double centre = sum / static_cast<double>(size);
#pragma omp simd reduction(+ : square)
  for (int64_t i = 0; i < size; ++i) {
    const double apart = x[i] - origin - centre;
    square += apart * apart;
  }
  return {origin + centre, square / static_cast<double>(size)};
}

// y = (x - mean) / sqrt(variance + eps) scale + shift; null for a scale of one and a shift of zero
FM_INLINE void normalize(const float* x, int64_t size, Moments by, const float* scale, const float* shift, float* y) {
  const double inverse = 1. / std::sqrt(by.variance + static_cast<double>(kEps));
  for (int64_t i = 0; i < size; ++i) y[i] = static_cast<float>((x[i] - by.mean) * inverse);
  for (int64_t i = 0; scale && i < size; ++i) y[i] *= scale[i];
  for (int64_t i = 0; shift && i < size; ++i) y[i] += shift[i];
}

}  // namespace fm
