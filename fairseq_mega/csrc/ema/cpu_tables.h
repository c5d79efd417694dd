#pragma once
// Coefficients of one block of channels in the layout that the EMA's loops read: per group of channels the
// components one after the other, real and imaginary part side by side.
#include <cmath>
#include <complex>

#include "common/tiles.h"
#include "ema/ema_scan.h"

namespace fm {

// Components are handled a few at a time; their number is rounded up with components that are zero.
constexpr int kComponentMultiple = 4;

template <class Vec>
struct EmaTables {
  int n = 0, parts = 1;               // N rounded up, 1 or 2
  VecArray<Vec> decay, rounding;   // q in float32, and what is missing to q: q = decay + rounding
  VecArray<Vec> weight;            // p g, from the scan of x to y
  VecArray<Vec> expansion;         // p, one part, zero where there is no component
  VecArray<Vec> projection;        // g
  VecArray<Vec> lag, lag_slope;    // q^M and its derivative M q^(M-1); empty without truncation
  struct Carry {                      // q^m - decay^m and its derivative: what rounding loses over m steps
    int steps = 0;
    VecArray<Vec> value, slope;
  };
  Carry tile, shorter;  // for tiles of kSteps steps, and for the last shorter one

  int at(int group, int component) const { return (group * n + component) * parts; }
  const Carry& carry(int steps);
};

template <class Vec>
inline void put(VecArray<Vec>& table, int index, int lane, std::complex<double> value, int parts) {
  table[index][lane] = static_cast<float>(value.real());
  if (parts == 2) table[index + 1][lane] = static_cast<float>(value.imag());
}

template <class Vec>
inline std::complex<double> get(const VecArray<Vec>& table, int index, int lane, int parts) {
  return {table[index][lane], parts == 2 ? table[index + 1][lane] : 0.f};
}

// To first order in the rounding, which is all there is in float32.
template <class Vec>
const typename EmaTables<Vec>::Carry& EmaTables<Vec>::carry(int steps) {
  Carry& carry = steps == kSteps ? tile : shorter;
  if (carry.steps == steps) return carry;
  carry.steps = steps;
  carry.value.clear(decay.size());
  carry.slope.clear(decay.size());
  for (int index = 0; index < static_cast<int>(decay.size()); index += parts) {
    for (int lane = 0; lane < kLanes<Vec>; ++lane) {
      const std::complex<double> q = get(decay, index, lane, parts), lost = get(rounding, index, lane, parts);
      std::complex<double> power = 1.0, factor = q;  // q^(steps - 2)
      for (int rest = steps - 2; rest > 0; rest >>= 1) {
        if (rest & 1) power *= factor;
        factor *= factor;
      }
      const double count = steps;
      put(carry.value, index, lane, count * (steps >= 2 ? power * q : 1.0) * lost, parts);
      put(carry.slope, index, lane, steps >= 2 ? count * (count - 1.0) * power * lost : 0.0, parts);
    }
  }
  return carry;
}

// Tables of the `valid` channels from row `first` of the coefficients on.
template <class Vec>
void ema_tables(EmaTables<Vec>& tables, const EmaShape& shape, const EmaCoefficients& c, int64_t first, int valid) {
  const int parts = shape.parts();
  tables.parts = parts;
  tables.n = (shape.n + kComponentMultiple - 1) / kComponentMultiple * kComponentMultiple;
  const size_t size = static_cast<size_t>(kGroups<Vec>) * tables.n * parts;
  for (auto* table : {&tables.decay, &tables.rounding, &tables.weight, &tables.projection}) {
    table->clear(size);
  }
  tables.tile.steps = tables.shorter.steps = 0;
  tables.expansion.clear(size / parts);
  const double reach = static_cast<double>(shape.truncation);
  tables.lag.clear(shape.truncation > 0 ? size : 0);
  tables.lag_slope.clear(tables.lag.size());
  for (int channel = 0; channel < valid; ++channel) {
    const int group = channel / kLanes<Vec>, lane = channel % kLanes<Vec>;
    for (int n = 0; n < shape.n; ++n) {
      const int64_t source = (first + channel) * shape.n + n;
      const int target = tables.at(group, n);
      const double log = c.log_decay[source * parts], angle = parts == 2 ? c.log_decay[source * parts + 1] : 0.0;
      const auto power = [&](double exponent) { return std::polar(std::exp(log * exponent), angle * exponent); };
      std::complex<double> q = parts == 2 ? power(1.0) : std::exp(log);
      if (shape.truncation == 1) q = 0.0;  // no memory: exactly none, not what two roundings leave of it
      const std::complex<double> g(c.projection[source * parts], parts == 2 ? c.projection[source * parts + 1] : 0.0);
      put(tables.decay, target, lane, q, parts);
      put(tables.rounding, target, lane, q - get(tables.decay, target, lane, parts), parts);
      put(tables.projection, target, lane, g, parts);
      put(tables.weight, target, lane, g * double(c.expansion[source]), parts);
      tables.expansion[target / parts][lane] = c.expansion[source];
      if (shape.truncation > 0) {
        put(tables.lag, target, lane, shape.truncation == 1 ? 0.0 : power(reach), parts);
        put(tables.lag_slope, target, lane, reach * power(reach - 1.0), parts);
      }
    }
  }
}

}  // namespace fm
