#pragma once
// Real and complex numbers for the EMA's kernels, with the few operations they need, and powers of the decay.
#include "ema/ema_division.h"

namespace fm {

struct alignas(8) Complex {
  float re, im;
};

// ---- a b + c ----
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return a * b + c; }
__device__ __forceinline__ Complex multiply_add(Complex a, float b, Complex c) {
  return {a.re * b + c.re, a.im * b + c.im};
}
__device__ __forceinline__ Complex multiply_add(Complex a, Complex b, float c) {
  return {a.re * b.re + (c - a.im * b.im), a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ Complex multiply_add(Complex a, Complex b, Complex c) {
  return {a.re * b.re + (c.re - a.im * b.im), a.re * b.im + (a.im * b.re + c.im)};
}

// Re(a b) + c
__device__ __forceinline__ float real_multiply_add(float a, float b, float c) { return a * b + c; }
__device__ __forceinline__ float real_multiply_add(Complex a, Complex b, float c) {
  return a.re * b.re + (c - a.im * b.im);
}

__device__ __forceinline__ float minus(float a) { return -a; }
__device__ __forceinline__ Complex minus(Complex a) { return {-a.re, -a.im}; }
__device__ __forceinline__ float conjugate(float a) { return a; }
__device__ __forceinline__ Complex conjugate(Complex a) { return {a.re, -a.im}; }
__device__ __forceinline__ bool is_zero(float a) { return a == 0.f; }
__device__ __forceinline__ bool is_zero(Complex a) { return a.re == 0.f && a.im == 0.f; }
__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ Complex add(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }

// Element `index` of an array in memory whose elements are pairs where T is complex; it need not be aligned for pairs.
template <class T>
__device__ __forceinline__ T element(const float* array, int64_t index) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return array[index];
  } else {
    return T{array[2 * index], array[2 * index + 1]};
  }
}
__device__ __forceinline__ void store_element(float* array, int64_t index, float value) { array[index] = value; }
__device__ __forceinline__ void store_element(float* array, int64_t index, Complex value) {
  array[2 * index] = value.re;
  array[2 * index + 1] = value.im;
}

// Their floats, in a place of four.
__device__ __forceinline__ void get(const float* place, float& value) { value = *place; }
__device__ __forceinline__ void get(const float* place, Complex& value) { value = {place[0], place[1]}; }
__device__ __forceinline__ void put(float* place, float value) { *place = value; }
__device__ __forceinline__ void put(float* place, Complex value) {
  place[0] = value.re;
  place[1] = value.im;
}

__device__ __forceinline__ float multiply(float p, float g) { return p * g; }
__device__ __forceinline__ Complex multiply(float p, Complex g) { return {p * g.re, p * g.im}; }
__device__ __forceinline__ float from_real(float value, float) { return value; }
__device__ __forceinline__ Complex from_real(float value, Complex) { return {value, 0.f}; }

// ---- powers, computed in double precision ----

template <class T>
struct Exact;  // a double or a pair of them
template <>
struct Exact<float> {
  double value;
  __device__ float high() const { return static_cast<float>(value); }
  __device__ float low() const { return static_cast<float>(value - static_cast<double>(high())); }
  __device__ Exact times(double factor) const { return {value * factor}; }
};
template <>
struct Exact<Complex> {
  double re, im;
  __device__ Complex high() const { return {static_cast<float>(re), static_cast<float>(im)}; }
  __device__ Complex low() const {
    const Complex h = high();
    return {static_cast<float>(re - static_cast<double>(h.re)), static_cast<float>(im - static_cast<double>(h.im))};
  }
  __device__ Exact times(double factor) const { return {re * factor, im * factor}; }
};

// ---- numbers in double precision, which the gradients of coefficients are computed in ----

struct Pair {
  double re, im;
};
__device__ __forceinline__ Pair operator+(Pair a, Pair b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ Pair operator*(Pair a, Pair b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ Pair operator*(double a, Pair b) { return {a * b.re, a * b.im}; }
__device__ __forceinline__ double real(double a) { return a; }
__device__ __forceinline__ double real(Pair a) { return a.re; }
__device__ __forceinline__ double wide(float a) { return a; }
__device__ __forceinline__ Pair wide(Complex a) { return {a.re, a.im}; }
__device__ __forceinline__ double wide(Exact<float> a) { return a.value; }
__device__ __forceinline__ Pair wide(Exact<Complex> a) { return {a.re, a.im}; }
// torch's convention: the conjugate of the derivative
__device__ __forceinline__ void store_gradient(float* data, int64_t place, double value) {
  data[place] = static_cast<float>(value);
}
__device__ __forceinline__ void store_gradient(float* data, int64_t place, Pair value) {
  data[2 * place] = static_cast<float>(value.re);
  data[2 * place + 1] = static_cast<float>(-value.im);
}

constexpr double kPi = 3.141592653589793;

// q^steps where log_decay = log(q); q may be zero.
__device__ __forceinline__ Exact<float> power(float log_decay, int64_t steps) {
  return {steps == 0 ? 1.0 : exp(static_cast<double>(log_decay) * static_cast<double>(steps))};
}
__device__ __forceinline__ Exact<Complex> power(Complex log_decay, int64_t steps) {
  if (steps == 0) return {1.0, 0.0};
  const double size = exp(static_cast<double>(log_decay.re) * static_cast<double>(steps));
  const double half_turns = static_cast<double>(log_decay.im) * static_cast<double>(steps) / kPi;
  double sine, cosine;
  sincospi(half_turns, &sine, &cosine);  // not sincos, whose reduction of large angles needs a stack
  return {size * cosine, size * sine};
}

// What `steps` steps do to a pair (v, dv/dq): v' = q^steps v, in two floats, and slope = d(q^steps)/dq.
template <class T>
struct Transfer {
  T high, low, slope;

  __device__ __forceinline__ T apply(T v, T added) const {
    return multiply_add(high, v, multiply_add(low, v, added));
  }
};
template <class T>
__device__ __forceinline__ Transfer<T> transfer(T log_decay, int64_t steps) {
  const Exact<T> whole = power(log_decay, steps);
  const int64_t rest = steps > 0 ? steps - 1 : 0;
  return {whole.high(), whole.low(), power(log_decay, rest).times(static_cast<double>(steps)).high()};
}

}  // namespace fm
