#pragma once
// Eight floats at a time, or more: exp and erf as straight lines of additions and multiplications, for kernels that are
// compiled at several levels (cpu_level.h). The coefficients are weighted minimax fits made for this file (exp:
// relative error; erfc(u) exp(u^2): error weighted by exp(-u^2)); the errors stated below include rounding and were
// measured against float64.
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/several.h"

namespace fm {

// Wider vectors would be slow on processors without AVX-512, where GCC splits them badly.
using Floats = float __attribute__((vector_size(32)));
using Words = uint32_t __attribute__((vector_size(32)));
constexpr int kWidth = 8;

// The same in any width; functions that are templates of a vector take all of them.
template <int kLanes>
struct Lanes {
  typedef float Floats __attribute__((vector_size(4 * kLanes)));  // `using` would lose the attribute
  typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
};

template <class Vector>
constexpr int lanes_of = sizeof(Vector) / sizeof(float);

template <class Condition, class Vector>
FM_INLINE Vector select(Condition condition, Vector yes, Vector no) {
  return condition ? yes : no;
}

// As many words as there are floats.
template <class Vector>
struct WordsOf {
  using Type = typename Lanes<lanes_of<Vector>>::Words;
};

template <class Vector, int kCount>
struct WordsOf<Several<Vector, kCount>> {
  using Type = Several<typename WordsOf<Vector>::Type, kCount>;
};

// The bits of floats as words, or floats of such bits.
template <class To, class From>
FM_INLINE To with_bits(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class To, class Vector, int kCount>
FM_INLINE To with_bits(const Several<Vector, kCount>& from) {
  using Part = std::remove_reference_t<decltype(std::declval<To&>().parts[0])>;
  return for_parts<Part>([](Vector part) __attribute__((always_inline)) { return with_bits<Part>(part); }, from);
}

FM_INLINE Floats broadcast(float x) { return Floats{} + x; }

FM_INLINE Floats load(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

FM_INLINE void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }

FM_INLINE float sum(Floats x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

FM_INLINE float sum(Lanes<2 * kWidth>::Floats x) {
  float numbers[2 * kWidth];
  std::memcpy(numbers, &x, sizeof x);
  return sum(load(numbers) + load(numbers + kWidth));
}

FM_INLINE Floats maximum(Floats a, Floats b) { return select(a > b, a, b); }

// exp(x) for -87.33 <= x <= 89: relative error below 9e-8, infinity from 88.38 on.
template <class Vector>
FM_INLINE Vector exp_within(Vector x) {
  using Words = typename WordsOf<Vector>::Type;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, found in the lowest bits
  const Vector shifted = x * 1.44269504f + kRound;
  const Vector n = shifted - kRound;
  const Vector r = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // x - n log 2; the first product is exact
  Vector p = r * 0.0013814598f + 0.008368717f;
  p = p * r + 0.04166839f;
  p = p * r + 0.16666521f;
  p = p * r + 0.49999994f;
  p = p * (r * r) + r + 1.f;
  return p * with_bits<Vector>((with_bits<Words>(shifted) + 127u) << 23);  // 2^n
}

// exp(x) for x <= 0: relative error below 9e-8, exactly zero where the result would be below the normal numbers.
template <class Vector>
FM_INLINE Vector exp_nonpositive(Vector x) {
  return select(x < -87.33f, Vector{}, exp_within(x));
}

// Relative error below 2e-7; zero below -88.38, where a quotient of float32 would be below the normal numbers too.
template <class Vector>
FM_INLINE Vector sigmoid(Vector x) {
  const Vector least = Vector{} - 87.33f, most = Vector{} + 89.f;
  Vector y = -x;
  y = select(y < least, least, y);
  y = select(y > most, most, y);  // NaN stays NaN
  return 1.f / (1.f + exp_within(y));
}

// The derivative of SiLU(x), where s = sigmoid(x).
template <class Vector>
FM_INLINE Vector silu_slope(Vector x, Vector s) {
  return s * (1.f + x * (1.f - s));
}

template <class Vector>
struct LaplaceFloats {
  Vector weight;  // 0.5 (1 + erf t)
  Vector bell;    // exp(-t^2): its derivative up to a constant
};

// Absolute errors: below 8e-8 (weight) and 1.3e-7 (bell). For negative t the weight is computed as 0.5 erfc(-t), so
// that small ones keep digits.
template <class Vector>
FM_INLINE LaplaceFloats<Vector> laplace_floats(Vector t) {
  const Vector u = select(t < 0.f, -t, t);
  const Vector c = select(u < 4.5f, u, Vector{} + 4.5f);  // the fit's range; beyond it the bell alone decides
  Vector p = c * 7.491697e-06f - 0.00014513862f;          // erfc(c) exp(c^2)
  p = p * c + 0.0012730993f;
  p = p * c - 0.0067785773f;
  p = p * c + 0.024949133f;
  p = p * c - 0.06913404f;
  p = p * c + 0.15455617f;
  p = p * c - 0.29493865f;
  p = p * c + 0.49809897f;
  p = p * c - 0.7518915f;
  p = p * c + 0.9999644f;
  p = p * c - 1.1283778f;
  p = p * c + 1.f;
  const Vector bell = exp_nonpositive(-(t * t));
  const Vector tail = bell * p * 0.5f;
  return {select(t < 0.f, tail, 1.f - tail), bell};
}

}  // namespace fm
