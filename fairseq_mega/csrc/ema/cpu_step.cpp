// One step of the EMA on the CPU, for decoding: state update, projection, skip and SiLU in one pass.
#include <cmath>
#include <complex>
#include <vector>

#include "common/cpu_level.h"
#include "common/subnormals.h"
#include "common/tiles.h"
#include "ema/ema_scan.h"

namespace fm {
namespace {

FM_INLINE float read(const void* data, int64_t index, DType dtype) {
  return dtype == DType::kFloat32 ? static_cast<const float*>(data)[index]
                                  : to_float(static_cast<const uint16_t*>(data)[index], dtype);
}

FM_INLINE void write(void* data, int64_t index, float value, DType dtype) {
  if (dtype == DType::kFloat32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = from_float(value, dtype);
  }
}

// Returns sum_n Re(g h') and stores h' = q h + p x.
FM_INLINE float advance_real(const float* state, float* next, const float* high, const float* low, const float* p,
                             const float* g, float x, int n) {
  float sum = 0.f;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) {
    next[i] = high[i] * state[i] + (low[i] * state[i] + p[i] * x);
    sum += g[i] * next[i];
  }
  return sum;
}

FM_INLINE float advance_complex(const float* state, float* next, const float* high, const float* low, const float* p,
                                const float* g, float x, int n) {
  float sum = 0.f;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) {
    const float re = state[2 * i], im = state[2 * i + 1];
    const float low_re = low[2 * i] * re - low[2 * i + 1] * im, low_im = low[2 * i] * im + low[2 * i + 1] * re;
    next[2 * i] = high[2 * i] * re + (low_re + p[i] * x - high[2 * i + 1] * im);  // added last, low would be lost
    next[2 * i + 1] = high[2 * i] * im + (low_im + high[2 * i + 1] * re);
    sum += g[2 * i] * next[2 * i] - g[2 * i + 1] * next[2 * i + 1];
  }
  return sum;
}

FM_INLINE void ema_step(const EmaShape& shape, const EmaCoefficients& c, const EmaStep& step) {
  const int parts = shape.parts(), values = shape.n * parts;
  std::vector<float> high(values), low(values), fresh(values, 0.f);
  for (int64_t d = 0; d < shape.width; ++d) {
    const float* log_decay = c.log_decay + d * values;
    for (int n = 0; n < shape.n; ++n) {
      const std::complex<double> q =
          parts == 2 ? std::polar(std::exp(double(log_decay[2 * n])), double(log_decay[2 * n + 1]))
                     : std::complex<double>(std::exp(double(log_decay[n])));
      const double exact[] = {q.real(), q.imag()};
      for (int i = 0; i < parts; ++i) {
        high[n * parts + i] = static_cast<float>(exact[i]);
        low[n * parts + i] = static_cast<float>(exact[i] - high[n * parts + i]);
      }
    }
    for (int64_t b = 0; b < shape.batch; ++b) {
      const int64_t element = b * shape.width + d;
      const float x = read(step.x, element, shape.dtype);
      const float* state = step.state ? step.state + element * values : fresh.data();
      float* next = step.new_state + element * values;
      const float *p = c.expansion + d * shape.n, *g = c.projection + d * values;
      float y = shape.complex ? advance_complex(state, next, high.data(), low.data(), p, g, x, shape.n)
                              : advance_real(state, next, high.data(), low.data(), p, g, x, shape.n);
      if (step.omega) y += step.omega[d] * x;
      if (step.activated) y /= 1.f + std::exp(-y);
      write(step.y, element, y, shape.dtype);
    }
  }
}

}  // namespace

void ema_step_cpu(const EmaShape& shape, const EmaCoefficients& c, const EmaStep& step) {
  const SubnormalsAreZero fading;
  FM_AT_CPU_LEVEL(ema_step(shape, c, step));
}

}  // namespace fm
